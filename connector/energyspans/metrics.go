// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/connector/energyspans/internal/metadata"
)

// zeroDelay is the time between the start timestamp of a series and its zero-value point. If both
// were equal, the start timestamp would count as unknown (OpenTelemetry metrics data model,
// "Cumulative streams: handling unknown start time").
const zeroDelay = time.Millisecond

// flush removes expired series and returns the others as one sum. A series has a zero-value point
// until a flush with this point has been delivered.
func (t *tracker) flush() pmetric.Metrics {
	t.expire(t.now.Add(-t.cfg.Expiration))
	t.flushes++
	t.stamp = after(t.stamp, t.now)
	md := pmetric.NewMetrics()
	sm := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty()
	sm.Scope().SetName(metadata.ScopeName)
	m := sm.Metrics().AppendEmpty()
	m.SetName("span.energy")
	m.SetUnit("J")
	m.SetDescription("Energy of CPU samples by the span and the route of the sample. " +
		"A series without span.name is energy outside of spans.")
	sum := m.SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	for _, of := range t.all {
		for k, s := range of.series {
			t.appendSeries(sum.DataPoints(), of.name, k, s)
		}
	}
	return md
}

// appendSeries appends the points of a series: its zero-value point, if that is due, and its present value.
func (t *tracker) appendSeries(to pmetric.NumberDataPointSlice, service string, k key, s *series) {
	zero := s.start.Add(zeroDelay)
	point := func(at time.Time, energy uint64) {
		p := to.AppendEmpty()
		p.SetStartTimestamp(pcommon.NewTimestampFromTime(s.start))
		p.SetTimestamp(pcommon.NewTimestampFromTime(at))
		p.SetDoubleValue(float64(energy) / 1e6)
		t.putAttributes(p.Attributes(), service, k)
	}
	if s.first > t.delivered && zero.UnixMilli() < t.stamp.UnixMilli() {
		point(zero, 0)
	}
	point(t.stamp, s.energy)
}

func (t *tracker) putAttributes(to pcommon.Map, service string, k key) {
	put := func(name, value string) {
		if value != "" {
			to.PutStr(name, value)
		}
	}
	put("service.name", service)
	put("span.name", k.span)
	put(routeAttribute, k.route)
	if k.labels != "" {
		for i, value := range strings.Split(k.labels, separator)[:len(t.cfg.Labels)] {
			put(t.cfg.Labels[i], value)
		}
	}
	if k.overflow {
		to.PutBool("otel.metric.overflow", true)
	}
}

// after returns now by the wall clock. If the clock was set back, it returns a time shortly after
// last, so that the points of a series stay in order.
func after(last, now time.Time) time.Time {
	if now = now.Round(0); now.After(last) { // Round removes the reading of the monotonic clock
		return now
	}
	return last.Add(time.Millisecond)
}
