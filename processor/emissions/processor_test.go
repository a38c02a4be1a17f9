// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/account"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/metadata"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal/provider"
)

// testProcessor is a processor whose clock and signals a test sets.
type testProcessor struct {
	*emissionsProcessor
	t         *testing.T
	clock     time.Time
	intensity fakeSignal
	logs      *observer.ObservedLogs
	status    []componentstatus.Status
	telemetry *componenttest.Telemetry
}

// fakeSignal is a rate that a test sets.
type fakeSignal struct {
	mean    signal.Mean
	unknown bool
	err     error
}

// Mean implements signal.Signal.
func (f *fakeSignal) Mean(_, _ time.Time) (signal.Mean, bool) { return f.mean, !f.unknown }

// GetExtensions implements component.Host.
func (*testProcessor) GetExtensions() map[component.ID]component.Component { return nil }

// Report implements componentstatus.Reporter.
func (p *testProcessor) Report(e *componentstatus.Event) { p.status = append(p.status, e.Status()) }

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// newTestProcessor returns a processor with an intensity of 360 g/kWh, 100 µg/J.
func newTestProcessor(t *testing.T, edit ...func(*Config)) *testProcessor {
	cfg := createDefaultConfig().(*Config)
	for _, f := range edit {
		f(cfg)
	}
	p := &testProcessor{t: t, clock: began, telemetry: componenttest.NewTelemetry()}
	set := processor.Settings{ID: component.NewID(metadata.Type), TelemetrySettings: p.telemetry.NewTelemetrySettings()}
	var core zapcore.Core
	core, p.logs = observer.New(zap.DebugLevel)
	set.Logger = zap.New(core)
	var err error
	p.emissionsProcessor, err = newEmissionsProcessor(cfg, set)
	require.NoError(t, err)
	p.intensity.mean.Rate = 360e6
	p.now = func() time.Time { return p.clock }
	p.emissionsProcessor.intensity = &source{
		Signal: &p.intensity, provider: "fake", region: "XX", accounting: location, intensityType: provider.Marginal, plausibility: plausibility{logger: set.Logger}, err: func() error { return p.intensity.err },
	}
	require.NoError(t, p.start(context.Background(), p))
	t.Cleanup(func() {
		require.NoError(t, p.shutdown(context.Background()))
		require.NoError(t, p.telemetry.Shutdown(context.Background()))
	})
	return p
}

// energy returns metrics with one counter of energy, in joules.
func energy(at time.Time, joules float64, edit ...func(pmetric.Metric, pmetric.NumberDataPoint)) pmetric.Metrics {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("process.energy")
	m.SetUnit("J")
	m.SetEmptySum().SetIsMonotonic(true)
	m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	p := m.Sum().DataPoints().AppendEmpty()
	p.SetStartTimestamp(pcommon.NewTimestampFromTime(began))
	p.SetTimestamp(pcommon.NewTimestampFromTime(at))
	p.SetDoubleValue(joules)
	p.Attributes().PutStr("energy.zone", "package")
	for _, f := range edit {
		f(m, p)
	}
	return md
}

// pass processes metrics ten seconds later, and returns the points of all metrics by name.
func (p *testProcessor) pass(md pmetric.Metrics) map[string][]pmetric.NumberDataPoint {
	p.t.Helper()
	out, err := p.process(context.Background(), md)
	require.NoError(p.t, err)
	points := map[string][]pmetric.NumberDataPoint{}
	for _, rm := range out.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				switch m.Type() {
				case pmetric.MetricTypeSum:
					for _, dp := range m.Sum().DataPoints().All() {
						points[m.Name()] = append(points[m.Name()], dp)
					}
				case pmetric.MetricTypeGauge:
					for _, dp := range m.Gauge().DataPoints().All() {
						points[m.Name()] = append(points[m.Name()], dp)
					}
				default:
				}
			}
		}
	}
	return points
}

