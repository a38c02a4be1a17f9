// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/receiver/internal/windows"
)

// hour is the data that the receiver sent in an hour and some minutes before it, with the truth
// about it.
type hour struct {
	collections []collection
	truth       Truth
	by          time.Duration // is added to all times that were sent
}

// collection is the data that was passed to the next consumer at once, as gzipped OTLP.
type collection struct {
	at   time.Time
	body []byte
}

const (
	warmUp             = 10 * time.Minute
	collectionInterval = 10 * time.Second
	nodeName           = "node-1"
)

// interruption is how the receiver ends, after how much of the simulation, and for how long.
type interruption struct {
	kind  string
	after time.Duration
	down  time.Duration
}

const (
	clean   = "stop"
	crash   = "crash"
	changed = "stop, other configuration"
)

var interruptions = []interruption{
	{clean, 25*time.Minute + 3700*time.Millisecond, 20 * time.Second},
	{crash, 40*time.Minute + 8200*time.Millisecond, 45 * time.Second},
	{changed, 55*time.Minute + 5500*time.Millisecond, 30 * time.Second},
}

// variant is how the receiver is configured and what happens to it.
type variant struct {
	seed          uint64
	interruptions []interruption
	length        time.Duration // of the simulation; the hour is its end
	stored        bool          // the receiver has a storage extension
}

// simulateHour runs the receiver.
func simulateHour(t *testing.T, v variant) *hour {
	t.Helper()
	h := &hour{truth: Truth{Meters: map[string][]Point{}, Series: map[string]*Series{}, Restarts: nil}}
	root := treeDir(t)
	synctest.Test(t, func(t *testing.T) {
		s := &simulation{t: t, variant: v, hour: h, begin: time.Now()}
		if v.stored {
			s.storage = &storedState{simulation: s, kept: map[string][]byte{}}
		}
		var err error
		s.churn, err = newChurn(root, v.seed, s.begin)
		require.NoError(t, err)
		s.run()
	})
	return h
}

// simulation is a receiver on a machine, in a synctest bubble.
type simulation struct {
	variant
	*churn
	t        *testing.T
	hour     *hour
	begin    time.Time
	baseline map[string]float64
	storage  *storedState // nil without storage
	cut      atomic.Bool  // nothing that the receiver sends or stores arrives
}

func (s *simulation) run() {
	v := &s.variant
	s.hour.truth.End = s.begin.Add(v.length)
	s.hour.truth.Begin = s.hour.truth.End.Add(-time.Hour)
	kind := ""
	for _, i := range append(v.interruptions, interruption{after: v.length}) {
		down := s.begin.Add(i.after)
		s.live(kind, down, i.kind)
		if i.kind == "" {
			break
		}
		s.passUntil(down.Add(i.down))
		s.hour.truth.Restarts = append(s.hour.truth.Restarts, Restart{i.kind, down, down.Add(i.down)})
		kind = i.kind
	}
	s.hour.truth.Births = s.births
}

// live runs a receiver from now on until a moment.
func (s *simulation) live(after string, until time.Time, end string) {
	cfg := energyreceiver.NewFactory().CreateDefaultConfig().(*energyreceiver.Config)
	cfg.RootPath = s.machine.Host.Root()
	cfg.CollectionInterval = collectionInterval
	if after == changed {
		cfg.Attribution.StaticPower = map[power.Kind]energyreceiver.StaticPowerConfig{
			power.Package: {Model: energyreceiver.StaticFixed, Power: new(50.0)}, power.DRAM: {Model: energyreceiver.StaticFixed, Power: new(8.0)},
		}
	}
	if s.storage != nil {
		cfg.Storage = storageID.String()
	}
	require.NoError(s.t, cfg.Validate())
	set := receivertest.NewNopSettings(energyreceiver.NewFactory().Type())
	set.Logger = zaptest.NewLogger(s.t, zaptest.Level(zap.WarnLevel))
	next, err := consumer.NewMetrics(s.take)
	require.NoError(s.t, err)
	m := machine.Local()
	m.NewMetronome = windows.NewTicking // follows the clock of the bubble
	r, err := energyreceiver.NewFactoryOn(m).CreateMetrics(s.t.Context(), set, cfg, next)
	require.NoError(s.t, err)
	s.cut.Store(false)
	s.show(time.Now())
	if s.baseline == nil {
		s.baseline = s.meters()
	}
	require.NoError(s.t, r.Start(s.t.Context(), host{s.storage}))
	synctest.Wait() // for the first scan
	for at := time.Now().Add(cfg.InitialDelay); at.Before(until); at = at.Add(collectionInterval) {
		s.passUntil(at)
		synctest.Wait()
	}
	s.passUntil(until)
	if end == "" {
		s.cut.Store(true) // the hour is over, and the last collection is not of it
	}
	if end == crash {
		s.cut.Store(true)
	}
	require.NoError(s.t, r.Shutdown(s.t.Context()))
}

// passUntil lets time pass on the machine and then on the clock.
func (s *simulation) passUntil(at time.Time) {
	s.show(at)
	time.Sleep(time.Until(at))
}

func (s *simulation) show(at time.Time) {
	require.NoError(s.t, s.advance(at.Sub(s.machine.Host.Booted)))
}

