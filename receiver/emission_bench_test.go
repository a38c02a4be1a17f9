// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// BenchmarkEmission measures the emission of processes in one zone: built directly, as
// internal/emit does, as a copy or from the protobuf of an earlier emission, and with the generated
// MetricsBuilder. new has all series begin, with their zero points. renew is the new values alone,
// in an earlier emission that is not shared. parts is the division of the result into requests of
// bounded size.
func BenchmarkEmission(b *testing.B) {
	cfg := simpleConfig()
	for _, n := range []int{500, 10_000} {
		engine, observe := manySeries(n)
		e := emit.New(emit.Config{
			MetricsBuilderConfig: cfg.MetricsBuilderConfig, Kinds: []emit.Column{{Class: power.Class{Zone: power.Package, Method: power.Measured}}},
		})
		zones := onePackage()
		withZeros := emit.New(emit.Config{
			MetricsBuilderConfig: cfg.MetricsBuilderConfig, Kinds: []emit.Column{{Class: power.Class{Zone: power.Package, Method: power.Measured}}}, ZeroPoints: true,
		})
		b.Run(fmt.Sprint(n, "/new"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				withZeros.Emit(engine.Ledger(), zones, nil, time.Unix(11, 0))
			}
		})
		engine.Emitted()
		engine.Acknowledged()
		observe() // so that there is power
		b.Run(fmt.Sprint(n, "/settled"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				withZeros.Emit(engine.Ledger(), zones, nil, time.Unix(11, 0))
			}
		})
		b.Run(fmt.Sprint(n, "/direct"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				e.Emit(engine.Ledger(), zones, nil, time.Unix(11, 0))
			}
		})
		b.Run(fmt.Sprint(n, "/copy"), func(b *testing.B) {
			before := e.Emit(engine.Ledger(), zones, nil, time.Unix(11, 0))
			b.ReportAllocs()
			for b.Loop() {
				md := pmetric.NewMetrics()
				before.CopyTo(md)
				renew(md, time.Unix(11, 0))
			}
		})
		b.Run(fmt.Sprint(n, "/unmarshal"), func(b *testing.B) {
			before, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(e.Emit(engine.Ledger(), zones, nil, time.Unix(11, 0)))
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				md, err := (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(before)
				require.NoError(b, err)
				renew(md, time.Unix(11, 0))
			}
		})
		b.Run(fmt.Sprint(n, "/renew"), func(b *testing.B) {
			md := e.Emit(engine.Ledger(), zones, nil, time.Unix(11, 0))
			b.ReportAllocs()
			for b.Loop() {
				renew(md, time.Unix(11, 0))
			}
		})
		b.Run(fmt.Sprint(n, "/parts"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				md := e.Emit(engine.Ledger(), zones, nil, time.Unix(11, 0))
				b.StartTimer()
				for range parts(md) {
				}
			}
		})
		b.Run(fmt.Sprint(n, "/MetricsBuilder"), func(b *testing.B) {
			mb := metadata.NewMetricsBuilder(cfg.MetricsBuilderConfig, receivertest.NewNopSettings(metadata.Type))
			rb := mb.NewResourceBuilder()
			now := pcommon.NewTimestampFromTime(time.Unix(11, 0))
			b.ReportAllocs()
			for b.Loop() {
				for a := range engine.Ledger().Accounts {
					rb.SetProcessPid(int64(a.Owner.Process.PID))
					rb.SetProcessCreationTime(a.Owner.Process.Created)
					rb.SetProcessExecutableName(a.Owner.Process.Executable)
					rb.SetProcessExecutablePath(a.Owner.Process.Path)
					mb.RecordProcessEnergyDataPoint(now, a.Amounts(0).Energy.Joules(), metadata.AttributeEnergyMethodMeasured, metadata.AttributeEnergyStateActive, string(power.Package), false)
					mb.RecordProcessPowerDataPoint(now, units.Watts(a.Amounts(0).Recent, time.Second), metadata.AttributeEnergyMethodMeasured, metadata.AttributeEnergyStateActive, string(power.Package), false)
					mb.EmitForResource(metadata.WithResource(rb.Emit()))
				}
				mb.Emit()
			}
		})
	}
}

// manySeries returns an engine with the energy of n processes in one zone. observe observes an
// interval in which all use the same.
func manySeries(n int) (engine *attribution.Engine, observe func()) {
	engine = attribution.New(attribution.Config{}, time.Unix(1, 0))
	iv := attribution.Interval{
		At: time.Unix(11, 0), Elapsed: 10 * time.Second,
		Domains: []attribution.Usage{{Busy: 1, Total: 2}}, Zones: []attribution.ZoneReading{{OK: true}},
	}
	observe = func() {
		engine.Observe(&iv)
		iv.Zones[0].Total += 100 * units.Joule
	}
	observe()
	for i := range n {
		owner := identity.Owner{Process: identity.Process{
			PID: int32(i + 1), Created: "2026-01-02T03:04:05.00Z", Executable: "app", Path: "/usr/bin/app",
		}}
		iv.Domains[0].Claims = append(iv.Domains[0].Claims, attribution.Claim{Claimant: engine.Open(owner, time.Unix(1, 0)), CPU: 1})
	}
	observe()
	return engine, observe
}

func onePackage() []power.Zone {
	return []power.Zone{{ID: "intel-rapl:0", Name: "package-0", Kind: power.Package, Method: power.Measured}}
}

// A process with energy and power of one zone, and four attributes of its own, is 27 objects in
// pdata. The interface of pdata makes each by itself, and what ConsumeMetrics was given must not be
// used again, so no emission takes fewer.
func TestASeriesOfAProcessIs27Allocations(t *testing.T) {
	e := emit.New(emit.Config{
		MetricsBuilderConfig: simpleConfig().MetricsBuilderConfig,
		Kinds:                []emit.Column{{Class: power.Class{Zone: power.Package, Method: power.Measured}}},
	})
	allocations := func(n int) float64 {
		engine, _ := manySeries(n)
		return testing.AllocsPerRun(10, func() { e.Emit(engine.Ledger(), onePackage(), nil, time.Unix(11, 0)) })
	}
	assert.InDelta(t, 27, (allocations(600)-allocations(100))/500, 0.01)
}

// renew gives each point of an earlier emission a new time and value.
func renew(md pmetric.Metrics, at time.Time) {
	now := pcommon.NewTimestampFromTime(at)
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			points := pmetric.NumberDataPointSlice{}
			if m.Type() == pmetric.MetricTypeSum {
				points = m.Sum().DataPoints()
			} else {
				points = m.Gauge().DataPoints()
			}
			for _, p := range points.All() {
				p.SetTimestamp(now)
				p.SetDoubleValue(p.DoubleValue() + 1)
			}
		}
	}
}
