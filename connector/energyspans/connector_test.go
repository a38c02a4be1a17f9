// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/energyreceiver/energyreceiver/connector/energyspans/internal/metadata"
	"github.com/energyreceiver/energyreceiver/connector/energyspans/internal/metadatatest"
	"github.com/energyreceiver/energyreceiver/feed"
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
	require.NoError(t, profiles{f.energySpans}.Start(context.Background(), nil))
	return f
}

func (f *fixture) learn(td ptrace.Traces) {
	require.NoError(f, traces{f.energySpans}.ConsumeTraces(context.Background(), td))
}

// consume has energyprofile send energy.
func (f *fixture) consume(p *energy) {
	f.consumeAs(feed.WithEnergy(context.Background(), p.sum), p)
}

func (f *fixture) consumeAs(ctx context.Context, p *energy) {
	require.NoError(f, profiles{f.energySpans}.ConsumeProfiles(ctx, p.Profiles))
}

// pass advances the clock and consumes an empty batch.
func (f *fixture) pass(d time.Duration) {
	f.time = f.time.Add(d)
	f.consume(newEnergy())
}

// end returns the energy of each series after shutdown, in µJ, without series that ended before.
func (f *fixture) end() map[string]int64 {
	require.NoError(f, profiles{f.energySpans}.Shutdown(context.Background()))
	all := f.sink.AllMetrics()
	got := map[string]int64{}
	if len(all) == 0 {
		return got
	}
	for _, p := range pointsOf(f, all[len(all)-1]) {
		got[p.name] += p.energy
	}
	return got
}

// point is a point of a series: its energy in µJ.
type point struct {
	name      string
	start, at time.Time
	energy    int64
}

func pointsOf(t require.TestingT, md pmetric.Metrics) (points []point) {
	m := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
	require.Equal(t, "span.energy", m.Name())
	require.True(t, m.Sum().IsMonotonic())
	for _, p := range m.Sum().DataPoints().All() {
		points = append(points, point{
			nameOf(p.Attributes()), p.StartTimestamp().AsTime(), p.Timestamp().AsTime(), int64(math.Round(p.DoubleValue() * 1e6)),
		})
	}
	return points
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
	sum     uint64 // of the samples that are not negative, µJ
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
	e.sum += uint64(max(µJ, 0))
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
	f.pass(30 * time.Second)
	assert.Empty(t, f.sink.AllMetrics(), "the parent may come")
	f.learn(tracesOf("shop", "GET /cart", "/cart", ptrace.SpanKindServer, id(1, 2), spanID{}))
	f.pass(31 * time.Second)
	assert.Empty(t, f.tracker.awaited)
	assert.Equal(t, map[string]int64{"shop GET /cart /cart": 3, "svc": 2}, f.end())
}

func TestOfTwoSpansWithAnIDTheFirstCounts(t *testing.T) {
	f := start(t, nil)
	f.learn(tracesOf("shop", "GET", "", ptrace.SpanKindServer, id(1, 1), spanID{}))
	f.learn(tracesOf("forger", "GET", "", ptrace.SpanKindServer, id(1, 1), spanID{}))
	assert.Equal(t, 1, f.tracker.others.memory.Len())
	f.consume(newEnergy().add(id(1, 1), "", 3))
	assert.Equal(t, map[string]int64{"shop GET": 3}, f.end())
}

func TestEnergyThatWaitsKeepsItsLabels(t *testing.T) {
	f := start(t, func(c *Config) { c.Labels = []string{"tenant"} })
	f.consume(newEnergy().add(id(1, 1), "a", 1).add(id(1, 1), "b", 2).add(id(1, 1), "b", 4))
	assert.Equal(t, 2, f.tracker.others.memory.Len(), "samples with the same names wait as one")
	f.learn(tracesOf("shop", "SELECT", "", ptrace.SpanKindClient, id(1, 1), id(1, 2)))
	f.learn(tracesOf("shop", "GET", "", ptrace.SpanKindServer, id(1, 2), spanID{}))
	assert.Equal(t, map[string]int64{"shop GET a": 1, "shop GET b": 6}, f.end())
}

