// SPDX-License-Identifier: Apache-2.0

//go:build linux

package series

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/receiver/internal/windows"
)

// NewReceiver returns a receiver of the machine below root, which collects every interval. It
// follows the clock of package time. Every resource has the node's name.
func NewReceiver(node, root string, interval time.Duration, configure func(*energyreceiver.Config, *receiver.Settings), next consumer.ConsumeMetricsFunc) (receiver.Metrics, error) {
	factory := energyreceiver.NewFactory()
	cfg := factory.CreateDefaultConfig().(*energyreceiver.Config)
	cfg.RootPath, cfg.CollectionInterval = root, interval
	set := receivertest.NewNopSettings(factory.Type())
	set.ID = component.NewID(factory.Type()) // the state's file has its name
	configure(cfg, &set)
	set.Logger = zap.Must(zap.NewDevelopment(zap.IncreaseLevel(zap.ErrorLevel)))
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	named, err := consumer.NewMetrics(func(ctx context.Context, md pmetric.Metrics) error {
		for _, rm := range md.ResourceMetrics().All() {
			rm.Resource().Attributes().PutStr("host.name", node)
		}
		return next(ctx, md)
	})
	if err != nil {
		return nil, err
	}
	m := machine.Local()
	m.NewMetronome = windows.NewTicking
	return energyreceiver.NewFactoryOn(m).CreateMetrics(context.Background(), set, cfg, named)
}

// Interval is the collection interval of an hour's receiver.
const Interval = 10 * time.Second

// Node is the name of an hour's node.
const Node = "node-1"

// Interruption is a stop of the receiver during the simulation, and a time without a receiver.
type Interruption struct {
	Kind  End
	After time.Duration
	Down  time.Duration
}

// End is how a receiver ends.
type End int

// The ends of receivers. After Change, it starts with another configuration.
const (
	Last End = iota
	Stop
	Crash
	Change
)

// Hour is the simulation of a machine with one receiver. Its period is the last hour.
type Hour struct {
	Seed          uint64
	Interruptions []Interruption
	Length        time.Duration
	Stored        bool // the receiver has storage
}

// churn is a busy node: 500 processes start per minute.
var churn = Population{Services: 20, Containers: 20, PerPod: 1, ContainerBirths: 100, ProcessBirths: 400}

// Record runs the simulation on a simulated clock. It returns the recording and the machine at the
// end.
func (h Hour) Record(t *testing.T) (*Recording, *Machine) {
	t.Helper()
	s := &simulation{Hour: h, Recording: &Recording{Truth: NewTruth()}, root: memoryDir(t)}
	if h.Stored {
		s.storage = memoryDir(t)
	}
	synctest.Test(t, func(t *testing.T) {
		s.t, s.begin = t, time.Now()
		s.Truth.End = s.begin.Add(h.Length)
		s.Truth.Begin = s.Truth.End.Add(-time.Hour)
		var err error
		s.machine, err = NewMachine(s.root, 1, churn, h.Seed, s.begin)
		require.NoError(t, err)
		after := Last
		for _, i := range append(h.Interruptions, Interruption{After: h.Length}) {
			s.live(after, s.begin.Add(i.After), i.Kind)
			s.passUntil(s.begin.Add(i.After + i.Down))
			after = i.Kind
		}
	})
	return s.Recording, s.machine
}

// memoryDir returns a directory in memory if possible.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "series-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// simulation is the state of an Hour in a synctest bubble.
type simulation struct {
	Hour
	*Recording
	t        *testing.T
	root     string
	storage  string // directory, empty without storage
	begin    time.Time
	machine  *Machine
	baseline map[string]float64
	cut      atomic.Bool // the data that the receiver sends does not arrive
}

// live runs a receiver until a time.
func (s *simulation) live(after End, until time.Time, end End) {
	var delay time.Duration
	r, err := NewReceiver(Node, s.root, Interval, func(c *energyreceiver.Config, _ *receiver.Settings) {
		c.Storage, delay = s.storage, c.InitialDelay
		if after == Change {
			c.Attribution.StaticPower = map[power.Kind]energyreceiver.StaticPowerConfig{
				power.Package: {Model: energyreceiver.StaticFixed, Power: new(50.0)}, power.DRAM: {Model: energyreceiver.StaticFixed, Power: new(8.0)},
			}
		}
	}, s.take)
	require.NoError(s.t, err)
	s.cut.Store(false)
	s.passUntil(time.Now())
	if s.baseline == nil {
		s.baseline = s.meters()
	}
	require.NoError(s.t, r.Start(s.t.Context(), componenttest.NewNopHost()))
	synctest.Wait() // for the first scan
	for at := time.Now().Add(delay); at.Before(until); at = at.Add(Interval) {
		s.passUntil(at)
		synctest.Wait()
	}
	s.passUntil(until)
	s.cut.Store(end == Last || end == Crash) // the last collection is after the period
	if end == Crash && s.Stored {
		kept := filepath.Join(memoryDir(s.t), "kept")
		require.NoError(s.t, os.CopyFS(kept, os.DirFS(s.storage)))
		s.storage = kept
	}
	require.NoError(s.t, r.Shutdown(s.t.Context()))
}

// passUntil lets time pass on the machine and then on the clock.
func (s *simulation) passUntil(at time.Time) {
	require.NoError(s.t, s.machine.Advance(at.Sub(s.machine.Host.Booted)))
	time.Sleep(time.Until(at))
}

// meters returns the totals of the machine's zones in joules, by zone kind.
func (s *simulation) meters() map[string]float64 {
	e := s.machine.Sockets[0].Energy
	return map[string]float64{"package": e.Package / 1e6, "dram": e.DRAM / 1e6}
}

// take is the next consumer.
func (s *simulation) take(_ context.Context, md pmetric.Metrics) error {
	if s.cut.Load() {
		return nil
	}
	now := time.Now().UTC().Round(0)
	s.Truth.Add(md)
	for kind, joules := range s.meters() {
		points := s.Truth.Meters[kind]
		if n := len(points); n == 0 || points[n-1].At.Before(now) {
			s.Truth.Meters[kind] = append(points, Point{now, joules - s.baseline[kind]})
		}
	}
	return s.Add(now, md)
}
