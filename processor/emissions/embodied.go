// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"math"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/metadata"
)

// embodied adds the embodied emissions of each machine, which grow with time only.
type embodied struct {
	total    uint64 // µg over the lifespan
	lifespan uint64 // ns
	since    uint64 // when the processor began
	most     int    // machines that are followed
	machines map[uint64]*machine
}

// machine is a scope that has energy of a whole machine.
type machine struct {
	start, at uint64
	seen      time.Time
}

func newEmbodied(c *EmbodiedConfig, since time.Time, most int) *embodied {
	return &embodied{
		total: uint64(math.Round(c.Total * c.Share * 1e6)), lifespan: uint64(c.Lifespan), since: uint64(since.UnixNano()),
		most: most, machines: map[uint64]*machine{},
	}
}

// add adds the metric to a scope if one of its first metrics is the energy of a machine. The
// emissions start at the start time of the energy, or at its first point if the energy started
// before the processor.
func (e *embodied) add(metrics pmetric.MetricSlice, first int, scope uint64, now time.Time) {
	start, at := timesOfMachine(metrics, first)
	if at == 0 {
		return
	}
	m := e.machines[scope]
	if m == nil {
		if len(e.machines) >= e.most {
			return
		}
		if start < e.since || start > at {
			start = at
		}
		m = &machine{start: start}
		e.machines[scope] = m
	}
	m.seen = now
	if at < m.at || at < m.start {
		return
	}
	m.at = at
	metric := metrics.AppendEmpty()
	describe(metric, metadata.MetricsInfo.HostEmbodiedEmissions.Name)
	sum := metric.SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	p := sum.DataPoints().AppendEmpty()
	p.SetStartTimestamp(pcommon.Timestamp(m.start))
	p.SetTimestamp(pcommon.Timestamp(at))
	p.SetDoubleValue(float64(units.MulDiv(e.total, at-m.start, e.lifespan)) / 1e6)
}

// forget forgets the machines that were not seen since a time.
func (e *embodied) forget(since time.Time) {
	for id, m := range e.machines {
		if m.seen.Before(since) {
			delete(e.machines, id)
		}
	}
}

// timesOfMachine returns the times of a point of a machine's energy, among the first metrics of a
// scope, or 0.
func timesOfMachine(metrics pmetric.MetricSlice, first int) (start, at uint64) {
	for i := range first {
		switch m := metrics.At(i); m.Name() {
		case "system.energy", "hw.energy", "hw.host.energy":
			if !isCounted(m) || m.Sum().DataPoints().Len() == 0 {
				continue
			}
			points := m.Sum().DataPoints()
			p := points.At(0)
			if isZeroPoint(points, 0) {
				p = points.At(1)
			}
			return uint64(p.StartTimestamp()), uint64(p.Timestamp())
		}
	}
	return 0, 0
}
