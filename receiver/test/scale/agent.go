// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// agent is a node's collector. As shipped, it sends each collection once and waits for the answer.
// The receiver repeats a rejected collection in the next one. With a queue, the agent acknowledges
// a collection at once and sends it until the gateway accepts it, like an exporter with default
// settings.
type agent struct {
	name     string
	receiver receiver.Metrics
	truth    *series.Truth // nil if no backend is compared with it
	client   *http.Client
	url      string
	queued   bool
	retry    time.Duration // the first wait between two attempts with a queue

	mu      sync.Mutex
	cost    cost
	sent    time.Time // of the last acknowledged collection
	sending sync.WaitGroup
}

// cost is the number and size of collections, the cost of encoding them, and the rejected requests.
type cost struct {
	collections, points, bytes, packed int
	cpu                                time.Duration
	refused                            int // requests that were not acknowledged
	forGood                            int // of these, requests that are not sent again
	dropped                            int // rejected points of acknowledged requests
}

func (c *cost) add(o cost) {
	c.collections, c.points, c.bytes, c.packed = c.collections+o.collections, c.points+o.points, c.bytes+o.bytes, c.packed+o.packed
	c.cpu += o.cpu
	c.refused, c.forGood, c.dropped = c.refused+o.refused, c.forGood+o.forGood, c.dropped+o.dropped
}

// nodeTimeout is the timeout of the shipped exporters. firstRetry and lastRetry are the default
// limits of the time between two attempts.
const (
	nodeTimeout           = 5 * time.Second
	firstRetry, lastRetry = 5 * time.Second, 30 * time.Second
)

// start starts the node's receiver on a machine, with its first collection after a delay.
func (a *agent) start(m *series.Machine, s shape, interval, delay time.Duration) (err error) {
	a.receiver, err = series.NewReceiver(a.name, m.Host.Root(), interval, func(c *energyreceiver.Config, _ *receiver.Settings) { s.configure(c, delay) }, a.take)
	if err != nil {
		return err
	}
	return a.receiver.Start(context.Background(), componenttest.NewNopHost())
}

// configure sets the size of a node's collections. A window per collection keeps a node cheap.
func (s shape) configure(c *energyreceiver.Config, delay time.Duration) {
	c.InitialDelay, c.Window, c.CPUTime = delay, c.CollectionInterval, cpu.KindProcfs
	c.Series.Processes = energyreceiver.ProcessSeriesConfig{GroupBy: energyreceiver.GroupByPID}
	c.Series.Containers.Max, c.Series.Pods.Max = 0, 0
	m := &c.Metrics
	m.ProcessEnergy.Enabled = !s.withoutProcesses
	m.ProcessPower.Enabled = !s.withoutProcesses && !s.withoutPower
	if s.withoutPower {
		m.HwPower.Enabled, m.SystemPower.Enabled, m.ContainerPower.Enabled, m.K8sPodPower.Enabled = false, false, false, false
	}
}

// take sends a collection of the receiver.
func (a *agent) take(ctx context.Context, md pmetric.Metrics) error {
	if a.truth != nil {
		a.truth.Add(md)
	}
	packed, c, err := pack(md)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.cost.add(c)
	a.mu.Unlock()
	if a.queued {
		a.sending.Go(func() { a.sendUntilTaken(packed) })
		return nil
	}
	return a.send(ctx, packed)
}

// pack encodes a collection and measures the CPU time of that.
func pack(md pmetric.Metrics) ([]byte, cost, error) {
	runtime.LockOSThread() // its CPU time is measured
	defer runtime.UnlockOSThread()
	before := threadTime()
	packed, size, err := series.Pack(md)
	return packed, cost{collections: 1, points: md.DataPointCount(), bytes: size, packed: len(packed), cpu: threadTime() - before}, err
}

// threadTime returns the CPU time of the thread.
func threadTime() time.Duration {
	var u syscall.Rusage
	const thread = 1 // RUSAGE_THREAD
	_ = syscall.Getrusage(thread, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// sendUntilTaken sends a request as an exporter that retries.
func (a *agent) sendUntilTaken(packed []byte) {
	for retry, began := a.retry, time.Now(); time.Since(began) < patience; retry = min(retry*3/2, lastRetry) {
		if err := a.send(context.Background(), packed); err == nil || consumererror.IsPermanent(err) {
			return
		}
		time.Sleep(retry)
	}
}

// send sends a request once.
func (a *agent) send(ctx context.Context, packed []byte) error {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	dropped, err := series.Export(ctx, a.client, a.url, packed)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cost.dropped += dropped
	switch {
	case err == nil:
		a.sent = time.Now()
	case consumererror.IsPermanent(err):
		a.cost.forGood++
		fallthrough
	default:
		a.cost.refused++
	}
	return err
}

// sentSince reports whether a collection was acknowledged after a time.
func (a *agent) sentSince(t time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sent.After(t)
}
