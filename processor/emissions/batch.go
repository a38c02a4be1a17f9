// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/account"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/metadata"
)

// batch is one call of process: metrics that emissions are added to.
type batch struct {
	*emissionsProcessor
	md  pmetric.Metrics
	now time.Time
	// skips counts points by the reason why they have no emissions. skips[account.Counted] counts all
	// other points.
	skips [metadata.AttributeSkipReasonValue + 1]int64
	// opened reports whether the origins of all scopes are open.
	opened bool
}

// add adds emissions next to each energy metric.
func (b *batch) add() {
	resources := b.md.ResourceMetrics()
	for i := range resources.Len() {
		rm := resources.At(i)
		scopes := rm.ScopeMetrics()
		var resource identity // the zero identity means no identity
		for j := range scopes.Len() {
			sm := scopes.At(j)
			if n := b.countEnergies(sm.Metrics()); n > 0 {
				if resource == (identity{}) {
					resource = b.ids.resource(rm.Resource().Attributes())
				}
				b.addToScope(sm.Metrics(), n, resource.in(b.ids.scope(sm.Scope())))
			}
		}
	}
}

// countEnergies returns how many metrics have emissions, and counts the points of energies
// without emissions.
func (b *batch) countEnergies(metrics pmetric.MetricSlice) (n int) {
	for i := range metrics.Len() {
		switch m := metrics.At(i); {
		case !isEnergy(m):
		case m.Sum().AggregationTemporality() == pmetric.AggregationTemporalityDelta:
			b.skips[metadata.AttributeSkipReasonTemporality] += int64(m.Sum().DataPoints().Len())
		default:
			n++
		}
	}
	return n
}

// isEnergy reports whether a metric is a counter of joules.
func isEnergy(m pmetric.Metric) bool {
	return m.Unit() == "J" && m.Type() == pmetric.MetricTypeSum && m.Sum().IsMonotonic()
}

// isCounted reports whether a metric has emissions.
func isCounted(m pmetric.Metric) bool {
	return isEnergy(m) && m.Sum().AggregationTemporality() == pmetric.AggregationTemporalityCumulative
}

// addToScope adds emissions next to the n energy metrics of a scope.
func (b *batch) addToScope(metrics pmetric.MetricSlice, n int, scope identity) {
	if !b.opened && !b.accounts.Knows(scope.origin) {
		b.openOrigins()
	}
	before := metrics.Len()
	metrics.EnsureCapacity(before + n + 1)
	for i := range before {
		if m := metrics.At(i); b.intensity != nil && isCounted(m) {
			b.addTo(metrics, m, scope)
		}
	}
	i := 0
	metrics.RemoveIf(func(m pmetric.Metric) bool {
		i++
		return i > before && m.Sum().DataPoints().Len() == 0
	})
	if b.embodied != nil {
		b.embodied.add(metrics, before, scope.id, b.now)
	}
}

// openOrigins opens new origins. The first interval of an origin begins at the earliest start time
// of its points that Accounts.Follows accepts.
func (b *batch) openOrigins() {
	b.opened = true
	for _, rm := range b.md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			origin := b.ids.resource(rm.Resource().Attributes()).in(b.ids.scope(sm.Scope())).origin
			for _, m := range sm.Metrics().All() {
				if isCounted(m) {
					b.openFrom(origin, m.Sum().DataPoints())
				}
			}
		}
	}
}

func (b *batch) openFrom(origin uint64, points pmetric.NumberDataPointSlice) {
	for _, p := range points.All() {
		if start := uint64(p.StartTimestamp()); b.accounts.Follows(start) && start < uint64(p.Timestamp()) {
			b.accounts.Open(origin, start)
		}
	}
}

// addTo adds the emissions of one energy metric.
func (b *batch) addTo(metrics pmetric.MetricSlice, energy pmetric.Metric, scope identity) {
	points := energy.Sum().DataPoints()
	out := newEmissions(metrics, b.nameOf(energy.Name()), points.Len())
	id := mix(scope.id, b.ids.text(energy.Name()))
	zero := -1 // index of the zero point of the next point's series
	for i := range points.Len() {
		p := points.At(i)
		if isZeroPoint(points, i) {
			zero = i
			continue
		}
		s := b.observe(p, account.Point{
			Series: mix(id, b.ids.attributes(p.Attributes())), Origin: scope.origin,
			Start: uint64(p.StartTimestamp()), At: uint64(p.Timestamp()),
		})
		zeroPoint := zero
		zero = -1
		if s == nil {
			continue
		}
		total, start, ok := s.Total()
		if ok && zeroPoint >= 0 && start < uint64(points.At(zeroPoint).Timestamp()) {
			write(out, points.At(zeroPoint), b.labels, 0, start)
		}
		if ok {
			write(out, p, b.labels, total, start)
		}
	}
}