// seconds returns a time some seconds after the processor began.
func seconds(n int) time.Time { return began.Add(time.Duration(n) * time.Second) }

// skipped returns how many points were skipped, by reason.
func (p *testProcessor) skipped() map[string]int64 {
	p.t.Helper()
	skipped := map[string]int64{}
	got, err := p.telemetry.GetMetric("otelcol_processor_emissions_skipped_points")
	if err != nil {
		return skipped
	}
	for _, dp := range sumPoints(got) {
		why, _ := dp.Attributes.Value("skip.reason")
		skipped[why.AsString()] = dp.Value
	}
	return skipped
}

func TestEmissionsAreNextToTheEnergy(t *testing.T) {
	p := newTestProcessor(t, func(c *Config) { c.PUE = 1.5 })
	md := energy(seconds(10), 10_000)
	got := p.pass(md)
	metrics := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
	require.Equal(t, 2, metrics.Len())
	emissions := metrics.At(1)
	assert.Equal(t, []string{"process.emissions", "g"}, []string{emissions.Name(), emissions.Unit()})
	assert.True(t, emissions.Sum().IsMonotonic())
	assert.Equal(t, pmetric.AggregationTemporalityCumulative, emissions.Sum().AggregationTemporality())
	assert.NotEmpty(t, emissions.Description())
	e := got["process.emissions"][0]
	assert.InDelta(t, 1.5, e.DoubleValue(), 0)
	assert.Equal(t, map[string]any{"energy.zone": "package", "emissions.accounting": "location", "carbon_intensity.type": "marginal"}, e.Attributes().AsRaw())
	assert.Equal(t, []time.Time{began, seconds(10)}, []time.Time{e.StartTimestamp().AsTime(), e.Timestamp().AsTime()})
	assert.InDelta(t, 10_000.0, got["process.energy"][0].DoubleValue(), 0, "the energy is as it was")
}

func TestNamesOfMetrics(t *testing.T) {
	p := newTestProcessor(t)
	for name, want := range map[string]string{
		"hw.host.energy": "hw.host.emissions", "energy": "energy.emissions", "solar_joules": "solar_joules.emissions",
	} {
		got := p.pass(energy(seconds(10), 1, func(m pmetric.Metric, _ pmetric.NumberDataPoint) { m.SetName(name) }))
		assert.Contains(t, got, want)
	}
}

func TestTheGaugeOfTheIntensityHasItsOwnResource(t *testing.T) {
	p := newTestProcessor(t, func(c *Config) { c.PUE = 1.5 })
	md := energy(seconds(10), 1)
	got := p.pass(md)
	require.Equal(t, 2, md.ResourceMetrics().Len())
	assert.Zero(t, md.ResourceMetrics().At(1).Resource().Attributes().Len())
	scope := md.ResourceMetrics().At(1).ScopeMetrics().At(0).Scope()
	assert.Equal(t, metadata.ScopeName, scope.Name())
	intensity := got["electricity.carbon_intensity"][0]
	assert.InDelta(t, 360.0, intensity.DoubleValue(), 0)
	assert.Equal(t, seconds(10), intensity.Timestamp().AsTime())
	assert.Equal(t, map[string]any{
		"emissions.accounting": "location", "carbon_intensity.type": "marginal", "carbon_intensity.provider.name": "fake", "carbon_intensity.region": "XX",
		"carbon_intensity.estimated": false, "carbon_intensity.stale": false,
	}, intensity.Attributes().AsRaw())

	assert.NotContains(t, p.pass(energy(seconds(10), 1)), "electricity.carbon_intensity", "once for each time")
	p.intensity.mean.Stale = true
	got = p.pass(energy(seconds(20), 1))
	require.Len(t, got["electricity.carbon_intensity"], 2)
	assert.True(t, got["electricity.carbon_intensity"][0].Flags().NoRecordedValue(), "the series that was not stale has ended")
	assert.InDelta(t, 360.0, got["electricity.carbon_intensity"][1].DoubleValue(), 0)
	p.intensity.unknown = true
	got = p.pass(energy(seconds(30), 1))
	require.Len(t, got["electricity.carbon_intensity"], 1)
	assert.True(t, got["electricity.carbon_intensity"][0].Flags().NoRecordedValue())
	assert.NotContains(t, p.pass(energy(seconds(40), 1)), "electricity.carbon_intensity")
}

