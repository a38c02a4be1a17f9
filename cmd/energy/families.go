// SPDX-License-Identifier: Apache-2.0

package main

import (
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// familiesOf returns sums and gauges as the collector's Prometheus exporter serves them, resource
// attributes as labels included, so that there is one kind of names to know.
func familiesOf(md pmetric.Metrics) (map[string]*dto.MetricFamily, error) {
	t := translation{
		families: map[string]*dto.MetricFamily{},
		metrics:  otlptranslator.MetricNamer{WithMetricSuffixes: true},
	}
	for _, resource := range md.ResourceMetrics().All() {
		labels, err := t.appendLabels(nil, resource.Resource().Attributes())
		if err != nil {
			return nil, err
		}
		for _, scope := range resource.ScopeMetrics().All() {
			for _, metric := range scope.Metrics().All() {
				if err := t.add(metric, labels); err != nil {
					return nil, err
				}
			}
		}
	}
	return t.families, nil
}

// translation collects families.
type translation struct {
	families map[string]*dto.MetricFamily
	metrics  otlptranslator.MetricNamer
	labels   otlptranslator.LabelNamer
}

// add adds the data points of a metric. A point without a value is the end of its series, and is left out.
func (t *translation) add(metric pmetric.Metric, resource []*dto.LabelPair) error {
	translated := otlptranslator.Metric{Name: metric.Name(), Unit: metric.Unit(), Type: otlptranslator.MetricTypeGauge}
	var points pmetric.NumberDataPointSlice
	switch metric.Type() {
	case pmetric.MetricTypeGauge:
		points = metric.Gauge().DataPoints()
	case pmetric.MetricTypeSum:
		points = metric.Sum().DataPoints()
		translated.Type = otlptranslator.MetricTypeNonMonotonicCounter
		if metric.Sum().IsMonotonic() {
			translated.Type = otlptranslator.MetricTypeMonotonicCounter
		}
	default:
		return nil
	}
	name, err := t.metrics.Build(translated)
	if err != nil {
		return err
	}
	family := t.families[name]
	if family == nil {
		family = &dto.MetricFamily{Name: &name}
		t.families[name] = family
	}
	for _, p := range points.All() {
		if p.Flags().NoRecordedValue() {
			continue
		}
		labels, err := t.appendLabels(resource[:len(resource):len(resource)], p.Attributes())
		if err != nil {
			return err
		}
		value := p.DoubleValue()
		if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
			value = float64(p.IntValue())
		}
		family.Metric = append(family.Metric, &dto.Metric{
			Label: labels, Untyped: &dto.Untyped{Value: &value}, TimestampMs: new(p.Timestamp().AsTime().UnixMilli()),
		})
	}
	return nil
}

func (t *translation) appendLabels(labels []*dto.LabelPair, attributes pcommon.Map) ([]*dto.LabelPair, error) {
	for key, value := range attributes.All() {
		name, err := t.labels.Build(key)
		if err != nil {
			return nil, err
		}
		labels = append(labels, &dto.LabelPair{Name: &name, Value: new(value.AsString())})
	}
	return labels, nil
}
