// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/energyreceiver/energyreceiver/connector/energyspans/internal/metadata"
	"github.com/energyreceiver/energyreceiver/connector/energyspans/internal/metadatatest"
)

// fixture is a connector with a clock.
type fixture struct {
	*testing.T
	*energySpans
	sink   *consumertest.MetricsSink
	time   time.Time
	meters *componenttest.Telemetry
}

func start(t *testing.T, change func(*Config)) *fixture {
	t.Helper()
	cfg := createDefaultConfig().(*Config)
	if change != nil {
		change(cfg)
	}
	require.NoError(t, cfg.Validate())
	f := &fixture{T: t, sink: new(consumertest.MetricsSink), time: time.Unix(1000, 0)}
	f.meters = componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, f.meters.Shutdown(context.Background())) })
	var err error
	f.energySpans, err = newEnergySpans(cfg, metadatatest.NewSettings(f.meters), f.sink)
	require.NoError(t, err)
	f.now = func() time.Time { return f.time }
	require.NoError(t, f.Start(context.Background(), nil))
	return f
}

func (f *fixture) learn(td ptrace.Traces) {
	require.NoError(f, traces{f.energySpans}.ConsumeTraces(context.Background(), td))
}

func (f *fixture) consume(p *energy) {
	require.NoError(f, profiles{f.energySpans}.ConsumeProfiles(context.Background(), p.Profiles))
}

// end returns the energy of each series after shutdown, in µJ.
func (f *fixture) end() map[string]int64 {
	require.NoError(f, profiles{f.energySpans}.Shutdown(context.Background()))
	all := f.sink.AllMetrics()
	got := map[string]int64{}
	if len(all) == 0 {
		return got
	}
	m := all[len(all)-1].ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
	assert.Equal(f, "span.energy", m.Name())
	assert.True(f, m.Sum().IsMonotonic())
	for _, p := range m.Sum().DataPoints().All() {
		got[nameOf(p.Attributes())] += int64(p.DoubleValue()*1e6 + 0.5)
	}
	return got
}

// nameOf returns attributes in one text, such as "shop GET /a route=/a".
func nameOf(a pcommon.Map) string {
	var parts []string
	for _, name := range []string{"service.name", "span.name", "http.route", "tenant", "otel.metric.overflow"} {
		if v, ok := a.Get(name); ok {
			parts = append(parts, v.AsString())
		}
	}
	return strings.Join(parts, " ")
}

func id(trace, span byte) spanID {
	return spanID{pcommon.TraceID{trace, 1}, pcommon.SpanID{span, 1}}
}

// tracesOf has one span of a service.
func tracesOf(service, name, route string, kind ptrace.SpanKind, of, parent spanID) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", service)
	s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetTraceID(of.trace)
	s.SetSpanID(of.span)
	s.SetParentSpanID(parent.span)
	s.SetKind(kind)
	s.SetName(name)
	if route != "" {
		s.Attributes().PutStr("http.route", route)
	}
	return td
}

// energy is an energy profile of the service "svc".
type energy struct {
	pprofile.Profiles
	profile pprofile.Profile
}

func newEnergy() *energy {
	e := &energy{Profiles: pprofile.NewProfiles()}
	d := e.Dictionary()
	d.StringTable().FromRaw([]string{"", "energy", "microjoules", "process.context.label.tenant"})
	d.LinkTable().AppendEmpty()
	d.AttributeTable().AppendEmpty()
	rp := e.ResourceProfiles().AppendEmpty()
	rp.Resource().Attributes().PutStr("service.name", "svc")
	e.profile = rp.ScopeProfiles().AppendEmpty().Profiles().AppendEmpty()
	e.profile.SampleType().SetTypeStrindex(1)
	e.profile.SampleType().SetUnitStrindex(2)
	return e
}

