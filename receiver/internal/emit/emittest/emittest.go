// SPDX-License-Identifier: Apache-2.0

// Package emittest checks metrics as a backend that keeps one point of each series would see them.
package emittest

import (
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// IsZeroPoint reports whether the i-th point is the zero point of a series, which its first value follows.
func IsZeroPoint(points pmetric.NumberDataPointSlice, i int) bool {
	if i+1 >= points.Len() {
		return false
	}
	p, value := points.At(i), points.At(i+1)
	return p.DoubleValue() == 0 && p.StartTimestamp() == value.StartTimestamp() && p.StartTimestamp() < p.Timestamp() &&
		p.Timestamp() < value.Timestamp() && p.Attributes().Equal(value.Attributes())
}

// Duplicate returns an error that names the first two points of one series: points of a metric whose resource and
// attributes are equal, whatever their timestamps. A zero point is no duplicate of the value after it.
func Duplicate(md pmetric.Metrics) error {
	seen := map[string]pmetric.NumberDataPoint{}
	for _, rm := range md.ResourceMetrics().All() {
		resource := identity(rm.Resource().Attributes())
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				for i, p := range points(m).All() {
					if IsZeroPoint(points(m), i) {
						continue
					}
					series := m.Name() + " {" + resource + "} {" + identity(p.Attributes()) + "}"
					if other, ok := seen[series]; ok {
						return fmt.Errorf("two points of %s: %s and %s", series, describe(other), describe(p))
					}
					seen[series] = p
				}
			}
		}
	}
	return nil
}

// points returns the points of a sum or gauge.
func points(m pmetric.Metric) pmetric.NumberDataPointSlice {
	if m.Type() == pmetric.MetricTypeGauge {
		return m.Gauge().DataPoints()
	}
	return m.Sum().DataPoints()
}

func describe(p pmetric.NumberDataPoint) string {
	if p.Flags().NoRecordedValue() {
		return fmt.Sprintf("no recorded value at %v", p.Timestamp().AsTime())
	}
	return fmt.Sprintf("%v at %v since %v", p.DoubleValue(), p.Timestamp().AsTime(), p.StartTimestamp().AsTime())
}

func identity(attributes pcommon.Map) string {
	all := make([]string, 0, attributes.Len())
	for k, v := range attributes.All() {
		all = append(all, k+"="+v.AsString())
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
