// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

const patience = 5 * time.Minute

// shape is the size of a node and the metrics that it reports.
type shape struct {
	processes, containers          int
	births                         float64 // processes that start per minute
	withoutProcesses, withoutPower bool
}

const podSize = 2 // containers

// population returns the workloads, without the init process of the machine. A third of the
// processes run in no container.
func (s shape) population() series.Population {
	inside := 0
	if s.containers > 0 {
		inside = s.processes - s.processes/3 - s.containers
	}
	return series.Population{
		Services: s.processes - s.containers - inside - 1, Containers: s.containers, PerPod: podSize, Processes: inside, ProcessBirths: s.births,
	}
}

// newMachine returns the machine of all nodes: two sockets with two zones each.
func (s shape) newMachine(root string, now time.Time) (*series.Machine, error) {
	m, err := series.NewMachine(root, 2, s.population(), 1, now)
	if err != nil {
		return nil, err
	}
	for _, socket := range m.Sockets {
		for id, zone := range m.Host.Zones {
			if zone == socket.Core {
				delete(m.Host.Zones, id)
			}
		}
	}
	return m, m.Advance(m.Now())
}

// points returns the number of data points of a collection.
func (s shape) points() int {
	const kinds, zones, states = 2, 4, 2
	amounts := 2 // energy and power
	if s.withoutPower {
		amounts = 1
	}
	workloads := s.containers + s.containers/podSize
	if !s.withoutProcesses {
		workloads += s.processes + 1 // the series of other processes
	}
	return amounts*(workloads*kinds+zones+states*kinds) + kinds // unattributed
}

// run starts the gateways and the backend, lets the nodes send, and writes the results.
func (p *plan) run(out io.Writer) error {
	faults, err := parseFaults(p.kill, p.down)
	if err != nil {
		return err
	}
	l := &layers{dir: p.logs, processes: map[layer][]*process{}}
	if l.dir == "" {
		if l.dir, err = os.MkdirTemp("", "scale-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(l.dir) }() // not kept after the run
	}
	defer l.end()
	if err := l.start(p); err != nil {
		return err
	}
	for _, f := range faults {
		if f.index >= len(l.processes[f.layer]) {
			return fmt.Errorf("there is no %s %d", f.layer, f.index+1)
		}
	}
	nodes, w, err := p.send(l, faults, out)
	if err != nil {
		return err
	}
	made := p.report(out, l, nodes)
	switch p.to {
	case "sink":
		return l.sink.report(out, made.points)
	case "prometheus":
		rows, err := l.api.Query(`count({__name__!=""})`, time.Now())
		if err == nil && len(rows) == 1 {
			_, _ = fmt.Fprintf(out, "series in prometheus: %.0f, of %d nodes with %d each\n", rows[0].Value, p.nodes, p.shape.points())
		}
		return err
	case "mimir":
		return compareUntilEqual(out, l.api, nodes, w)
	}
	return nil
}

// compareUntilEqual compares the answers of the backend with the sent data. Queues get some time to
// deliver their data.
func compareUntilEqual(out io.Writer, api series.Prometheus, nodes []*agent, w window) error {
	table, err := compareAll(api, nodes, w)
	lacks := func(c comparison) bool { return c.made-c.stored > microjoule }
	for attempt := 0; err == nil && attempt < 3 && slices.ContainsFunc(table, lacks); attempt++ {
		time.Sleep(5 * time.Second)
		table, err = compareAll(api, nodes, w)
	}
	if err != nil {
		return err
	}
	printComparison(out, table)
	if slices.ContainsFunc(table, comparison.isWrong) {
		return errors.New("the energy in the backend differs from the sent energy")
	}
	return nil
}

// send lets all nodes collect and send while the faults happen. It returns once every process runs
// again and all nodes have stopped.
func (p *plan) send(l *layers, faults []fault, out io.Writer) (nodes []*agent, w window, err error) {
	root, err := os.MkdirTemp("/dev/shm", "scale-")
	if err != nil {
		return nil, w, err
	}
	defer func() { _ = os.RemoveAll(root) }() // not kept after the run
	machine, err := p.shape.newMachine(root, time.Now())
	if err != nil {
		return nil, w, err
	}
	for i := range p.nodes {
		a := &agent{
			name: fmt.Sprintf("node-%05d.example.com", i), client: &http.Client{Transport: &http.Transport{}}, url: l.nodes,
			queued: p.queued || p.to != "mimir", retry: firstRetry,
		}
		if p.to == "mimir" {
			a.truth = series.NewTruth()
		}
		nodes = append(nodes, a)
	}
	l.begin()
	ctx, cancel := context.WithCancel(context.Background())
	var living, failing errgroup.Group
	living.Go(func() error { return live(ctx, machine) })
	defer func() {
		cancel()
		err = errors.Join(err, living.Wait())
	}()
	const perStart = 50 * time.Millisecond // a receiver reads the machine before it starts
	start := time.Now().Add(max(p.interval, time.Duration(p.nodes)*perStart))
	for i, a := range nodes {
		offset := p.interval * time.Duration(i) / time.Duration(p.nodes)
		if err := a.start(machine, p.shape, p.interval, max(0, time.Until(start.Add(offset)))); err != nil {
			return nil, w, err
		}
	}
	const before = 2 // collections of each node before the window
	w.begin = start.Add(before*p.interval - time.Millisecond)
	for _, f := range faults {
		failing.Go(func() error { return f.inflict(ctx, l.processes[f.layer][f.index], start, out) })
	}
	time.Sleep(time.Until(start.Add(time.Duration(p.rounds) * p.interval)))
	if err := failing.Wait(); err != nil {
		return nil, w, err
	}
	if p.to == "mimir" {
		healthy := time.Now()
		waits := func(a *agent) bool { return !a.sentSince(healthy) }
		if err := series.Until("each node is acknowledged", func() (bool, error) { return !slices.ContainsFunc(nodes, waits), nil }); err != nil {
			return nil, w, err
		}
	}
	err = stop(nodes)
	w.end = time.Now().Add(time.Millisecond)
	return nodes, w, err
}

// live lets time pass on the machine until the context ends.
func live(ctx context.Context, m *series.Machine) error {
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case now := <-tick.C:
			if err := m.Advance(now.Sub(m.Host.Booted)); err != nil {
				return err
			}
		}
	}
}

// stop ends all receivers. Each sends a last collection.
func stop(nodes []*agent) error {
	var stopping errgroup.Group
	for _, a := range nodes {
		stopping.Go(func() error {
			err := a.receiver.Shutdown(context.Background())
			a.sending.Wait()
			return err
		})
	}
	return stopping.Wait()
}

// report writes the cost of the nodes' collections and of each layer.
func (p *plan) report(out io.Writer, l *layers, nodes []*agent) (made cost) {
	for _, n := range nodes {
		made.add(n.cost)
	}
	per := 1 / float64(made.collections)
	_, _ = fmt.Fprintf(out, "%d nodes, %d collections every %v: %.0f points, %.1f kB, %.1f kB with gzip, %.2f ms of the agent's CPU to pack it\n",
		p.nodes, made.collections, p.interval, float64(made.points)*per, float64(made.bytes)*per/1e3, float64(made.packed)*per/1e3, made.cpu.Seconds()*1e3*per)
	_, _ = fmt.Fprintf(out, "requests that were not acknowledged: %d, of these refused for good: %d; points rejected of those that were: %d\n",
		made.refused, made.forGood, made.dropped)
	l.report(out, made.collections, made.points)
	return made
}