func (e *energy) add(of spanID, tenant string, µJ int64) *energy {
	s := e.profile.Samples().AppendEmpty()
	s.Values().FromRaw([]int64{µJ})
	if of != (spanID{}) {
		link := e.Dictionary().LinkTable().AppendEmpty()
		link.SetTraceID(of.trace)
		link.SetSpanID(of.span)
		s.SetLinkIndex(int32(e.Dictionary().LinkTable().Len() - 1))
	}
	if tenant != "" {
		a := e.Dictionary().AttributeTable().AppendEmpty()
		a.SetKeyStrindex(3)
		a.Value().SetStr(tenant)
		s.AttributeIndices().Append(int32(e.Dictionary().AttributeTable().Len() - 1))
	}
	return e
}

func TestEnergyIsOfTheEntrySpanOfItsService(t *testing.T) {
	f := start(t, nil)
	f.learn(tracesOf("front", "GET /", "/", ptrace.SpanKindServer, id(1, 1), spanID{}))
	f.learn(tracesOf("shop", "GET /cart", "/cart", ptrace.SpanKindServer, id(1, 2), id(1, 1)))
	f.learn(tracesOf("shop", "SELECT", "", ptrace.SpanKindClient, id(1, 3), id(1, 2)))
	f.consume(newEnergy().add(id(1, 3), "", 3).add(id(1, 2), "", 4).add(id(1, 1), "", 5).add(spanID{}, "", 6))
	assert.Equal(t, map[string]int64{"shop GET /cart /cart": 7, "front GET / /": 5, "svc": 6}, f.end())
}

func TestEnergyWaitsForSpansThatEndLater(t *testing.T) {
	f := start(t, nil)
	f.consume(newEnergy().add(id(1, 3), "", 3).add(id(9, 9), "", 2))
	f.learn(tracesOf("shop", "SELECT", "", ptrace.SpanKindClient, id(1, 3), id(1, 2)))
	f.time = f.time.Add(30 * time.Second)
	f.consume(newEnergy())
	assert.Empty(t, f.series.of, "the parent may come")
	f.learn(tracesOf("shop", "GET /cart", "/cart", ptrace.SpanKindServer, id(1, 2), spanID{}))
	f.consume(newEnergy())
	assert.Len(t, f.series.of, 1)
	f.time = f.time.Add(31 * time.Second)
	f.consume(newEnergy())
	assert.Empty(t, f.waiting)
	assert.Equal(t, map[string]int64{"shop GET /cart /cart": 3, "svc": 2}, f.end())
}

func TestEnergyWithoutASpanIsSummedByTheConfiguredLabels(t *testing.T) {
	f := start(t, func(c *Config) { c.Labels = []string{"other", "tenant"} })
	f.consume(newEnergy().add(spanID{}, "a", 1).add(spanID{}, "b", 2).add(spanID{}, "a", 4).add(spanID{}, "", 8))
	assert.Equal(t, map[string]int64{"svc a": 5, "svc b": 2, "svc": 8}, f.end())
}

func TestSeriesAndSpansAreBounded(t *testing.T) {
	f := start(t, func(c *Config) { c.Labels, c.MaxSeries, c.MaxSpans = []string{"tenant"}, 3, 2 })
	e := newEnergy()
	for i := range byte(20) {
		e.add(spanID{}, strings.Repeat(string('a'+i), 1000), 1)
		e.add(id(i+1, 1), "", 1)
		f.learn(tracesOf("x", "y", "", ptrace.SpanKindServer, id(i+1, 2), spanID{}))
	}
	f.consume(e)
	assert.Len(t, f.spans.of, 2)
	assert.Len(t, f.waiting, 2)
	got := f.end()
	assert.Len(t, got, 4, "three and one for the rest")
	var sum int64
	for name, energy := range got {
		sum += energy
		assert.Less(t, len(name), 2*maxText)
	}
	assert.EqualValues(t, 40, sum)
}

func TestPointsAreSentAtEachInterval(t *testing.T) {
	f := start(t, nil)
	for range 31 {
		f.consume(newEnergy().add(spanID{}, "", 1))
		f.time = f.time.Add(time.Second)
	}
	assert.Len(t, f.sink.AllMetrics(), 2)
}

