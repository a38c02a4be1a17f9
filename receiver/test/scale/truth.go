// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// truth is the measurement of one node, whether or not it was delivered.
type truth struct {
	mark   time.Time         // totals until then are before the window
	byOTLP map[string]*track // by metric and attributes in the order of OTLP
	tracks map[string]*track // by metric and labels of the store
	key    []byte            // scratch
}

// track is one series as the node made it.
type track struct {
	metric  string // its name in the store
	counter bool
	points  int
	first   time.Time
	at      time.Time // of the last point
	last    float64   // joules or watts
	before  float64   // the last value that was delivered before the window, 0 if none was
}

func newTruth(mark time.Time) *truth {
	return &truth{mark: mark, byOTLP: map[string]*track{}, tracks: map[string]*track{}}
}

// add adds a collection. A point that is sent again is the same point.
func (t *truth) add(md pmetric.Metrics) error {
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				var points pmetric.NumberDataPointSlice
				switch m.Type() {
				case pmetric.MetricTypeSum:
					points = m.Sum().DataPoints()
				case pmetric.MetricTypeGauge:
					points = m.Gauge().DataPoints()
				default:
					return fmt.Errorf("%s is a %v", m.Name(), m.Type())
				}
				for _, p := range points.All() {
					if p.Flags().NoRecordedValue() {
						continue
					}
					track, err := t.find(rm.Resource(), m, p)
					if err != nil {
						return err
					}
					track.add(p.Timestamp().AsTime(), p.DoubleValue())
				}
			}
		}
	}
	return nil
}

func (t *track) add(at time.Time, value float64) {
	if t.points > 0 && at.Equal(t.at) {
		return
	}
	if t.points == 0 {
		t.first = at
	}
	t.points++
	t.at, t.last = at, value
}

// acknowledged notes that the last collection was delivered. If it was before the window, the
// window begins with its totals.
func (t *truth) acknowledged() {
	for _, s := range t.tracks {
		if s.at.Before(t.mark) {
			s.before = s.last
		}
	}
}

// find returns the series of a point.
func (t *truth) find(r pcommon.Resource, m pmetric.Metric, p pmetric.NumberDataPoint) (*track, error) {
	t.key = append(t.key[:0], m.Name()...)
	for _, attributes := range []pcommon.Map{r.Attributes(), p.Attributes()} {
		for name, value := range attributes.All() {
			t.key = append(append(t.key, 0), name...)
			if t.key = append(t.key, 0); value.Type() == pcommon.ValueTypeStr {
				t.key = append(t.key, value.Str()...)
			} else {
				t.key = append(t.key, value.AsString()...)
			}
		}
	}
	if known, ok := t.byOTLP[string(t.key)]; ok {
		return known, nil
	}
	name, err := storedName(m)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{}
	for _, attributes := range []pcommon.Map{r.Attributes(), p.Attributes()} {
		for name, value := range attributes.All() {
			labels[strings.ReplaceAll(name, ".", "_")] = value.AsString()
		}
	}
	made := &track{metric: name, counter: m.Type() == pmetric.MetricTypeSum}
	key := seriesKey(name, labels)
	if t.tracks[key] != nil {
		return nil, fmt.Errorf("two series have the labels %s", key)
	}
	t.byOTLP[string(t.key)], t.tracks[key] = made, made
	return made, nil
}

// storedName returns the name that Prometheus and Mimir give a metric:
// https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/#metric-metadata-1
func storedName(m pmetric.Metric) (string, error) {
	unit, known := map[string]string{"J": "_joules", "W": "_watts"}[m.Unit()]
	if !known {
		return "", fmt.Errorf("%s has the unit %q", m.Name(), m.Unit())
	}
	name := strings.ReplaceAll(m.Name(), ".", "_") + unit
	if m.Type() == pmetric.MetricTypeSum {
		name += "_total"
	}
	return name, nil
}

// seriesKey identifies a series by its metric and labels.
func seriesKey(metric string, labels map[string]string) string {
	var pairs []string
	for name, value := range labels {
		if value != "" && name != "__name__" && !strings.HasPrefix(name, "otel_scope_") {
			pairs = append(pairs, name+"="+value)
		}
	}
	slices.Sort(pairs)
	return metric + "{" + strings.Join(pairs, ",") + "}"
}

// increase returns what a counter had more at the end than before the window.
func (t *track) increase() float64 { return t.last - t.before }

// increaseOf returns the increase of all series of a metric, in joules.
func (t *truth) increaseOf(metric string) (joules float64) {
	for _, s := range t.tracks {
		if s.metric == metric {
			joules += s.increase()
		}
	}
	return joules
}
