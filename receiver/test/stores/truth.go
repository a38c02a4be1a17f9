// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"slices"
	"sort"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// Truth is the ground truth of the hour: the counts of the machine's meters, and the data that the
// receiver sent for each workload.
type Truth struct {
	// Begin and End are the bounds of the hour. Before it the receiver has run for some minutes.
	Begin, End time.Time
	// Births is the number of processes that were created in the hour.
	Births int
	// Restarts are the restarts of the receiver.
	Restarts []Restart
	// Meters are the counts of the simulated machine's zones at each collection, by zone kind, in
	// joules since the receiver's first baseline. The receiver has no part in these figures.
	Meters map[string][]Point
	// Series are the counters that were sent, by their keys.
	Series map[string]*Series
}

// Restart is an end of the receiver and its next start.
type Restart struct {
	Kind     string
	Down, Up time.Time
}

// Series is a counter as it was sent.
type Series struct {
	// Metric is its name, Attributes those of the resource and of the points, by their names in OTLP.
	Metric     string
	Attributes map[string]string
	// Born is the start time of the first point.
	Born time.Time
	// Points are its values in the order of time. A value after a reset is added to the value before.
	Points []Point
	// Resets is how often it began again at 0, with another start time.
	Resets int

	start time.Time
	last  float64
}

// Point is a total in joules at a time.
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

// Meter returns what the machine's zones of a kind counted between the last collections until two times, in joules.
func (t *Truth) Meter(kind string, from, to time.Time) float64 {
	return at(t.Meters[kind], to) - at(t.Meters[kind], from)
}

// Increase returns what a counter increased by between the last collections until two times.
func (s *Series) Increase(from, to time.Time) float64 { return at(s.Points, to) - at(s.Points, from) }

// Match returns the series of a metric that have all of these attributes.
func (t *Truth) Match(metric string, attributes map[string]string) (found []*Series) {
	for _, s := range t.Series {
		if s.Metric == metric && s.has(attributes) {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b *Series) int { return a.Born.Compare(b.Born) })
	return found
}

func (s *Series) has(attributes map[string]string) bool {
	for name, value := range attributes {
		if s.Attributes[name] != value {
			return false
		}
	}
	return true
}

// add notes the counters of a collection.
func (t *Truth) add(md pmetric.Metrics) {
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if m.Type() != pmetric.MetricTypeSum || !m.Sum().IsMonotonic() {
					continue
				}
				for _, p := range m.Sum().DataPoints().All() {
					t.series(m.Name(), rm.Resource().Attributes(), p.Attributes()).add(p)
				}
			}
		}
	}
}

func (t *Truth) series(metric string, resource, point pcommon.Map) *Series {
	s := &Series{Metric: metric, Attributes: map[string]string{}}
	for _, m := range []pcommon.Map{resource, point} {
		for name, value := range m.All() {
			s.Attributes[name] = value.AsString()
		}
	}
	key := s.key()
	if known := t.Series[key]; known != nil {
		return known
	}
	t.Series[key] = s
	return s
}

func (s *Series) key() string {
	var b strings.Builder
	b.WriteString(s.Metric)
	names := make([]string, 0, len(s.Attributes))
	for name := range s.Attributes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b.WriteString("\x00" + name + "\x00" + s.Attributes[name])
	}
	return b.String()
}

func (s *Series) add(p pmetric.NumberDataPoint) {
	if p.Flags().NoRecordedValue() {
		return
	}
	value, start, total := p.DoubleValue(), p.StartTimestamp().AsTime(), 0.0
	if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
		value = float64(p.IntValue())
	}
	if n := len(s.Points); n > 0 {
		total = s.Points[n-1].Value
	} else {
		s.Born = start
	}
	if len(s.Points) > 0 && !start.Equal(s.start) {
		s.Resets++
		s.last = 0
	}
	s.Points = append(s.Points, Point{p.Timestamp().AsTime(), total + value - s.last})
	s.start, s.last = start, value
}

// shift moves all times.
func (t *Truth) shift(by time.Duration) {
	t.Begin, t.End = t.Begin.Add(by), t.End.Add(by)
	for i := range t.Restarts {
		r := &t.Restarts[i]
		r.Down, r.Up = r.Down.Add(by), r.Up.Add(by)
	}
	move := func(points []Point) {
		for i := range points {
			points[i].At = points[i].At.Add(by)
		}
	}
	for _, points := range t.Meters {
		move(points)
	}
	for _, s := range t.Series {
		s.Born, s.start = s.Born.Add(by), s.start.Add(by)
		move(s.Points)
	}
}