// isZeroPoint reports whether the i-th point is the zero point of a series: it has the value 0, and
// the first value follows.
//
// The zero point is skipped, so that the first value has the rate of the interval that the other
// series of the origin have.
func isZeroPoint(points pmetric.NumberDataPointSlice, i int) bool {
	if i+1 >= points.Len() {
		return false
	}
	p, next := points.At(i), points.At(i+1)
	return p.Timestamp() < next.Timestamp() && p.StartTimestamp() == next.StartTimestamp() &&
		p.StartTimestamp() < p.Timestamp() && !p.Flags().NoRecordedValue() &&
		p.DoubleValue() == 0 && p.IntValue() == 0 && p.Attributes().Equal(next.Attributes())
}

// observe takes a point into account. It returns nil if the point has no emissions.
func (b *batch) observe(p pmetric.NumberDataPoint, point account.Point) *account.Series {
	if p.Flags().NoRecordedValue() {
		return b.accounts.Lookup(point.Series)
	}
	var ok bool
	if point.Energy, ok = microjoules(p); !ok || point.At == 0 || point.At > math.MaxInt64 || point.Start > math.MaxInt64 {
		b.skips[metadata.AttributeSkipReasonValue]++
		return nil
	}
	s, reason := b.accounts.Observe(&point)
	b.skips[reason]++
	return s
}

// microjoules returns the value of a point in joules as whole microjoules. ok is false if the value
// is not an energy or does not fit in an int64.
func microjoules(p pmetric.NumberDataPoint) (energy uint64, ok bool) {
	if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
		v := p.IntValue()
		return uint64(v) * 1_000_000, 0 <= v && v <= math.MaxInt64/1_000_000
	}
	v := math.Round(p.DoubleValue() * 1e6)
	if v >= 0 && v < math.MaxInt64 { // a NaN is neither
		return uint64(v), p.ValueType() == pmetric.NumberDataPointValueTypeDouble
	}
	return 0, false
}

// label is an attribute with a fixed value.
type label struct{ key, value string }

// labels returns the attributes that emissions have in addition to the attributes of the energy.
func labels(intensity *source) []label {
	return []label{{attrAccounting, intensity.accounting}, {attrType, intensity.intensityType}}
}

// newEmissions appends a metric of emissions and returns its points.
func newEmissions(metrics pmetric.MetricSlice, name string, most int) pmetric.NumberDataPointSlice {
	m := metrics.AppendEmpty()
	m.SetName(name)
	m.SetDescription("Greenhouse gas emissions of the energy, in grams of CO2 equivalent.")
	m.SetUnit("g")
	sum := m.SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	sum.DataPoints().EnsureCapacity(most)
	return sum.DataPoints()
}

// write appends emissions in µg since start for a point of energy. If the energy has no value, the
// emissions have no value.
func write(to pmetric.NumberDataPointSlice, energy pmetric.NumberDataPoint, labels []label, total int64, start uint64) {
	p := to.AppendEmpty()
	p.SetTimestamp(energy.Timestamp())
	if energy.Flags().NoRecordedValue() {
		p.SetFlags(energy.Flags())
	} else {
		p.SetStartTimestamp(pcommon.Timestamp(start))
		p.SetDoubleValue(float64(total) / 1e6)
	}
	p.Attributes().EnsureCapacity(energy.Attributes().Len() + len(labels))
	energy.Attributes().CopyTo(p.Attributes())
	for _, l := range labels {
		p.Attributes().PutStr(l.key, l.value)
	}
}

// maxNames bounds names, which are cleared when there are more.
const maxNames = 10_000

// nameOf returns the name of the emissions of an energy metric.
func (p *emissionsProcessor) nameOf(energy string) string {
	if name, ok := p.names[energy]; ok {
		return name
	}
	if len(p.names) >= maxNames {
		clear(p.names)
	}
	name := strings.TrimSuffix(energy, ".energy") + ".emissions"
	p.names[strings.Clone(energy)] = name
	return name
}