func TestWhatMetadataSaysOfGauges(t *testing.T) {
	p := newTestProcessor(t, withEmbodied)
	md := energy(seconds(10), 1, func(m pmetric.Metric, _ pmetric.NumberDataPoint) { m.SetName("system.energy") })
	p.pass(md)
	described := documented(t)
	found := 0
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if want, ok := described[m.Name()]; ok {
				found++
				assert.Equal(t, want, [2]string{m.Description(), m.Unit()}, m.Name())
			}
		}
	}
	assert.Equal(t, 2, found)
	assert.Len(t, described, 2)
}

func TestOtherMetricsPassUnchanged(t *testing.T) {
	p := newTestProcessor(t)
	for name, edit := range map[string]func(pmetric.Metric, pmetric.NumberDataPoint){
		"another unit":    func(m pmetric.Metric, _ pmetric.NumberDataPoint) { m.SetUnit("W") },
		"a gauge":         func(m pmetric.Metric, _ pmetric.NumberDataPoint) { m.SetEmptyGauge().DataPoints().AppendEmpty() },
		"a histogram":     func(m pmetric.Metric, _ pmetric.NumberDataPoint) { m.SetEmptyHistogram().DataPoints().AppendEmpty() },
		"not monotonic":   func(m pmetric.Metric, _ pmetric.NumberDataPoint) { m.Sum().SetIsMonotonic(false) },
		"no points":       func(m pmetric.Metric, _ pmetric.NumberDataPoint) { m.SetEmptySum().SetIsMonotonic(true) },
		"no temporality":  func(m pmetric.Metric, _ pmetric.NumberDataPoint) { m.Sum().SetAggregationTemporality(0) },
		"a delta":         func(m pmetric.Metric, _ pmetric.NumberDataPoint) { m.Sum().SetAggregationTemporality(1) },
		"not a number":    func(_ pmetric.Metric, p pmetric.NumberDataPoint) { p.SetDoubleValue(math.NaN()) },
		"infinite":        func(_ pmetric.Metric, p pmetric.NumberDataPoint) { p.SetDoubleValue(math.Inf(1)) },
		"negative":        func(_ pmetric.Metric, p pmetric.NumberDataPoint) { p.SetDoubleValue(-1) },
		"a negative int":  func(_ pmetric.Metric, p pmetric.NumberDataPoint) { p.SetIntValue(-1) },
		"too much":        func(_ pmetric.Metric, p pmetric.NumberDataPoint) { p.SetDoubleValue(1e13) },
		"too much of int": func(_ pmetric.Metric, p pmetric.NumberDataPoint) { p.SetIntValue(math.MaxInt64) },
		"no time":         func(_ pmetric.Metric, p pmetric.NumberDataPoint) { p.SetTimestamp(0) },
		"a time too late": func(_ pmetric.Metric, p pmetric.NumberDataPoint) { p.SetTimestamp(math.MaxUint64) },
	} {
		md, want := energy(seconds(10), 1, edit), energy(seconds(10), 1, edit)
		p.pass(md)
		got, err := new(pmetric.ProtoMarshaler).MarshalMetrics(md)
		require.NoError(t, err)
		unchanged, err := new(pmetric.ProtoMarshaler).MarshalMetrics(want)
		require.NoError(t, err)
		assert.Equal(t, unchanged, got, name)
	}
	assert.Equal(t, map[string]int64{"temporality": 1, "value": 8}, p.skipped())
	assert.Equal(t, 1, p.logs.FilterMessage("Emissions degraded").Len(), "the delta")
}