func TestBadSamplesAddNothingAndAreCounted(t *testing.T) {
	f := start(t, func(c *Config) { c.Labels = []string{"tenant"} })
	e := newEnergy().add(spanID{}, "", -5).add(spanID{}, "", math.MaxInt64)
	bad := e.profile.Samples().AppendEmpty()
	bad.SetLinkIndex(1 << 30)
	bad.AttributeIndices().FromRaw([]int32{-1, 1 << 30})
	bad.Values().FromRaw([]int64{7})
	count := e.ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles().AppendEmpty()
	count.SampleType().SetTypeStrindex(1 << 30)
	count.Samples().AppendEmpty().Values().FromRaw([]int64{9})
	f.consume(e)
	assert.Equal(t, map[string]int64{"svc": 7}, f.end())
	own := attribute.NewSet(attribute.String("connector", "energyspans"))
	metadatatest.AssertEqualConnectorEnergyspansDroppedSamples(t, f.meters, []metricdata.DataPoint[int64]{{Value: 2, Attributes: own}}, metricdatatest.IgnoreTimestamp())
}

func TestNoEnergyIsLostWhateverArrivesInWhateverOrder(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 36))
		f := start(t, func(c *Config) { c.MaxSpans, c.MaxSeries, c.Labels = 1+r.IntN(20), 1+r.IntN(10), []string{"tenant"} })
		var want int64
		some := func() spanID { return id(byte(r.IntN(4)), byte(r.IntN(4))) }
		for range 30 {
			f.time = f.time.Add(time.Duration(r.IntN(40)) * time.Second)
			if r.IntN(2) == 0 {
				f.learn(tracesOf(string('a'+byte(r.IntN(3))), string('x'+byte(r.IntN(3))), "", ptrace.SpanKind(r.IntN(6)), some(), some()))
				continue
			}
			e := newEnergy()
			for range r.IntN(5) {
				µJ := r.Int64N(1e6)
				want += µJ
				e.add(some(), string('a'+byte(r.IntN(3))), µJ)
			}
			f.consume(e)
		}
		var sum int64
		for _, energy := range f.end() {
			sum += energy
		}
		require.Equal(t, want, sum, "seed %d", seed)
	}
}

func TestTracesAndProfilesOfAConfigurationShareSpans(t *testing.T) {
	factory := NewFactory()
	cfg := factory.CreateDefaultConfig()
	sink := new(consumertest.MetricsSink)
	set := connectortest.NewNopSettings(metadata.Type)
	tr, err := factory.CreateTracesToMetrics(context.Background(), set, cfg, sink)
	require.NoError(t, err)
	pr, err := factory.CreateProfilesToMetrics(context.Background(), set, cfg, sink)
	require.NoError(t, err)
	for _, c := range []component.Component{tr, pr} {
		require.NoError(t, c.Start(context.Background(), nil))
	}
	require.NoError(t, tr.ConsumeTraces(context.Background(), tracesOf("shop", "GET", "", ptrace.SpanKindServer, id(1, 1), spanID{})))
	require.NoError(t, pr.ConsumeProfiles(context.Background(), newEnergy().add(id(1, 1), "", 3).Profiles))
	require.NoError(t, tr.Shutdown(context.Background()))
	require.NoError(t, pr.Shutdown(context.Background()))
	require.Len(t, sink.AllMetrics(), 1)
	p := sink.AllMetrics()[0].ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints().At(0)
	assert.Equal(t, "shop GET", nameOf(p.Attributes()))
}

func TestLabelsThatWouldReplaceAnAttributeAreRefused(t *testing.T) {
	for _, labels := range [][]string{{"span.name"}, {"tenant", "tenant"}} {
		cfg := createDefaultConfig().(*Config)
		cfg.Labels = labels
		assert.ErrorContains(t, cfg.Validate(), "labels:")
	}
}
