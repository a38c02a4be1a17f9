// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/phase"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/zone"
)

// record is a run while it is measured.
//
// A meter that is read seldom reports the energy of several intervals at once. This energy is
// divided among the intervals: the command's in proportion to the CPU time that the command used in
// each, the node's in proportion to time.
type record struct {
	samples []Sample // without energies
	kinds   map[power.Class]*kindRecord
}

// kindRecord is a zone kind of a record.
type kindRecord struct {
	base, last     kindTotals
	settled        int            // the samples before this one have their energy
	used, nodeUsed []units.Energy // by the index of samples
}

func newRecord(base totals) *record {
	r := &record{kinds: map[power.Class]*kindRecord{}}
	for kind, t := range base.kinds {
		r.kinds[kind] = &kindRecord{base: t, last: t}
	}
	return r
}

// end returns when the last interval ended, 0 before the first.
func (r *record) end() time.Duration {
	if n := len(r.samples); n > 0 {
		return r.samples[n-1].End
	}
	return 0
}

// add adds an interval. Its energy is in t if its meter has reported it. reported returns whether the
// meters of a kind have reported energy since the previous interval.
func (r *record) add(s Sample, t totals, reported func(power.Class) bool) {
	r.samples = append(r.samples, s)
	r.settle(t, reported)
}

// settle adds energy of the intervals so far. reported reports whether the meters of a kind have reported
// energy.
func (r *record) settle(t totals, reported func(power.Class) bool) {
	for kind, now := range t.kinds {
		if r.kinds[kind] == nil {
			r.kinds[kind] = &kindRecord{}
		}
		r.kinds[kind].settle(r.samples, now, reported(kind))
	}
}

func (k *kindRecord) settle(samples []Sample, now kindTotals, reported bool) {
	n := len(samples)
	k.used = append(k.used, make([]units.Energy, n-len(k.used))...)
	k.nodeUsed = append(k.nodeUsed, make([]units.Energy, n-len(k.nodeUsed))...)
	d := now.since(k.last)
	k.last = now
	node := units.AddSaturating(d.active, d.idle)
	if n == 0 || !reported && node == 0 {
		return
	}
	from := min(k.settled, n-1)
	byCPU := func(i int) time.Duration { return samples[from+i].CPU }
	byTime := func(i int) time.Duration { return samples[from+i].Wall }
	divide(d.used, k.used[from:], byCPU, byTime)
	divide(node, k.nodeUsed[from:], byTime, byTime)
	k.settled = n
}

// divide adds energy to the parts, in proportion to the weights, or to others where they are all 0.
func divide(e units.Energy, parts []units.Energy, weight, other func(i int) time.Duration) {
	whole := time.Duration(0)
	for i := range parts {
		whole += weight(i)
	}
	if whole == 0 {
		if weight(0)+other(0) == 0 && len(parts) == 1 {
			parts[0] += e
			return
		}
		weight = other
		for i := range parts {
			whole += weight(i)
		}
	}
	if whole == 0 {
		parts[len(parts)-1] += e
		return
	}
	division := units.Division{Amount: uint64(e), Total: uint64(whole)}
	for i := range parts {
		parts[i] += units.Energy(division.Next(uint64(weight(i))))
	}
}

// energy returns the energy of the command in all zones that are added up.
func (r *record) energy() (used units.Energy) {
	var names []string
	for kind := range r.kinds {
		names = append(names, string(kind.Zone))
	}
	for kind, k := range r.kinds {
		if zone.Besides(string(kind.Zone), names) == "" {
			used += k.last.since(k.base).used
		}
	}
	return used
}

// result fills the zones, the samples and the phases of a result. A kind that used nothing is left
// out where it is not attributed any more: another meter has taken its place.
func (r *record) result(into *Result, isAttributed func(power.Class) bool) {
	maps.DeleteFunc(r.kinds, func(kind power.Class, k *kindRecord) bool {
		d := k.last.since(k.base)
		return d.active+d.idle == 0 && !isAttributed(kind)
	})
	kinds := slices.SortedFunc(maps.Keys(r.kinds), func(a, b power.Class) int {
		return cmp.Or(zone.Compare(string(a.Zone), string(b.Zone)), cmp.Compare(a.Method, b.Method))
	})
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = string(kind.Zone)
	}
	into.Samples = r.samples
	for _, kind := range kinds {
		k := r.kinds[kind]
		t := k.last.since(k.base)
		into.Zones = append(into.Zones, Zone{
			Name: string(kind.Zone), Source: string(kind.Method), Besides: zone.Besides(string(kind.Zone), names),
			Used: t.used, Active: t.active, Idle: t.idle,
		})
		for i := range into.Samples {
			into.Samples[i].Used = append(into.Samples[i].Used, k.used[i])
			into.Samples[i].NodeUsed = append(into.Samples[i].NodeUsed, k.nodeUsed[i])
		}
	}
	into.Phases = phasesOf(into.Samples, len(into.Zones))
}

// phasesOf adds up the samples by their phases, in the order in which these began. It returns nil
// if no sample is of any.
func phasesOf(samples []Sample, zones int) (phases []Phase) {
	marked := false
	for i := range samples {
		s := &samples[i]
		name := cmp.Or(s.Phase, phase.None)
		marked = marked || name != phase.None
		at := slices.IndexFunc(phases, func(p Phase) bool { return p.Name == name })
		if at < 0 {
			at = len(phases)
			phases = append(phases, Phase{Name: name, Used: make([]units.Energy, zones), NodeUsed: make([]units.Energy, zones)})
		}
		p := &phases[at]
		p.Wall += s.Wall
		p.CPU += s.CPU
		for z, e := range s.Used {
			p.Used[z] += e
		}
		for z, e := range s.NodeUsed {
			p.NodeUsed[z] += e
		}
	}
	if !marked {
		return nil
	}
	return phases
}
