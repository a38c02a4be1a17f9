// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// aCollection returns the metrics of a program's series in the zone package that began at a time.
func aCollection(name string, start pcommon.Timestamp, joules float64) pmetric.Metrics {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	if name != "" {
		rm.Resource().Attributes().PutStr(attrExecutable, name)
	}
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName(metricProcessEnergy)
	p := m.SetEmptySum().DataPoints().AppendEmpty()
	p.SetStartTimestamp(start)
	p.SetDoubleValue(joules)
	p.Attributes().PutStr(attrZone, "package")
	p.Attributes().PutStr(attrSource, "measured")
	return md
}

func TestProgramsAreTheSumOfTheirSeries(t *testing.T) {
	totals := programTotals{}
	for _, md := range []pmetric.Metrics{
		aCollection("cc1", 1, 3),
		aCollection("cc1", 1, 5),
		aCollection("cc1", 2, 1.5), // the program ran again after its series had ended
		aCollection("make", 1, 1),
		aCollection("", 1, 2), // the overflow series
	} {
		totals.add(md)
	}
	r := &Result{Command: []string{"/usr/bin/make", "all"}, Zones: []Zone{
		{Name: "package", Source: "measured", Used: 10_000_000}, {Name: "dram", Source: "measured", Used: 1_000_000},
	}}
	totals.result(r)
	assert.Equal(t, []Program{
		{"cc1", []units.Energy{6_500_000, 0}}, {"make (descendants)", []units.Energy{2_500_000, 1_000_000}}, {"make", []units.Energy{1_000_000, 0}},
	}, r.Programs)

	r = &Result{Command: []string{"make"}}
	totals.result(r)
	assert.Empty(t, r.Programs, "no energy is known")
}
