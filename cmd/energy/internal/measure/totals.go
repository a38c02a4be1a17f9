// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"math"

	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// totals is the ledger since the receiver's baseline.
type totals struct {
	kinds map[claims.Kind]kindTotals
	// utilization is the node's in the last collection, negative where it is not known.
	utilization float64
}

// kindTotals is the energy of a zone kind. used is the command's, active and idle are the node's.
type kindTotals struct {
	used, active, idle units.Energy
	learned            bool // its static power model is trained
}

// totalsOf reads the ledger from the receiver's metrics. All containers are the command.
func totalsOf(md pmetric.Metrics) totals {
	t := totals{kinds: map[claims.Kind]kindTotals{}, utilization: -1}
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
	case "system.energy":
		t.each(m.Sum().DataPoints(), func(k *kindTotals, state string, e units.Energy) {
			if state == "idle" {
				k.idle = e
			} else {
				k.active = e
			}
		})
	case "container.energy":
		t.each(m.Sum().DataPoints(), func(k *kindTotals, _ string, e units.Energy) { k.used += e })
	case "system.energy.split.learned":
		t.each(m.Gauge().DataPoints(), func(k *kindTotals, _ string, e units.Energy) { k.learned = e > 0 })
	case "system.cpu.utilization":
		for _, p := range m.Gauge().DataPoints().All() {
			t.utilization = p.DoubleValue()
		}
	}
}

func (t *totals) each(points pmetric.NumberDataPointSlice, set func(k *kindTotals, state string, e units.Energy)) {
	for _, p := range points.All() {
		text := func(key string) string {
			v, _ := p.Attributes().Get(key)
			return v.Str()
		}
		kind := claims.Kind{Zone: power.Kind(text("energy.zone")), Source: power.Source(text("energy.method"))}
		value := p.DoubleValue()
		if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
			value = float64(p.IntValue())
		}
		k := t.kinds[kind]
		set(&k, text("energy.state"), units.Energy(math.Round(value*float64(units.Joule))))
		t.kinds[kind] = k
	}
}

// since returns the energy since an earlier ledger.
func (k kindTotals) since(earlier kindTotals) kindTotals {
	return kindTotals{
		used:    units.Advance(earlier.used, k.used),
		active:  units.Advance(earlier.active, k.active),
		idle:    units.Advance(earlier.idle, k.idle),
		learned: k.learned,
	}
}
