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
	md    pmetric.Metrics
	now   time.Time
	skips [numSkips]int64
	// opened reports whether the origins of all scopes are open.
	opened bool
	// lastName, lastVersion and lastScope belong to the last scope without attributes: most are the
	// same.
	lastName, lastVersion string
	lastScope             uint64
}

// The reasons why points have no emissions.
const (
	skipInconsistent = metadata.AttributeSkipReasonInconsistent
	skipLimit        = metadata.AttributeSkipReasonLimit
	skipOutOfOrder   = metadata.AttributeSkipReasonOutOfOrder
	skipTemporality  = metadata.AttributeSkipReasonTemporality
	skipValue        = metadata.AttributeSkipReasonValue
	numSkips         = skipValue + 1
)

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
				b.addToScope(sm.Metrics(), n, resource.in(b.scopeOf(sm.Scope())))
			}
		}
	}
}

// scopeOf returns the identity of an instrumentation scope.
func (b *batch) scopeOf(s pcommon.InstrumentationScope) uint64 {
	if s.Attributes().Len() > 0 {
		return b.ids.scope(s)
	}
	if b.lastScope == 0 || s.Name() != b.lastName || s.Version() != b.lastVersion {
		b.lastName, b.lastVersion, b.lastScope = s.Name(), s.Version(), b.ids.scope(s)
	}
	return b.lastScope
}

// countEnergies returns how many metrics have emissions, and counts the points of energies
// without emissions.
func (b *batch) countEnergies(metrics pmetric.MetricSlice) (n int) {
	for i := range metrics.Len() {
		switch m := metrics.At(i); {
		case !isEnergy(m):
		case m.Sum().AggregationTemporality() == pmetric.AggregationTemporalityDelta:
			b.skips[skipTemporality] += int64(m.Sum().DataPoints().Len())
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
	if b.embodied != nil {
		b.embodied.add(metrics, before, scope.id, b.now)
	}
}

// openOrigins opens the origins that are new, each from the earliest start time of its points that
// was followed.
func (b *batch) openOrigins() {
	b.opened = true
	starts := map[uint64]uint64{}
	for _, rm := range b.md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			start := b.earliestStart(sm.Metrics())
			if start == 0 {
				continue
			}
			origin := b.ids.resource(rm.Resource().Attributes()).in(b.ids.scope(sm.Scope())).origin
			if !b.accounts.Knows(origin) && (starts[origin] == 0 || start < starts[origin]) {
				starts[origin] = start
			}
		}
	}
	for origin, start := range starts {
		b.accounts.Open(origin, start)
	}
}

// earliestStart returns the earliest start time of energy that was followed, or 0.
func (b *batch) earliestStart(metrics pmetric.MetricSlice) (earliest uint64) {
	for _, m := range metrics.All() {
		if !isCounted(m) {
			continue
		}
		for _, p := range m.Sum().DataPoints().All() {
			start := uint64(p.StartTimestamp())
			if b.accounts.Follows(start) && start < uint64(p.Timestamp()) && (earliest == 0 || start < earliest) {
				earliest = start
			}
		}
	}
	return earliest
}

// addTo adds the emissions of one energy metric.
func (b *batch) addTo(metrics pmetric.MetricSlice, energy pmetric.Metric, scope identity) {
	name := b.names.of(energy.Name())
	points := energy.Sum().DataPoints()
	out := writer{labels: b.labels, metrics: metrics, name: name.emissions, most: points.Len()}
	id := mix(scope.id, name.id)
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
		if zeroPoint >= 0 {
			out.writeZero(points.At(zeroPoint), s)
		}
		out.write(p, s)
	}
}

// isZeroPoint reports whether the i-th point is the zero point of a series: it has the value 0, and
// the first value follows.
//
// It is not taken into account, so that the first value has the rate of the interval of all others
// of its origin.
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
		b.skips[skipValue]++
		return nil
	}
	s, outcome := b.accounts.Observe(&point)
	switch outcome {
	case account.Counted:
	case account.Inconsistent:
		b.skips[skipInconsistent]++
	case account.OutOfOrder:
		b.skips[skipOutOfOrder]++
		return nil
	case account.Full:
		b.skips[skipLimit]++
	}
	return s
}

// microjoules returns the value of a point in joules as whole microjoules. It is not ok if that
// is no energy, or too much for an int64.
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

// writer appends emission points, and their metric with the first of them.
type writer struct {
	labels  []label
	metrics pmetric.MetricSlice
	name    string
	most    int // number of points to expect
	points  pmetric.NumberDataPointSlice
	begun   bool
}

// write appends the emissions of a series for a point of its energy. If the energy has no value,
// the emissions have no value.
func (w *writer) write(energy pmetric.NumberDataPoint, s *account.Series) {
	if total, start, ok := s.Total(); ok {
		w.append(energy, total, start)
	}
}

// writeZero appends the zero-value point for the zero-value point of the energy, if the emissions
// were 0 at its time.
func (w *writer) writeZero(energy pmetric.NumberDataPoint, s *account.Series) {
	if _, start, ok := s.Total(); ok && start < uint64(energy.Timestamp()) {
		w.append(energy, 0, start)
	}
}

func (w *writer) append(energy pmetric.NumberDataPoint, total int64, start uint64) {
	if !w.begun {
		w.begun, w.points = true, w.begin()
	}
	p := w.points.AppendEmpty()
	p.SetTimestamp(energy.Timestamp())
	if energy.Flags().NoRecordedValue() {
		p.SetFlags(energy.Flags())
	} else {
		p.SetStartTimestamp(pcommon.Timestamp(start))
		p.SetDoubleValue(float64(total) / 1e6)
	}
	attributes := p.Attributes()
	attributes.EnsureCapacity(energy.Attributes().Len() + len(w.labels))
	energy.Attributes().CopyTo(attributes)
	for i := range w.labels {
		attributes.PutStr(w.labels[i].key, w.labels[i].value)
	}
}

func (w *writer) begin() pmetric.NumberDataPointSlice {
	m := w.metrics.AppendEmpty()
	m.SetName(w.name)
	m.SetDescription("Greenhouse gas emissions of the energy, in grams of CO2 equivalent.")
	m.SetUnit("g")
	sum := m.SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	points := sum.DataPoints()
	points.EnsureCapacity(w.most)
	return points
}

// names holds the names of emission metrics.
type names struct {
	ids identities
	all map[string]*metricName // by the name of the energy metric
}

type metricName struct {
	id        uint64 // of the energy metric
	emissions string
}

// maxNames bounds names. Names beyond it are made each time.
const maxNames = 10_000

func (n *names) of(energy string) *metricName {
	if known := n.all[energy]; known != nil {
		return known
	}
	if len(n.all) >= maxNames {
		clear(n.all)
	}
	made := &metricName{id: n.ids.text(energy), emissions: strings.TrimSuffix(energy, ".energy") + ".emissions"}
	n.all[strings.Clone(energy)] = made
	return made
}
