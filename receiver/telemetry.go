// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// telemetry holds the receiver's internal telemetry, which metadata.yaml describes. A scan only counts; the collector
// reads the counts when it collects its own metrics. So a window costs one record.
type telemetry struct {
	builder  *metadata.TelemetryBuilder
	receiver attribute.KeyValue
	scan     []metric.RecordOption

	failedScans int64
	lostExits   int64
}

func newTelemetry(s *energyScraper) (telemetry, error) {
	builder, err := metadata.NewTelemetryBuilder(s.set.TelemetrySettings)
	t := telemetry{builder: builder, receiver: attribute.String("receiver", s.set.ID.String())}
	t.scan = []metric.RecordOption{t.with()}
	return t, err
}

// with returns the attributes of an instrument's point, the receiver's name among them.
func (t *telemetry) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(more, t.receiver)...))
}

// scanned records how long a scan took.
func (t *telemetry) scanned(took time.Duration) {
	t.builder.ReceiverEnergyScanDuration.Record(context.Background(), took.Seconds(), t.scan...)
}

// zoneTally counts what happened to a zone's counter or sensor.
type zoneTally struct {
	readErrors, wraps, resets int64
	sensor                    sensorTally
	// of is the zone that sensor counts, and before what zones of the same ID had counted.
	of     *power.Zone
	before sensorTally
}

// sensorTally is what a power sensor did not measure.
type sensorTally struct {
	gaps, rejected int64
	unmeasured     time.Duration
}

func (t sensorTally) plus(o sensorTally) sensorTally {
	return sensorTally{t.gaps + o.gaps, t.rejected + o.rejected, t.unmeasured + o.unmeasured}
}

// add counts the error and the event of a reading.
func (t *zoneTally) add(r *power.Reading) {
	switch {
	case r.Err != nil:
		t.readErrors++
	case r.Event == power.Wrapped:
		t.wraps++
	case r.Event == power.Rebased:
		t.resets++
	}
	if t.of != r.Zone {
		t.of, t.before = r.Zone, t.sensorTotal()
	}
	t.sensor = sensorTally{r.Gaps, r.Rejected, r.Unmeasured}
}

// sensorTotal returns what the sensors of all zones of the ID did not measure.
func (t *zoneTally) sensorTotal() sensorTally { return t.before.plus(t.sensor) }

// zoneTallies holds the tally of each zone that was ever read, by zone ID.
type zoneTallies map[string]*zoneTally

// add counts the errors and events of readings.
func (z zoneTallies) add(readings []power.Reading) {
	for i := range readings {
		r := &readings[i]
		if r.Err == nil && r.Event == power.NoEvent && r.Gaps == 0 && r.Rejected == 0 && r.Unmeasured == 0 {
			continue
		}
		z.of(r.Zone.ID).add(r)
	}
}

// of returns the tally of a zone.
func (z zoneTallies) of(id string) *zoneTally {
	tally := z[id]
	if tally == nil {
		tally = new(zoneTally)
		z[id] = tally
	}
	return tally
}

// miss counts the time that a zone's sensor did not measure because the receiver was down.
func (z zoneTallies) miss(r *power.Resumption) {
	if errors.Is(r.Err, power.ErrNotCounted) {
		tally := z.of(r.Zone.ID)
		tally.before = tally.before.plus(sensorTally{gaps: 1, unmeasured: r.Elapsed})
	}
}

