// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
	"github.com/energyreceiver/energyreceiver/receiver/internal/meters"
)

// telemetry holds the receiver's internal telemetry, which metadata.yaml describes. Most values are
// only counted, and the collector reads them when it collects its own metrics. Each window only
// records its duration.
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

// with returns the attributes of an instrument's point, including the receiver's name.
func (t *telemetry) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(more, t.receiver)...))
}

// scanned records how long a scan took.
func (t *telemetry) scanned(took time.Duration) {
	t.builder.ReceiverEnergyScanDuration.Record(context.Background(), took.Seconds(), t.scan...)
}

// observeSelf registers the callbacks of the internal telemetry. They end when the builder shuts
// down.
func (s *energyScraper) observeSelf() error {
	return errors.Join(s.observeScans(), s.observeZones(), s.observeKinds(), s.observeSeries())
}

// observeScans registers the callbacks of scans, windows and conditions.
func (s *energyScraper) observeScans() error {
	t, b := &s.telemetry, s.telemetry.builder
	number := func(value func() int64) metric.Int64Callback {
		option := t.with()
		return locked(s, func(o metric.Int64Observer) { o.Observe(value(), option) })
	}
	return errors.Join(
		b.RegisterReceiverEnergyConditionCallback(locked(s, func(o metric.Int64Observer) {
			for _, name := range s.conditions.Active() {
				o.Observe(1, t.with(attribute.String("condition", name)))
			}
		})),
		b.RegisterReceiverEnergyCPUTimeSourceCallback(locked(s, func(o metric.Int64Observer) {
			kind, _, _ := strings.Cut(s.node.CPU.Traits().Name, " ") // "bpf (task scan)"
			o.Observe(1, t.with(attribute.String("cpu_time.source", kind)))
		})),
		b.RegisterReceiverEnergyProcessesCallback(number(func() int64 { return int64(s.node.CPU.Table().Len()) })),
		b.RegisterReceiverEnergyFailedScansCallback(number(func() int64 { return t.failedScans })),
		b.RegisterReceiverEnergyLostExitsCallback(number(func() int64 { return t.lostExits })),
		b.RegisterReceiverEnergyWindowsCallback(number(func() int64 { windows, _ := s.windows.Sampler.Counts(); return windows })),
		b.RegisterReceiverEnergyMissedWindowsCallback(number(func() int64 { _, missed := s.windows.Sampler.Counts(); return missed })),
		b.RegisterReceiverEnergyDroppedSeriesCallback(number(s.attributor.DroppedSeries)),
	)
}

// observeZones registers the callbacks with a value for each zone.
func (s *energyScraper) observeZones() error {
	t, b := &s.telemetry, s.telemetry.builder
	count := func(value func(*meters.ZoneTally) int64) metric.Int64Callback {
		return locked(s, func(o metric.Int64Observer) {
			for id, tally := range s.meters.Tallies {
				o.Observe(value(tally), t.with(attribute.String("hw.id", id)))
			}
		})
	}
	return errors.Join(
		b.RegisterReceiverEnergyZoneReadErrorsCallback(count(func(z *meters.ZoneTally) int64 { return z.ReadErrors })),
		b.RegisterReceiverEnergyZoneWrapsCallback(count(func(z *meters.ZoneTally) int64 { return z.Wraps })),
		b.RegisterReceiverEnergyZoneResetsCallback(count(func(z *meters.ZoneTally) int64 { return z.Resets })),
		b.RegisterReceiverEnergyZoneGapsCallback(count(func(z *meters.ZoneTally) int64 { return z.SensorTotal().Gaps })),
		b.RegisterReceiverEnergyZoneRejectedReadingsCallback(count(func(z *meters.ZoneTally) int64 { return z.SensorTotal().Rejected })),
		b.RegisterReceiverEnergyZoneUnmeasuredTimeCallback(locked(s, func(o metric.Float64Observer) {
			for id, tally := range s.meters.Tallies {
				o.Observe(tally.SensorTotal().Unmeasured.Seconds(), t.with(attribute.String("hw.id", id)))
			}
		})),
		b.RegisterReceiverEnergyZoneFactorCallback(locked(s, func(o metric.Float64Observer) {
			for i := range s.meters.Readings {
				r := &s.meters.Readings[i]
				o.Observe(r.Correction.Scale(), t.with(attribute.String("hw.id", r.Zone.ID)))
			}
		})),
		b.RegisterReceiverEnergyOtherDeficitCallback(locked(s, func(o metric.Float64Observer) {
			if s.meters.Set.Remainder != nil {
				o.Observe(s.meters.Set.Remainder.Deficit().Joules(), t.with())
			}
		})),
	)
}

// observeKinds registers the callbacks with a value for each zone kind.
func (s *energyScraper) observeKinds() error {
	t, b := &s.telemetry, s.telemetry.builder
	kinds := map[power.Kind]metric.MeasurementOption{}
	for _, kind := range power.Kinds {
		kinds[kind] = t.with(attribute.String("energy.zone", string(kind)))
	}
	return errors.Join(
		b.RegisterReceiverEnergyModelExpectedErrorCallback(locked(s, func(o metric.Float64Observer) {
			s.meters.ModelErrors(func(kind power.Kind, expected float64) { o.Observe(expected, kinds[kind]) })
		})),
		b.RegisterReceiverEnergyStaticPowerStateCallback(locked(s, func(o metric.Int64Observer) {
			for kind, state := range s.attributor.StaticPowerStates() {
				o.Observe(1, t.with(attribute.String("energy.zone", string(kind.Zone)), attribute.String("energy.method", string(kind.Method)),
					attribute.String("static_power.state", state.String())))
			}
		})),
		b.RegisterReceiverEnergyDeferredEnergyCallback(locked(s, func(o metric.Float64Observer) {
			for kind, energy := range s.attributor.DeferredEnergy() {
				o.Observe(energy.Joules(), kinds[kind])
			}
		})),
	)
}

// observeSeries registers the callback with the number of series of each entity.
func (s *energyScraper) observeSeries() error {
	entities := map[identity.Entity]metric.MeasurementOption{}
	for entity := range identity.NumEntities {
		entities[entity] = s.telemetry.with(attribute.String("series.entity", entity.String()))
	}
	return s.telemetry.builder.RegisterReceiverEnergySeriesCallback(locked(s, func(o metric.Int64Observer) {
		series := s.attributor.CountSeries()
		for entity, option := range entities {
			o.Observe(series[entity], option)
		}
	}))
}

// telemetryWait limits how long a callback waits for the end of a window or a collection.
const telemetryWait = 250 * time.Millisecond

// locked returns a callback that calls observe while no window is being attributed. While a
// collection hangs, the callback reports no values, so that the collector's own metrics stay
// available.
func locked[O any](s *energyScraper, observe func(O)) func(context.Context, O) error {
	return func(_ context.Context, o O) error {
		if s.mu.LockWithin(telemetryWait) {
			defer s.mu.Unlock()
			observe(o)
		}
		return nil
	}
}