// meters returns what the machine has counted, by zone kind, in joules.
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
	for _, rm := range md.ResourceMetrics().All() {
		rm.Resource().Attributes().PutStr("host.name", nodeName)
	}
	s.hour.truth.add(md)
	for kind, joules := range s.meters() {
		points := s.hour.truth.Meters[kind]
		if n := len(points); n == 0 || points[n-1].At.Before(now) {
			s.hour.truth.Meters[kind] = append(points, Point{now, joules - s.baseline[kind]})
		}
	}
	var marshaler pmetric.ProtoMarshaler
	raw, err := marshaler.MarshalMetrics(md)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(raw); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	s.hour.collections = append(s.hour.collections, collection{now, packed.Bytes()})
	return nil
}

// endAt moves the hour so that it ends at a time.
func (h *hour) endAt(end time.Time) {
	by := end.Sub(h.truth.End)
	h.by += by
	h.truth.shift(by)
	for i := range h.collections {
		h.collections[i].at = h.collections[i].at.Add(by)
	}
}

// metrics returns a collection as the receiver sent it, with the times of the hour.
func (h *hour) metrics(c collection) (pmetric.Metrics, error) {
	z, err := gzip.NewReader(bytes.NewReader(c.body))
	if err != nil {
		return pmetric.Metrics{}, err
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		return pmetric.Metrics{}, err
	}
	var unmarshaler pmetric.ProtoUnmarshaler
	md, err := unmarshaler.UnmarshalMetrics(raw)
	if err != nil {
		return md, err
	}
	return md, h.move(md)
}

// move adds what the hour was moved by to the times of a collection.
func (h *hour) move(md pmetric.Metrics) error {
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				var points pmetric.NumberDataPointSlice
				switch m.Type() {
				case pmetric.MetricTypeSum:
					points = m.Sum().DataPoints()
				case pmetric.MetricTypeGauge:
					points = m.Gauge().DataPoints()
				default:
					return fmt.Errorf("%s is a %v", m.Name(), m.Type())
				}
				for _, p := range points.All() {
					p.SetTimestamp(h.moved(p.Timestamp()))
					if p.StartTimestamp() != 0 {
						p.SetStartTimestamp(h.moved(p.StartTimestamp()))
					}
				}
			}
		}
	}
	return nil
}

func (h *hour) moved(t pcommon.Timestamp) pcommon.Timestamp {
	return pcommon.NewTimestampFromTime(t.AsTime().Add(h.by))
}

// treeDir returns a directory in memory, if there is one.
func treeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "hour-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// What was sent agrees with the machine's meters, as long as the receiver runs.
func TestTheHourIsWhatTheMachineUsed(t *testing.T) {
	h := simulateHour(t, variant{seed: 1, length: 2 * time.Minute})
	from, to := h.collections[0].at, h.truth.End
	sum := func(metric string) (joules float64) {
		for _, s := range h.truth.Match(metric, map[string]string{"energy.zone": "package"}) {
			joules += s.Increase(from, to)
		}
		return joules
	}
	assert.Greater(t, h.truth.Births, 900)
	assert.InDelta(t, h.truth.Meter("package", from, to), sum("system.energy"), 1e-5)
	active := sum("process.energy") + sum("system.unattributed.energy")
	for _, s := range h.truth.Match("system.energy", map[string]string{"energy.zone": "package", "energy.state": "active"}) {
		assert.InDelta(t, s.Increase(from, to), active, 1e-5)
	}
}

// Restarts with storage lose nothing of the node's energy, and without storage what was used meanwhile.
func TestRestartsWithStorageLoseNothing(t *testing.T) {
	for _, stored := range []bool{true, false} {
		h := simulateHour(t, variant{seed: 1, length: 4 * time.Minute, stored: stored, interruptions: []interruption{
			{clean, 63 * time.Second, 15 * time.Second}, {crash, 118 * time.Second, 15 * time.Second}, {changed, 174 * time.Second, 15 * time.Second},
		}})
		joules := 0.0
		for _, s := range h.truth.Match("system.energy", map[string]string{"energy.zone": "package"}) {
			joules += s.Increase(h.truth.Begin, h.truth.End)
		}
		counted := h.truth.Meter("package", h.truth.Begin, h.truth.End)
		if stored {
			assert.InDelta(t, counted, joules, 1e-4)
		} else {
			assert.InDelta(t, 195./240, joules/counted, 0.1, "three times 15 s, and up to a collection before two of them")
		}
	}
}

func TestAnHourIsTheSameEachTime(t *testing.T) {
	first := simulateHour(t, variant{seed: 2, length: time.Minute})
	second := simulateHour(t, variant{seed: 2, length: time.Minute})
	end := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	first.endAt(end)
	second.endAt(end)
	require.Len(t, first.truth.Series, len(second.truth.Series))
	for key, s := range first.truth.Series {
		require.Equal(t, s.Points, second.truth.Series[key].Points, "%v", s.Attributes)
	}
	delay := energyreceiver.NewFactory().CreateDefaultConfig().(*energyreceiver.Config).InitialDelay
	assert.Equal(t, end, second.collections[5].at.Add(collectionInterval-delay))
}
