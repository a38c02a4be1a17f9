// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"math"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// totals is the ledger since the receiver's baseline.
type totals struct {
	kinds map[power.Class]kindTotals
	// utilization is the node's in the last collection, negative where it is not known.
	utilization float64
}

// kindTotals is the energy of a zone kind. used is the command's, active and idle are the node's.
type kindTotals struct {
	used, active, idle units.Energy
}

// totalsOf reads the ledger from the receiver's metrics. All containers are the command.
func totalsOf(md pmetric.Metrics) totals {
	t := totals{kinds: map[power.Class]kindTotals{}, utilization: -1}
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				t.add(m)
			}
		}
	}
	return t
}

func (t *totals) add(m pmetric.Metric) {
	switch m.Name() {
	case metricSystemEnergy:
		t.each(m.Sum().DataPoints(), func(k *kindTotals, state string, e units.Energy) {
			if state == "idle" {
				k.idle = e
			} else {
				k.active = e
			}
		})
	case metricContainerEnergy:
		t.each(m.Sum().DataPoints(), func(k *kindTotals, _ string, e units.Energy) { k.used += e })
	case metricUtilization:
		for _, p := range m.Gauge().DataPoints().All() {
			t.utilization = p.DoubleValue()
		}
	}
}

func (t *totals) each(points pmetric.NumberDataPointSlice, set func(k *kindTotals, state string, e units.Energy)) {
	for _, p := range points.All() {
		kind := kindOfPoint(p)
		k := t.kinds[kind]
		set(&k, textOf(p.Attributes(), attrState), energyOf(p))
		t.kinds[kind] = k
	}
}

// kindOfPoint returns the zone kind of a data point.
func kindOfPoint(p pmetric.NumberDataPoint) power.Class {
	return power.Class{Zone: power.Kind(textOf(p.Attributes(), attrZone)), Method: power.Method(textOf(p.Attributes(), attrSource))}
}

// textOf returns an attribute, or an empty string if it is missing.
func textOf(attributes pcommon.Map, key string) string {
	v, ok := attributes.Get(key)
	if !ok {
		return ""
	}
	return v.AsString()
}

// energyOf returns the value of a data point, which is in joules.
func energyOf(p pmetric.NumberDataPoint) units.Energy {
	value := p.DoubleValue()
	if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
		value = float64(p.IntValue())
	}
	return units.Energy(math.Round(value * float64(units.Joule)))
}

// since returns the energy since an earlier ledger.
func (k kindTotals) since(earlier kindTotals) kindTotals {
	return kindTotals{
		used:   units.Advance(earlier.used, k.used),
		active: units.Advance(earlier.active, k.active),
		idle:   units.Advance(earlier.idle, k.idle),
	}
}
