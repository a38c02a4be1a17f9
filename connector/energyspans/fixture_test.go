// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"

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
	f := &fixture{T: t, sink: new(consumertest.MetricsSink), time: time.Unix(1000, 0), meters: componenttest.NewTelemetry()}
	t.Cleanup(func() { require.NoError(t, f.meters.Shutdown(context.Background())) })
	var err error
	f.energySpans, err = newEnergySpans(cfg, metadatatest.NewSettings(f.meters), f.sink)
	require.NoError(t, err)
	f.now = func() time.Time { return f.time }
	require.NoError(t, profiles{f.energySpans}.Start(context.Background(), nil))
	return f
}

// limitMemory sets a limit below a MiB.
func (f *fixture) limitMemory(bytes int) { f.tracker.limit, f.tracker.maxBytes = bytes, bytes/2 }

func (f *fixture) consumeTraces(td ptrace.Traces) {
	require.NoError(f, traces{f.energySpans}.ConsumeTraces(context.Background(), td))
}

// serve has a service answer a request: an entry span without a parent.
func (f *fixture) serve(service, name string, of spanID) {
	f.consumeTraces(tracesOf(service, name, "", ptrace.SpanKindServer, of, spanID{}))
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

// work sends n spans of a service with different names, each with some µJ. first is the number of the first span.
func (f *fixture) work(service string, first, n int, µJ int64) {
	e := newEnergy()
	for i := range n {
		f.serve(service, fmt.Sprint("work ", first+i), numbered(first+i))
		e.add(numbered(first+i), "", µJ)
	}
	f.consume(e)
}

// end returns the energy of each series after shutdown, in µJ, without series that ended before.
func (f *fixture) end() map[string]int64 {
	require.NoError(f, profiles{f.energySpans}.Shutdown(context.Background()))
	got := map[string]int64{}
	if all := f.sink.AllMetrics(); len(all) > 0 {
		for _, p := range pointsOf(f, all[len(all)-1]) {
			if p.energy > 0 {
				require.NotContains(f, got, p.name, "two series with the same attributes")
			}
			got[p.name] += p.energy
		}
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

// nameOf returns attributes in one text, such as "shop GET /a".
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

// numbered returns the span with a number.
func numbered(n int) spanID {
	return spanID{pcommon.TraceID{1, byte(n >> 16), byte(n >> 8), byte(n)}, pcommon.SpanID{1}}
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
