// SPDX-License-Identifier: Apache-2.0

package series

import (
	"sort"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// Truth is the data that a receiver sent, and the counts of its machine's meters.
type Truth struct {
	// Begin and End are the bounds of the period that queries ask about.
	Begin, End time.Time
	// Meters are the totals of the machine's zones at each collection, by zone kind, in joules since
	// the first baseline of the receiver. The receiver has no part in these values.
	Meters map[string][]Point
	// Series are the series that were sent, by Key.
	Series map[string]*Series
}

// NewTruth returns a Truth without data.
func NewTruth() *Truth { return &Truth{Meters: map[string][]Point{}, Series: map[string]*Series{}} }

// Series is a counter or a gauge as it was sent.
type Series struct {
	// Metric is the name in OTLP, and Stored the name in Prometheus.
	Metric, Stored string
	Counter        bool
	// Attributes are the attributes of the resource and of the points, by their names in OTLP.
	Attributes map[string]string
	// Points are the values in the order of time. If a counter restarted, its values include the
	// value before the restart.
	Points []Point
	// Resets is the number of times that the counter restarted at 0 with another start time.
	Resets int

	start time.Time
	base  float64 // value before the last restart
}

// Point is a value in joules or watts at a time.
type Point struct {
	At    time.Time
	Value float64
}

// at returns the last value until a time, 0 before the first.
func at(points []Point, when time.Time) float64 {
	i := sort.Search(len(points), func(i int) bool { return points[i].At.After(when) })
	if i == 0 {
		return 0
	}
	return points[i-1].Value
}

// Meter returns the energy that the machine's zones of a kind counted between the last collections
// until two times, in joules.
func (t *Truth) Meter(kind string, from, to time.Time) float64 {
	return at(t.Meters[kind], to) - at(t.Meters[kind], from)
}

// Increase returns the increase of a counter between the last collections until two times.
func (s *Series) Increase(from, to time.Time) float64 { return at(s.Points, to) - at(s.Points, from) }

// Last returns the last point.
func (s *Series) Last() Point { return s.Points[len(s.Points)-1] }

// Match returns the series of a metric in a zone, or in all zones if zone is empty.
func (t *Truth) Match(metric, zone string) (found []*Series) {
	for _, s := range t.Series {
		if s.Metric == metric && (zone == "" || s.Attributes["energy.zone"] == zone) {
			found = append(found, s)
		}
	}
	return found
}

// By returns the increase of the series of a metric in a zone, or in all zones if zone is empty, by
// the value of an attribute.
func (t *Truth) By(metric, attribute, zone string, from, to time.Time) map[string]float64 {
	sums := map[string]float64{}
	for _, s := range t.Match(metric, zone) {
		if joules := s.Increase(from, to); joules > 0 {
			sums[s.Attributes[attribute]] += joules
		}
	}
	return sums
}

// Add adds a collection.
func (t *Truth) Add(md pmetric.Metrics) {
	each(md, func(resource pcommon.Map, m pmetric.Metric, p pmetric.NumberDataPoint) {
		if !p.Flags().NoRecordedValue() {
			t.find(resource, m, p).add(p)
		}
	})
}

// each calls f for each point of counters and gauges.
func each(md pmetric.Metrics, f func(resource pcommon.Map, m pmetric.Metric, p pmetric.NumberDataPoint)) {
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				points := pmetric.NewNumberDataPointSlice()
				switch m.Type() {
				case pmetric.MetricTypeSum:
					points = m.Sum().DataPoints()
				case pmetric.MetricTypeGauge:
					points = m.Gauge().DataPoints()
				}
				for _, p := range points.All() {
					f(rm.Resource().Attributes(), m, p)
				}
			}
		}
	}
}

// find returns the series of a point.
func (t *Truth) find(resource pcommon.Map, m pmetric.Metric, p pmetric.NumberDataPoint) *Series {
	s := &Series{Metric: m.Name(), Counter: m.Type() == pmetric.MetricTypeSum, Attributes: map[string]string{}}
	s.Stored = Stored(m.Name(), m.Unit(), s.Counter)
	labels := map[string]string{}
	for _, attributes := range []pcommon.Map{resource, p.Attributes()} {
		for name, value := range attributes.All() {
			s.Attributes[name], labels[Label(name)] = value.AsString(), value.AsString()
		}
	}
	key := Key(s.Stored, labels)
	if known := t.Series[key]; known != nil {
		return known
	}
	t.Series[key] = s
	return s
}

// add adds a point. A point that is not newer than the last is ignored: it was sent before.
func (s *Series) add(p pmetric.NumberDataPoint) {
	at, start := p.Timestamp().AsTime(), p.StartTimestamp().AsTime()
	if len(s.Points) > 0 {
		if !at.After(s.Last().At) {
			return
		}
		if s.Counter && !start.Equal(s.start) {
			s.Resets++
			s.base = s.Last().Value
		}
	}
	s.start = start
	s.Points = append(s.Points, Point{at, s.base + p.DoubleValue()})
}

// shift moves all times.
func (t *Truth) shift(by time.Duration) {
	move := func(points []Point) {
		for i := range points {
			points[i].At = points[i].At.Add(by)
		}
	}
	for _, points := range t.Meters {
		move(points)
	}
	for _, s := range t.Series {
		move(s.Points)
		s.start = s.start.Add(by)
	}
	t.Begin, t.End = t.Begin.Add(by), t.End.Add(by)
}