func TestIntegersAndExemplars(t *testing.T) {
	p := newTestProcessor(t)
	md := energy(seconds(10), 0, func(_ pmetric.Metric, p pmetric.NumberDataPoint) {
		p.SetIntValue(10_000)
		p.Exemplars().AppendEmpty().SetIntValue(3)
	})
	got := p.pass(md)
	assert.InDelta(t, 1.0, got["process.emissions"][0].DoubleValue(), 0)
	assert.Equal(t, 1, got["process.energy"][0].Exemplars().Len())
	assert.Zero(t, got["process.emissions"][0].Exemplars().Len())
}

func TestAPointWithoutAValueEndsEmissionsToo(t *testing.T) {
	p := newTestProcessor(t)
	end := func(_ pmetric.Metric, p pmetric.NumberDataPoint) {
		p.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
	}
	assert.NotContains(t, p.pass(energy(seconds(5), 0, end)), "process.emissions", "there was none")
	p.pass(energy(seconds(10), 10_000))
	got := p.pass(energy(seconds(20), 0, end))
	require.Len(t, got["process.emissions"], 1)
	assert.True(t, got["process.emissions"][0].Flags().NoRecordedValue())
	got = p.pass(energy(seconds(30), 20_000))
	assert.InDelta(t, 2.0, got["process.emissions"][0].DoubleValue(), 0)
}

func TestABatchThatComesAgainIsAnsweredTheSame(t *testing.T) {
	p := newTestProcessor(t)
	p.pass(energy(seconds(10), 10_000))
	first := p.pass(energy(seconds(20), 30_000))["process.emissions"][0]
	again := p.pass(energy(seconds(20), 30_000))["process.emissions"][0]
	assert.InDelta(t, first.DoubleValue(), again.DoubleValue(), 0)
	assert.Equal(t, first.StartTimestamp(), again.StartTimestamp())
	assert.NotContains(t, p.pass(energy(seconds(15), 20_000)), "process.emissions", "an older one")
	assert.Equal(t, map[string]int64{"out_of_order": 1}, p.skipped())
	assert.InDelta(t, 4.0, p.pass(energy(seconds(30), 40_000))["process.emissions"][0].DoubleValue(), 0)
}

func TestAttributesOfASeriesMayComeInAnyOrder(t *testing.T) {
	p := newTestProcessor(t)
	order := func(keys ...string) func(pmetric.Metric, pmetric.NumberDataPoint) {
		return func(_ pmetric.Metric, p pmetric.NumberDataPoint) {
			for _, k := range keys {
				p.Attributes().PutStr(k, k)
			}
		}
	}
	p.pass(energy(seconds(10), 10_000, order("a", "b")))
	assert.InDelta(t, 2.0, p.pass(energy(seconds(20), 20_000, order("b", "a")))["process.emissions"][0].DoubleValue(), 0)
	assert.Equal(t, 1, p.accounts.Len())
	p.pass(energy(seconds(20), 20_000, order("a", "c")))
	assert.Equal(t, 2, p.accounts.Len())
}

func TestSeriesDifferByResourceScopeNameAndAttributes(t *testing.T) {
	p := newTestProcessor(t)
	for i, edit := range []func(pmetric.ResourceMetrics){
		func(pmetric.ResourceMetrics) {},
		func(rm pmetric.ResourceMetrics) { rm.Resource().Attributes().PutStr("host.name", "a") },
		func(rm pmetric.ResourceMetrics) { rm.Resource().Attributes().PutInt("host.name", 1) },
		func(rm pmetric.ResourceMetrics) { rm.ScopeMetrics().At(0).Scope().SetName("a") },
		func(rm pmetric.ResourceMetrics) { rm.ScopeMetrics().At(0).Scope().SetVersion("a") },
		func(rm pmetric.ResourceMetrics) { rm.ScopeMetrics().At(0).Scope().Attributes().PutStr("a", "") },
		func(rm pmetric.ResourceMetrics) { rm.ScopeMetrics().At(0).Metrics().At(0).SetName("a") },
		func(rm pmetric.ResourceMetrics) {
			rm.ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints().At(0).Attributes().PutStr("a", "")
		},
	} {
		md := energy(seconds(10), 10_000)
		edit(md.ResourceMetrics().At(0))
		p.pass(md)
		assert.Equal(t, i+1, p.accounts.Len())
	}
}

