// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// schemaURL is the version of the semantic conventions that the names follow, sem_conv_version of
// metadata.yaml.
const schemaURL = "https://opentelemetry.io/schemas/1.43.0"

// metric is the identity of a metric: what metadata.yaml says of it.
type metric struct {
	name, description, unit string
	sum                     bool // a cumulative, monotonic sum; else a gauge
}

var (
	hwEnergy             = metric{"hw.energy", "Energy used by a hardware zone, one per socket or die, since the zone was first read.", "J", true}
	hwPower              = metric{"hw.power", "Average power of a hardware zone, one per socket or die, over the interval just ended.", "W", false}
	hwHostEnergy         = metric{"hw.host.energy", "Energy used by the whole machine since its meter was first read.", "J", true}
	hwHostPower          = metric{"hw.host.power", "Average power of the whole machine over the interval just ended.", "W", false}
	systemEnergy         = metric{"system.energy", "Energy used by the node since the receiver started, all sockets together, split into active and idle.", "J", true}
	systemPower          = metric{"system.power", "Average power of the node over the interval just ended, all sockets together, split into active and idle.", "W", false}
	systemUnattributed   = metric{"system.unattributed.energy", "Attributed energy that no process can be named for, since the receiver started.", "J", true}
	systemCPUUtilization = metric{"system.cpu.utilization", "Share of the node's CPU time that was busy in the interval just ended, between 0 and 1.", "1", false}
	systemCPUInfo        = metric{"system.cpu.info", "The node's logical CPUs, 1 for each.", "{cpu}", false}
	systemSplitLearned   = metric{"system.energy.split.learned", "1 where energy is split by what was learned, 0 where it is split by utilization until enough was.", "1", false}
	processEnergy        = metric{"process.energy", "Energy attributed to the process since its series began.", "J", true}
	processPower         = metric{"process.power", "Average power attributed to the process over the interval just ended.", "W", false}
	processCPUTime       = metric{"process.cpu.time", "CPU time that the process used since its series began.", "s", true}
	containerEnergy      = metric{"container.energy", "Energy attributed to the container since its series began.", "J", true}
	containerPower       = metric{"container.power", "Average power attributed to the container over the interval just ended.", "W", false}
	containerCPUTime     = metric{"container.cpu.time", "CPU time that the container used since its series began.", "s", true}
	podEnergy            = metric{"k8s.pod.energy", "Energy attributed to the pod since its series began.", "J", true}
	podPower             = metric{"k8s.pod.power", "Average power attributed to the pod over the interval just ended.", "W", false}
	vmEnergy             = metric{"vm.energy", "Energy attributed to the virtual machine since its series began.", "J", true}
	vmPower              = metric{"vm.power", "Average power attributed to the virtual machine over the interval just ended.", "W", false}

	processUncertainty   = metric{"process.power.uncertainty", "How far the process's power is typically off because the node's is from what was learned of it.", "W", false}
	containerUncertainty = metric{"container.power.uncertainty", "How far the container's power is typically off because the node's is from what was learned of it.", "W", false}
	podUncertainty       = metric{"k8s.pod.power.uncertainty", "How far the pod's power is typically off because the node's is from what was learned of it.", "W", false}
	vmUncertainty        = metric{"vm.power.uncertainty", "How far the virtual machine's power is typically off because the node's is from what was learned of it.", "W", false}
)

// points is where the data points of one metric of one resource go. The metric itself is appended with
// its first point, so that none is ever empty.
type points struct {
	metric *metric
	into   pmetric.MetricSlice
	most   int // how many points there can be
	slice  pmetric.NumberDataPointSlice
	begun  bool
}

func (p *points) add(start, at pcommon.Timestamp, value float64) pmetric.NumberDataPoint {
	if !p.begun {
		p.begun = true
		p.slice = p.begin(p.most)
	}
	point := p.slice.AppendEmpty()
	if p.metric.sum {
		point.SetStartTimestamp(start)
	}
	point.SetTimestamp(at)
	point.SetDoubleValue(value)
	return point
}

// end appends a point with the no-recorded-value flag: the series has ended, and backends drop it at once instead of
// when it has been silent for a while. Each has a metric of its own, as the collector's Prometheus exporter reads no
// point of a metric after the first with that flag.
func (p *points) end(at pcommon.Timestamp) pmetric.NumberDataPoint {
	point := p.begin(1).AppendEmpty()
	point.SetTimestamp(at)
	point.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
	return point
}

// begin appends the metric, with room for n points.
func (p *points) begin(n int) (slice pmetric.NumberDataPointSlice) {
	m := p.into.AppendEmpty()
	m.SetName(p.metric.name)
	m.SetDescription(p.metric.description)
	m.SetUnit(p.metric.unit)
	if p.metric.sum {
		s := m.SetEmptySum()
		s.SetIsMonotonic(true)
		s.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		slice = s.DataPoints()
	} else {
		slice = m.SetEmptyGauge().DataPoints()
	}
	slice.EnsureCapacity(n)
	return slice
}