func TestAChainOfParentsIsFollowedToALimit(t *testing.T) {
	f := start(t, nil)
	f.consume(newEnergy().add(id(1, 1), "", 3))
	for i := range byte(100) {
		f.learn(tracesOf("shop", fmt.Sprint(i+1), "", ptrace.SpanKindInternal, id(1, i+1), id(1, i+2)))
	}
	f.consume(newEnergy().add(id(1, 1), "", 4))
	f.learn(tracesOf("loop", "loop", "", ptrace.SpanKindInternal, id(2, 1), id(2, 1)))
	f.consume(newEnergy().add(id(2, 1), "", 5))
	assert.Equal(t, map[string]int64{"shop " + fmt.Sprint(maxDepth): 7, "loop loop": 5}, f.end())
}

func TestEnergyWithoutASpanIsSummedByTheConfiguredLabels(t *testing.T) {
	f := start(t, func(c *Config) { c.Labels = []string{"other", "tenant"} })
	f.consume(newEnergy().add(spanID{}, "a", 1).add(spanID{}, "b", 2).add(spanID{}, "a", 4).add(spanID{}, "", 8))
	assert.Equal(t, map[string]int64{"svc a": 5, "svc b": 2, "svc": 8}, f.end())
}

func TestPointsAreSentAtEachInterval(t *testing.T) {
	f := start(t, nil)
	for range 31 {
		f.consume(newEnergy().add(spanID{}, "", 1))
		f.time = f.time.Add(time.Second)
	}
	assert.Len(t, f.sink.AllMetrics(), 2, "after 15 and 30 seconds")
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
	require.NoError(t, pr.ConsumeProfiles(feed.WithEnergy(context.Background(), 3), newEnergy().add(id(1, 1), "", 3).Profiles))
	require.NoError(t, tr.Shutdown(context.Background()))
	require.NoError(t, pr.Shutdown(context.Background()))
	require.Len(t, sink.AllMetrics(), 1)
	assert.Equal(t, "shop GET", pointsOf(t, sink.AllMetrics()[0])[0].name)
}

func TestLabelsThatWouldReplaceAnAttributeAreRefused(t *testing.T) {
	for _, labels := range [][]string{{"span.name"}, {"tenant", "tenant"}, {""}} {
		cfg := createDefaultConfig().(*Config)
		cfg.Labels = labels
		assert.ErrorContains(t, cfg.Validate(), "labels:")
	}
}

func TestTracesAndProfilesMayArriveConcurrently(t *testing.T) {
	f := start(t, func(c *Config) { c.FlushInterval = 0 })
	f.now = time.Now
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 200 {
				f.learn(tracesOf("shop", "GET", "", ptrace.SpanKindServer, numbered(200*i+j), spanID{}))
			}
		})
		all.Go(func() {
			for j := range 200 {
				f.consume(newEnergy().add(numbered(200*i+j), "", 1))
			}
		})
	}
	all.Wait()
	assert.Equal(t, map[string]int64{"shop GET": 800}, f.end())
	var last int64
	for _, md := range f.sink.AllMetrics() {
		points := pointsOf(t, md)
		assert.GreaterOrEqual(t, points[len(points)-1].energy, last)
		last = points[len(points)-1].energy
	}
}

func TestAConnectorOfTheSameConfigurationStartsAnew(t *testing.T) {
	factory := NewFactory()
	cfg := factory.CreateDefaultConfig()
	for range 3 {
		sink := new(consumertest.MetricsSink)
		pr, err := factory.CreateProfilesToMetrics(t.Context(), connectortest.NewNopSettings(metadata.Type), cfg, sink)
		require.NoError(t, err)
		require.NoError(t, pr.Start(t.Context(), nil))
		require.NoError(t, pr.ConsumeProfiles(feed.WithEnergy(t.Context(), 3), newEnergy().add(id(1, 1), "", 3).Profiles))
		require.NoError(t, pr.Shutdown(t.Context()))
		points := pointsOf(t, sink.AllMetrics()[0])
		assert.EqualValues(t, 3, points[len(points)-1].energy)
	}
}