func TestWhatIsNotKnownIsSaidOnceAndCounted(t *testing.T) {
	p := newTestProcessor(t)
	p.intensity.unknown = true
	for i := 1; i <= 3; i++ {
		assert.NotContains(t, p.pass(energy(seconds(10*i), float64(i)*1000)), "process.emissions")
	}
	warnings := p.logs.FilterMessage("Emissions degraded").All()
	require.Len(t, warnings, 1)
	assert.Equal(t, "carbon intensity", warnings[0].ContextMap()["condition"])
	p.intensity.err = errors.New("no token")
	p.pass(energy(seconds(40), 4000))
	p.pass(energy(seconds(50), 5000))
	require.Equal(t, 1, p.logs.FilterMessage("Emissions degraded").Len(), "at most once a minute")
	assert.Equal(t, []componentstatus.Status{componentstatus.StatusRecoverableError, componentstatus.StatusRecoverableError}, p.status)

	got, err := p.telemetry.GetMetric("otelcol_processor_emissions_unaccounted_energy")
	require.NoError(t, err)
	assert.InDelta(t, 5000, got.Data.(metricdata.Sum[float64]).DataPoints[0].Value, 0)

	assert.EqualError(t, p.conditions.Err("carbon intensity"), "fake: no token")

	p.intensity.unknown, p.intensity.err = false, nil
	p.pass(energy(seconds(60), 6000))
	assert.Equal(t, 1, p.logs.FilterMessage("Emissions recovered").Len())
	assert.Equal(t, componentstatus.StatusOK, p.status[2])
}

func TestTooManySeriesPassWithoutEmissions(t *testing.T) {
	p := newTestProcessor(t, func(c *Config) { c.MaxSeries, c.MaxStaleness = 1, time.Minute })
	other := func(m pmetric.Metric, _ pmetric.NumberDataPoint) { m.SetName("other.energy") }
	assert.Contains(t, p.pass(energy(seconds(10), 1)), "process.emissions")
	assert.NotContains(t, p.pass(energy(seconds(10), 1, other)), "other.emissions")
	p.pass(energy(seconds(20), 1, other))
	assert.Equal(t, map[string]int64{"limit": 2}, p.skipped())
	assert.Equal(t, 1, p.logs.FilterMessage("Emissions degraded").Len())
	p.clock = seconds(120)
	p.pass(energy(seconds(120), 1, other)) // after which the first series is forgotten
	assert.Zero(t, p.accounts.Len())
	assert.Equal(t, 1, p.logs.FilterMessage("Emissions recovered").Len())
	assert.InDelta(t, 0.0, p.pass(energy(seconds(130), 1000, other))["other.emissions"][0].DoubleValue(), 0, "its past is not known")
	assert.InDelta(t, 0.1, p.pass(energy(seconds(140), 2000, other))["other.emissions"][0].DoubleValue(), 0)
}

// A removal visits all metrics of a scope. Metrics without points are therefore removed once per
// scope: one removal per metric would make a batch without emissions take quadratic time.
func TestMetricsWithoutPointsAreRemovedOncePerScope(t *testing.T) {
	p := newTestProcessor(t)
	md := energy(seconds(10), -1) // no energy, so it has no emissions
	metrics := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
	b := batch{emissionsProcessor: p.emissionsProcessor, md: md}
	for i := range 3 {
		b.addTo(metrics, metrics.At(0), identity{})
		require.Equal(t, 2+i, metrics.Len(), "addTo removes no metrics")
	}
	b.addToScope(metrics, 1, identity{})
	assert.Equal(t, 4, metrics.Len(), "addToScope removes the metric that it added")
}

