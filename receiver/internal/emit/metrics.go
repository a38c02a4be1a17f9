// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"

	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// generated holds the properties of the generated MetricsBuilder for a configuration.
type generated struct {
	schemaURL      string
	scope, version string
	metrics        map[string]*metric // those that are enabled
}

// metric is an enabled metric. A nil *metric is disabled, or not in metadata.yaml.
type metric struct {
	name, description, unit string
	sum, monotonic          bool // else a gauge
	temporality             pmetric.AggregationTemporality
}

// generate records a point of each metric with the generated MetricsBuilder and takes apart the
// result. So each name, unit and description is written once, in metadata.yaml. The MetricsBuilder
// itself is too slow for each collection.
func generate(cfg metadata.MetricsBuilderConfig, info component.BuildInfo) generated {
	mb := metadata.NewMetricsBuilder(cfg, receiver.Settings{BuildInfo: info})
	recordEach(mb)
	g := generated{metrics: map[string]*metric{}}
	for _, rm := range mb.Emit().ResourceMetrics().All() {
		sm := rm.ScopeMetrics().At(0)
		g.schemaURL, g.scope, g.version = rm.SchemaUrl(), sm.Scope().Name(), sm.Scope().Version()
		for _, m := range sm.Metrics().All() {
			out := &metric{name: m.Name(), description: m.Description(), unit: m.Unit()}
			if m.Type() == pmetric.MetricTypeSum {
				out.sum, out.monotonic, out.temporality = true, m.Sum().IsMonotonic(), m.Sum().AggregationTemporality()
			}
			g.metrics[m.Name()] = out
		}
	}
	return g
}

// recordEach records a point of each metric, of any value.
func recordEach(mb *metadata.MetricsBuilder) {
	mb.RecordContainerCPUTimeDataPoint(0, 0)
	mb.RecordContainerDiskIoDataPoint(0, 0, 0)
	mb.RecordContainerEnergyDataPoint(0, 0, 0, 0)
	mb.RecordContainerNetworkIoDataPoint(0, 0, 0)
	mb.RecordContainerPowerDataPoint(0, 0, 0, 0)
	mb.RecordContainerPowerUncertaintyDataPoint(0, 0, 0, 0)
	mb.RecordHwEnergyDataPoint(0, 0, 0, 0, "", 0)
	mb.RecordHwGpuUtilizationDataPoint(0, 0, 0, "", 0)
	mb.RecordHwHostEnergyDataPoint(0, 0, 0, "")
	mb.RecordHwHostPowerDataPoint(0, 0, 0, "")
	mb.RecordHwPowerDataPoint(0, 0, 0, 0, "", 0)
	mb.RecordK8sPodEnergyDataPoint(0, 0, 0, 0)
	mb.RecordK8sPodNetworkIoDataPoint(0, 0, 0)
	mb.RecordK8sPodPowerDataPoint(0, 0, 0, 0)
	mb.RecordK8sPodPowerUncertaintyDataPoint(0, 0, 0, 0)
	mb.RecordProcessCPUTimeDataPoint(0, 0)
	mb.RecordProcessEnergyDataPoint(0, 0, 0, 0)
	mb.RecordProcessPowerDataPoint(0, 0, 0, 0)
	mb.RecordProcessPowerUncertaintyDataPoint(0, 0, 0, 0)
	mb.RecordSlurmStepEnergyDataPoint(0, 0, 0, 0)
	mb.RecordSlurmStepPowerDataPoint(0, 0, 0, 0)
	mb.RecordSystemCPUBusyDataPoint(0, 0)
	mb.RecordSystemCPUInfoDataPoint(0, 0, 0)
	mb.RecordSystemEnergyDataPoint(0, 0, 0, 0)
	mb.RecordSystemPowerDataPoint(0, 0, 0, 0)
	mb.RecordSystemPowerUncertaintyDataPoint(0, 0, 0, 0)
	mb.RecordSystemUnattributedEnergyDataPoint(0, 0, 0, 0)
	mb.RecordSystemdUnitEnergyDataPoint(0, 0, 0, 0)
	mb.RecordSystemdUnitPowerDataPoint(0, 0, 0, 0)
	mb.RecordVMEnergyDataPoint(0, 0, 0, 0)
	mb.RecordVMPowerDataPoint(0, 0, 0, 0)
	mb.RecordVMPowerUncertaintyDataPoint(0, 0, 0, 0)
}

// writer appends the points of one metric to one resource, and the metric itself with its first
// point, so that no metric is without points. A writer without a metric drops all points.
type writer struct {
	metric *metric
	into   pmetric.MetricSlice
	most   int // expected number of points
	// zero is the time of the zero-value points of the series that are written next, or 0 without
	// such points.
	zero   pcommon.Timestamp
	points pmetric.NumberDataPointSlice
	begun  bool
}

// write appends a point, after the zero point of its series if it has one. start is the start
// timestamp, which a gauge ignores.
func (w *writer) write(labels []label, start, at pcommon.Timestamp, value float64) {
	if w.metric == nil {
		return
	}
	if !w.begun {
		w.begun, w.points = true, w.begin(w.most)
	}
	if w.zero > 0 && w.zero/1e6 < at/1e6 { // backends with millisecond timestamps reject a second point in the same millisecond
		w.append(labels, start, w.zero, 0)
	}
	w.append(labels, start, at, value)
}

func (w *writer) append(labels []label, start, at pcommon.Timestamp, value float64) {
	p := w.points.AppendEmpty()
	if w.metric.sum {
		p.SetStartTimestamp(start)
	}
	p.SetTimestamp(at)
	p.SetDoubleValue(value)
	put(labels, p.Attributes())
}

// end appends a point with the no-recorded-value flag: the series has ended, and backends drop it
// at once instead of after a timeout. Each such point has its own metric, because the collector's
// Prometheus exporter ignores the points of a metric after the first point with this flag.
func (w *writer) end(labels []label, at pcommon.Timestamp) {
	if w.metric == nil {
		return
	}
	p := w.begin(1).AppendEmpty()
	p.SetTimestamp(at)
	p.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
	put(labels, p.Attributes())
}

// begin appends the metric, with room for n points.
func (w *writer) begin(n int) (points pmetric.NumberDataPointSlice) {
	m := w.into.AppendEmpty()
	m.SetName(w.metric.name)
	m.SetDescription(w.metric.description)
	m.SetUnit(w.metric.unit)
	if w.metric.sum {
		s := m.SetEmptySum()
		s.SetIsMonotonic(w.metric.monotonic)
		s.SetAggregationTemporality(w.metric.temporality)
		points = s.DataPoints()
	} else {
		points = m.SetEmptyGauge().DataPoints()
	}
	points.EnsureCapacity(n)
	return points
}