// observeSelf registers the callbacks of the internal telemetry. They end when the builder shuts down.
func (s *energyScraper) observeSelf() error {
	t, b := &s.telemetry, s.telemetry.builder
	entities := map[identity.Entity]metric.MeasurementOption{}
	for entity := range identity.NumEntities {
		entities[entity] = t.with(attribute.String("series.entity", entity.String()))
	}
	kinds := map[power.Kind]metric.MeasurementOption{}
	for _, kind := range power.Kinds {
		kinds[kind] = t.with(attribute.String("energy.zone", string(kind)))
	}
	number := func(value func() int64) metric.Int64Callback {
		option := t.with()
		return locked(s, func(o metric.Int64Observer) { o.Observe(value(), option) })
	}
	byZone := func(value func(*zoneTally) int64) metric.Int64Callback {
		return locked(s, func(o metric.Int64Observer) {
			for id, tally := range s.meters.tallies {
				o.Observe(value(tally), t.with(attribute.String("hw.id", id)))
			}
		})
	}
	unmeasured := locked(s, func(o metric.Float64Observer) {
		for id, tally := range s.meters.tallies {
			o.Observe(tally.sensorTotal().unmeasured.Seconds(), t.with(attribute.String("hw.id", id)))
		}
	})
	return errors.Join(
		b.RegisterReceiverEnergyProcessesCallback(number(func() int64 { return int64(len(s.cpu.Table().Processes)) })),
		b.RegisterReceiverEnergyFailedScansCallback(number(func() int64 { return t.failedScans })),
		b.RegisterReceiverEnergyLostExitsCallback(number(func() int64 { return t.lostExits })),
		b.RegisterReceiverEnergyWindowsCallback(number(func() int64 { windows, _ := s.sampler.counts(); return windows })),
		b.RegisterReceiverEnergySkippedWindowsCallback(number(func() int64 { _, skipped := s.sampler.counts(); return skipped })),
		b.RegisterReceiverEnergyDroppedSeriesCallback(number(s.droppedSeries)),
		b.RegisterReceiverEnergyZoneReadErrorsCallback(byZone(func(z *zoneTally) int64 { return z.readErrors })),
		b.RegisterReceiverEnergyZoneWrapsCallback(byZone(func(z *zoneTally) int64 { return z.wraps })),
		b.RegisterReceiverEnergyZoneResetsCallback(byZone(func(z *zoneTally) int64 { return z.resets })),
		b.RegisterReceiverEnergyZoneFactorCallback(locked(s, func(o metric.Float64Observer) {
			for i := range s.meters.readings {
				r := &s.meters.readings[i]
				o.Observe(r.Correction.Scale(), t.with(attribute.String("hw.id", r.Zone.ID)))
			}
		})),
		b.RegisterReceiverEnergyZoneGapsCallback(byZone(func(z *zoneTally) int64 { return z.sensorTotal().gaps })),
		b.RegisterReceiverEnergyZoneRejectedReadingsCallback(byZone(func(z *zoneTally) int64 { return z.sensorTotal().rejected })),
		b.RegisterReceiverEnergyZoneUnmeasuredTimeCallback(unmeasured),
		b.RegisterReceiverEnergyOtherDeficitCallback(locked(s, func(o metric.Float64Observer) {
			if s.meters.set.Remainder != nil {
				o.Observe(s.meters.set.Remainder.Deficit().Joules(), t.with())
			}
		})),
		b.RegisterReceiverEnergyModelExpectedErrorCallback(locked(s, func(o metric.Float64Observer) {
			s.meters.modelErrors(func(kind power.Kind, expected float64) { o.Observe(expected, kinds[kind]) })
		})),
		b.RegisterReceiverEnergyStaticPowerStateCallback(locked(s, func(o metric.Int64Observer) {
			for kind, state := range s.staticPowerStates() {
				o.Observe(1, t.with(attribute.String("energy.zone", string(kind.Zone)), attribute.String("energy.method", string(kind.Method)),
					attribute.String("static_power.state", state.String())))
			}
		})),
		b.RegisterReceiverEnergyCPUTimeSourceCallback(locked(s, func(o metric.Int64Observer) {
			kind, _, _ := strings.Cut(s.cpu.Source().Name(), " ") // "bpf (task scan)"
			o.Observe(1, t.with(attribute.String("cpu_time.source", kind)))
		})),
		b.RegisterReceiverEnergySeriesCallback(locked(s, func(o metric.Int64Observer) {
			series := s.countSeries()
			for entity, option := range entities {
				o.Observe(series[entity], option)
			}
		})),
		b.RegisterReceiverEnergyWaitingEnergyCallback(locked(s, func(o metric.Float64Observer) {
			for kind, energy := range s.pendingEnergy() {
				o.Observe(energy.Joules(), kinds[kind])
			}
		})),
	)
}

// telemetryWait is the maximum time for which a callback waits for a window or a collection to end.
const telemetryWait = 250 * time.Millisecond

// locked returns a callback that calls observe while no window is being attributed. While a collection hangs it
// observes nothing, so that the collector's own metrics stay available.
func locked[O any](s *energyScraper, observe func(O)) func(context.Context, O) error {
	return func(_ context.Context, o O) error {
		if s.mu.LockWithin(telemetryWait) {
			defer s.mu.Unlock()
			observe(o)
		}
		return nil
	}
}

// pendingEnergy returns the energy of each zone kind that was read and is not attributed yet.
func (s *energyScraper) pendingEnergy() map[power.Kind]units.Energy {
	pending := map[power.Kind]units.Energy{}
	if s.ledger != nil {
		l := s.ledger.Engine.Ledger()
		for i, kind := range s.ledger.kinds {
			if l.Kinds[i].Present || kind.Zone != power.GPU && slices.Contains(s.cfg.Zones, kind.Zone) {
				pending[kind.Zone] += l.Pending(i)
			}
		}
	}
	return pending
}

// staticPowerStates returns the state of the static power model of each kind that has one.
func (s *energyScraper) staticPowerStates() map[power.Class]attribution.ModelState {
	states := map[power.Class]attribution.ModelState{}
	if s.ledger == nil {
		return states
	}
	l := s.ledger.Engine.Ledger()
	for i, kind := range s.ledger.kinds {
		if k := &l.Kinds[i]; k.Present && !k.Ended && k.Model != attribution.NoModel {
			states[kind] = k.Model
		}
	}
	return states
}

func (s *energyScraper) droppedSeries() int64 {
	if s.ledger == nil {
		return 0
	}
	return int64(s.ledger.Engine.Ledger().Dropped)
}

func (s *energyScraper) countSeries() map[identity.Entity]int64 {
	series := map[identity.Entity]int64{}
	if s.ledger == nil {
		return series
	}
	for a := range s.ledger.Engine.Ledger().Accounts {
		if !a.Other {
			series[a.Entity]++
		}
	}
	return series
}