func withEmbodied(c *Config) {
	c.Embodied.GetOrInsertDefault()
	*c.Embodied.Get() = EmbodiedConfig{Total: 876_000, Lifespan: 4 * 365 * 24 * time.Hour, Share: 0.4} // 10 g/h
}

func TestEmbodiedEmissionsGrowWithTimeForEachMachine(t *testing.T) {
	p := newTestProcessor(t, withEmbodied)
	of := func(host, name string, at time.Time) pmetric.Metrics {
		md := energy(at, 10, func(m pmetric.Metric, _ pmetric.NumberDataPoint) { m.SetName(name) })
		md.ResourceMetrics().At(0).Resource().Attributes().PutStr("host.name", host)
		return md
	}
	md := of("a", "system.energy", seconds(3600))
	of("b", "hw.energy", seconds(7200)).ResourceMetrics().MoveAndAppendTo(md.ResourceMetrics())
	got := p.pass(md)["host.embodied.emissions"]
	require.Len(t, got, 2)
	assert.InDelta(t, 10.0, got[0].DoubleValue(), 0)
	assert.Equal(t, began, got[0].StartTimestamp().AsTime())
	assert.InDelta(t, 20.0, got[1].DoubleValue(), 0)
	older := of("c", "system.energy", seconds(3600))
	older.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints().At(0).SetStartTimestamp(1)
	assert.Zero(t, p.pass(older)["host.embodied.emissions"][0].DoubleValue(), "the machine is older than the processor")
	assert.NotContains(t, p.pass(energy(seconds(3600), 10)), "host.embodied.emissions", "a workload is no machine")
	again := p.pass(of("a", "system.energy", seconds(7200)))["host.embodied.emissions"]
	assert.InDelta(t, 20.0, again[0].DoubleValue(), 0, "though it used no energy")
	assert.NotContains(t, p.pass(of("a", "system.energy", seconds(5000))), "host.embodied.emissions", "out of order")
}

func TestMachinesBeyondTheLimitAreNotFollowed(t *testing.T) {
	p := newTestProcessor(t, withEmbodied, func(c *Config) { c.MaxSeries = 2 })
	for i := range int64(5) {
		md := energy(seconds(3600), 1, func(m pmetric.Metric, _ pmetric.NumberDataPoint) { m.SetName("system.energy") })
		md.ResourceMetrics().At(0).Resource().Attributes().PutInt("host.id", i)
		p.pass(md)
	}
	assert.Len(t, p.embodied.machines, 2)
}

func TestEmbodiedEmissionsOfALongTimeDoNotOverflow(t *testing.T) {
	p := newTestProcessor(t, func(c *Config) {
		c.Embodied = configoptional.Some(EmbodiedConfig{Total: maxEmbodied, Lifespan: time.Hour, Share: 1})
	})
	for _, c := range []struct {
		after time.Duration
		want  float64
	}{{time.Hour, 1e12}, {200 * 365 * 24 * time.Hour, float64(math.MaxUint64) / 1e6}} {
		got := p.pass(energy(began.Add(c.after), 1, func(m pmetric.Metric, _ pmetric.NumberDataPoint) { m.SetName("system.energy") }))
		assert.InDelta(t, c.want, got["host.embodied.emissions"][0].DoubleValue(), 0)
	}
}

func TestConcurrentBatchesOfSeveralMachines(t *testing.T) {
	p := newTestProcessor(t)
	p.now = func() time.Time { return began }
	var wg sync.WaitGroup
	for _, host := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			for i := 1; i <= 50; i++ {
				md := energy(seconds(10*i), float64(i)*10_000)
				md.ResourceMetrics().At(0).Resource().Attributes().PutStr("host.name", host)
				_, err := p.process(context.Background(), md)
				assert.NoError(t, err)
				got := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(1).Sum().DataPoints().At(0).DoubleValue()
				assert.InDelta(t, float64(i), got, 0)
			}
		})
	}
	wg.Wait()
	assert.Equal(t, 4, p.accounts.Len())
}

func TestTheProcessorSaysThatItChangesMetrics(t *testing.T) {
	cfg := createDefaultConfig()
	withIntensity(cfg.(*Config))
	next, err := consumer.NewMetrics(func(context.Context, pmetric.Metrics) error { return errors.New("refused") })
	require.NoError(t, err)
	p, err := NewFactory().CreateMetrics(context.Background(), processortest.NewNopSettings(metadata.Type), cfg, next)
	require.NoError(t, err)
	assert.True(t, p.Capabilities().MutatesData)
	require.NoError(t, p.Start(context.Background(), componenttest.NewNopHost()))
	assert.EqualError(t, p.ConsumeMetrics(context.Background(), pmetric.NewMetrics()), "refused")
	require.NoError(t, p.Shutdown(context.Background()))
}

// Emissions of a batch that the next consumer refuses are in the next batch. The sender receives the
// consumer's own error, such as memory_limiter's, after which it may send the batch again.
func TestARefusedBatchLosesNoEmissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := createDefaultConfig().(*Config)
		withIntensity(cfg)
		var sink consumertest.MetricsSink
		refused, refuse := errors.New("data refused due to high memory usage"), false
		next, err := consumer.NewMetrics(func(ctx context.Context, md pmetric.Metrics) error {
			if refuse {
				return refused
			}
			return sink.ConsumeMetrics(ctx, md)
		})
		require.NoError(t, err)
		p, err := NewFactory().CreateMetrics(t.Context(), processortest.NewNopSettings(metadata.Type), cfg, next)
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, p.Start(t.Context(), componenttest.NewNopHost()))
		for i := range 4 {
			time.Sleep(10 * time.Second) // of the clock of the synctest bubble
			refuse = i == 1 || i == 2
			err := p.ConsumeMetrics(t.Context(), energy(time.Now(), 36_000*float64(1+i), func(_ pmetric.Metric, p pmetric.NumberDataPoint) {
				p.SetStartTimestamp(pcommon.NewTimestampFromTime(start))
			}))
			if refuse {
				assert.Same(t, refused, err)
			} else {
				require.NoError(t, err)
			}
		}
		require.NoError(t, p.Shutdown(t.Context()))
		require.Len(t, sink.AllMetrics(), 2)
		for i, want := range []float64{2.3, 4 * 2.3} { // 230 g/kWh
			emissions := sink.AllMetrics()[i].ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(1)
			require.Equal(t, "process.emissions", emissions.Name())
			assert.InDelta(t, want, emissions.Sum().DataPoints().At(0).DoubleValue(), 1e-6)
		}
	})
}

func withIntensity(c *Config) {
	c.Intensity = configoptional.Some(IntensityConfig{Value: configoptional.Some(230.0)})
}

// withZeroPoint puts a zero point, 1 ms after the start, before the only point.
func withZeroPoint(md pmetric.Metrics) pmetric.Metrics {
	points := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints()
	value := pmetric.NewNumberDataPoint()
	points.At(0).CopyTo(value)
	zero := points.At(0)
	zero.SetDoubleValue(0)
	zero.SetTimestamp(zero.StartTimestamp() + 1e6)
	value.CopyTo(points.AppendEmpty())
	return md
}

func TestEmissionsHaveAZeroPointWhereTheEnergyHasOne(t *testing.T) {
	p := newTestProcessor(t)
	at := began.Add(10 * time.Second)
	for range 2 { // the second is the first, sent again
		got := p.pass(withZeroPoint(energy(at, 1000)))
		require.Len(t, got["process.emissions"], 2)
		zero, first := got["process.emissions"][0], got["process.emissions"][1]
		assert.Zero(t, zero.DoubleValue())
		assert.Equal(t, zero.StartTimestamp()+1e6, zero.Timestamp())
		assert.InDelta(t, 0.1, first.DoubleValue(), 1e-9)
		assert.Equal(t, pcommon.NewTimestampFromTime(at), first.Timestamp())
		assert.Equal(t, zero.StartTimestamp(), first.StartTimestamp())
	}
}

func TestEmissionsThatBeginLaterThanTheEnergyHaveNoZeroPointBefore(t *testing.T) {
	p := newTestProcessor(t)
	old := func(_ pmetric.Metric, p pmetric.NumberDataPoint) {
		p.SetStartTimestamp(pcommon.NewTimestampFromTime(began.Add(-time.Hour)))
	}
	got := p.pass(withZeroPoint(energy(began.Add(10*time.Second), 1000, old)))
	require.Len(t, got["process.emissions"], 1)
	assert.Zero(t, got["process.emissions"][0].DoubleValue())
}

func TestAZeroPointTellsNoIntervalOfItsOwn(t *testing.T) {
	p := newTestProcessor(t)
	first := began.Add(10 * time.Second)
	p.pass(energy(first, 1000))
	asked := &spellSignal{}
	p.accounts = account.New(account.Options{Signal: asked, PUE: 1, MaxSeries: 10, Since: began})
	md := energy(first, 500)
	newcomer := withZeroPoint(energy(first, 5, func(_ pmetric.Metric, p pmetric.NumberDataPoint) {
		p.SetStartTimestamp(pcommon.NewTimestampFromTime(began.Add(7 * time.Second)))
		p.Attributes().PutStr("energy.zone", "dram")
	}))
	into := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints()
	newcomer.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints().MoveAndAppendTo(into)
	p.pass(md)
	assert.Equal(t, [][2]time.Time{{began, first}}, asked.spells, "the interval of the collection is that of all")
}

func TestTheFirstIntervalBeginsWithTheEarliestEnergy(t *testing.T) {
	p := newTestProcessor(t)
	asked := &spellSignal{}
	p.emissionsProcessor.intensity.Signal = asked
	require.NoError(t, p.start(t.Context(), p))
	from := func(start int) pmetric.Metrics {
		return energy(seconds(10), 1, func(m pmetric.Metric, p pmetric.NumberDataPoint) {
			m.SetName(fmt.Sprint(start, ".energy"))
			p.SetStartTimestamp(pcommon.NewTimestampFromTime(seconds(start)))
		})
	}
	md, node := from(7), from(5)
	from(2).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().MoveAndAppendTo(node.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics())
	node.ResourceMetrics().MoveAndAppendTo(md.ResourceMetrics())
	p.pass(md)
	assert.Equal(t, [][2]time.Time{{seconds(2), seconds(10)}}, asked.spells)
}

func TestMachinesHaveTheirOwnIntervals(t *testing.T) {
	p := newTestProcessor(t)
	asked := &spellSignal{}
	p.accounts = account.New(account.Options{Signal: asked, PUE: 1, MaxSeries: 10, Since: began})
	for _, at := range []int{10, 20} {
		p.pass(energy(seconds(at), 1))
	}
	other := energy(seconds(20), 1)
	other.ResourceMetrics().At(0).Resource().Attributes().PutStr("host.name", "b")
	p.pass(other)
	assert.Equal(t, [][2]time.Time{{began, seconds(10)}, {seconds(10), seconds(20)}, {began, seconds(20)}}, asked.spells)
}

// spellSignal is a rate that keeps of which intervals it was asked.
type spellSignal struct{ spells [][2]time.Time }

// Mean implements signal.Signal.
func (s *spellSignal) Mean(from, until time.Time) (signal.Mean, bool) {
	s.spells = append(s.spells, [2]time.Time{from, until})
	return signal.Mean{Rate: 360e6}, true
}
