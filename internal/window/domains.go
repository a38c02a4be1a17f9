// SPDX-License-Identifier: Apache-2.0

package window

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/numa"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// divider divides the usage of the node by CPU package: each row becomes a claim on each package
// whose CPUs it used.
//
// The weights of a row are divided in proportion to the CPU time in each package. For weights with
// the discount of cores, it is the CPU time after the discount. Weights of memory are divided by
// the location of the memory if it is available, so that the processes with memory in a package
// share the DRAM of the package. Without the location, the memory of a process that did not run
// counts in the last package of the process.
type divider struct {
	topology *divide.Topology
	places   *numa.Places // nil: memory counts in the domains that its process ran in
	// held marks the weights of memory, and discounted the weights with the discount of cores.
	held, discounted [attribution.Weights]bool

	last      []cpu.Node      // by domain, of the previous measurement
	process   []units.CPUTime // by domain, CPU time of processes in the interval
	interrupt []units.CPUTime // by domain, CPU time of interrupts in the interval
	placed    []units.CPUTime // sum of place over the previous rows
	// byCgroup holds the CPU time of each cgroup by domain. cgroups holds the index of the first
	// domain of each cgroup.
	byCgroup []units.CPUTime
	cgroups  map[*cgroup.Node]int

	// Scratch, by domain. andElsewhere has one more element.
	place, parts, andElsewhere, counted []units.CPUTime
}

func newDivider(topology *divide.Topology, places *numa.Places, keys *Keys) *divider {
	n := len(topology.Domains())
	return &divider{
		topology: topology, places: places, held: keys.held(), discounted: keys.discounted(),
		process: make([]units.CPUTime, n), interrupt: make([]units.CPUTime, n), placed: make([]units.CPUTime, n),
		cgroups: map[*cgroup.Node]int{},
		place:   make([]units.CPUTime, n), parts: make([]units.CPUTime, n), andElsewhere: make([]units.CPUTime, n+1), counted: make([]units.CPUTime, n),
	}
}

// ranIn notes that a process of a cgroup ran in these parts, or in its last domain if it did not
// run.
func (d *divider) ranIn(n *cgroup.Node, parts []units.CPUTime, p *proc.Process) {
	for ; n != nil; n = n.Parent() {
		places := d.in(n)
		for i, part := range parts {
			places[i] = units.AddSaturating(places[i], part)
		}
		places[d.topology.Of(p.LastCPU)]++
	}
}

// in returns the CPU time of a cgroup by domain, from the rows that were added before.
func (d *divider) in(n *cgroup.Node) []units.CPUTime {
	from, ok := d.cgroups[n]
	if !ok {
		from = len(d.byCgroup)
		d.cgroups[n] = from
		clear(d.parts)
		d.byCgroup = append(d.byCgroup, d.parts...)
	}
	return d.byCgroup[from : from+len(d.parts)]
}

// divide sets the usage of each domain. It is the last pass.
func (d *divider) divide(t *table, m *Measurement) {
	usage := t.interval.Domains[1 : 1+len(d.parts)]
	d.begin(usage, m)
	for i := range t.rows {
		r := &t.rows[i]
		d.setPlace(r)
		d.divideRow(usage, r, d.memoryOf(r))
	}
	averages := d.averages(t)
	for i := range usage {
		usage[i].Unweighed, usage[i].Averages = t.node.Unweighed, averages
	}
	d.divideUnnamed(usage, t.node.Unattributed-t.interrupts)
	d.divideInterrupts(usage, t)
	d.byCgroup = d.byCgroup[:0]
	clear(d.cgroups)
}

// begin starts an interval without claims.
func (d *divider) begin(usage []attribution.Usage, m *Measurement) {
	if d.last == nil {
		d.last = slices.Clone(m.Domains)
	}
	for i, now := range m.Domains {
		u := &usage[i]
		u.Busy, u.Total, u.Unattributed = now.Busy-d.last[i].Busy, now.Total-d.last[i].Total, 0
		u.Claims = u.Claims[:0]
		d.process[i] = now.Process - d.last[i].Process
		d.interrupt[i] = now.Interrupt - d.last[i].Interrupt
	}
	copy(d.last, m.Domains)
	clear(d.placed)
	if d.places != nil {
		d.places.Begin(m.ReadAt)
	}
}

// setPlace sets d.place to the proportions that divide a row. They are the CPU time by domain if it
// is available, or else the last domain of the process. Without a process, they are the
// proportions of all previous rows.
func (d *divider) setPlace(r *row) {
	clear(d.place)
	switch {
	case slices.ContainsFunc(r.parts, func(part units.CPUTime) bool { return part > 0 }):
		copy(d.place, r.parts)
	case r.process != nil:
		d.place[d.topology.Of(r.process.LastCPU)] = 1
	default:
		copy(d.place, d.placed)
	}
	for i, part := range d.place {
		d.placed[i] = units.AddSaturating(d.placed[i], part)
	}
}

// memoryOf returns the bytes that a row holds in each domain, followed by those elsewhere. It
// returns nil if they are not available or the row has no weight of memory.
func (d *divider) memoryOf(r *row) []uint64 {
	if d.places == nil || r.home == "" {
		return nil
	}
	memory := d.places.Of(r.home)
	for w, held := range d.held {
		if held && r.weights[w] > 0 && slices.ContainsFunc(memory, func(bytes uint64) bool { return bytes > 0 }) {
			return memory
		}
	}
	return nil
}

// divideRow divides a row by d.place, and its weights of memory by the bytes in each domain, unless
// these are nil.
func (d *divider) divideRow(usage []attribution.Usage, r *row, memory []uint64) {
	only := slices.IndexFunc(d.place, func(part units.CPUTime) bool { return part > 0 })
	if memory == nil && only >= 0 && !slices.ContainsFunc(d.place[only+1:], func(part units.CPUTime) bool { return part > 0 }) {
		usage[only].Claims = append(usage[only].Claims, r.claim())
		return
	}
	var divided [divide.MaxDomains]attribution.Claim
	units.Divide(d.parts, r.CPU, d.place)
	for k, part := range d.parts {
		divided[k] = attribution.Claim{Claimant: r.claimant, ShortLived: r.ShortLived, CPU: part}
	}
	for w, weight := range r.weights {
		switch {
		case weight == 0:
			continue
		case memory != nil && d.held[w]:
			units.Divide(d.andElsewhere, units.CPUTime(weight), memory)
			copy(d.parts, d.andElsewhere)
		case d.discounted[w] && d.count(r):
			units.Divide(d.parts, units.CPUTime(weight), d.counted)
		default:
			units.Divide(d.parts, units.CPUTime(weight), d.place)
		}
		for k, part := range d.parts {
			divided[k].Weights[w] = uint64(part)
		}
	}
	for k := range usage {
		if memory == nil || divided[k].CPU > 0 || divided[k].Weights != [attribution.Weights]uint64{} {
			usage[k].Claims = append(usage[k].Claims, divided[k])
		}
	}
}

// count sets d.counted to the CPU time of a row after the discount, by domain. It reports whether
// the row has slices for all of its domains. An exited process has a slice for its last CPU only.
func (d *divider) count(r *row) bool {
	clear(d.counted)
	for _, s := range r.on {
		domain := d.topology.Of(s.CPU)
		d.counted[domain] = units.AddSaturating(d.counted[domain], s.Used)
	}
	for i, counted := range d.counted {
		if (counted > 0) != (d.place[i] > 0) {
			return false
		}
	}
	return true
}

// averages returns the average weight of CPU time over all domains, for the weights of memory. The
// average of a single domain would be wrong: claims with much memory in a domain may have used
// little CPU time there.
func (d *divider) averages(t *table) (averages [attribution.Weights]attribution.Average) {
	if d.places == nil || t.node.Unattributed == 0 {
		return averages
	}
	for k := range averages {
		if a := &averages[k]; d.held[k] {
			for i := range t.rows {
				a.Weight = units.AddSaturating(a.Weight, t.rows[i].weights[k])
				a.CPU = units.AddSaturating(a.CPU, t.rows[i].CPU)
			}
		}
	}
	return averages
}

// divideUnnamed divides the CPU time of processes that cannot be named in proportion to the CPU
// time of each domain that no claim covers.
func (d *divider) divideUnnamed(usage []attribution.Usage, all units.CPUTime) {
	if all == 0 {
		return
	}
	for i := range usage {
		var claimed units.CPUTime
		for k := range usage[i].Claims {
			claimed = units.AddSaturating(claimed, usage[i].Claims[k].CPU)
		}
		d.place[i] = units.Advance(claimed, d.process[i])
	}
	d.addUnattributed(usage, all, d.place)
}

// divideInterrupts divides the unattributed CPU time of interrupts in proportion to the interrupts
// of each domain.
func (d *divider) divideInterrupts(usage []attribution.Usage, t *table) {
	for i := range usage {
		usage[i].Weightless = [attribution.Weights]units.CPUTime{}
	}
	if t.interrupts == 0 {
		return
	}
	for i := range d.interrupt {
		d.interrupt[i] = units.Advance(t.softirqd[i], d.interrupt[i])
	}
	d.addUnattributed(usage, t.interrupts, d.interrupt)
	for i, part := range d.parts {
		for k := range t.node.Weightless {
			usage[i].Weightless[k] = min(part, t.node.Weightless[k])
		}
	}
}

// addUnattributed adds unattributed CPU time to the domains in proportion to places, or
// otherwise to the CPU time of processes there.
func (d *divider) addUnattributed(usage []attribution.Usage, all units.CPUTime, places []units.CPUTime) {
	if slices.Max(places) == 0 {
		places = d.process
	}
	units.Divide(d.parts, all, places)
	for i, part := range d.parts {
		usage[i].Unattributed += part
	}
}

// shrink frees the memory that was needed for more cgroups.
func (d *divider) shrink() { d.byCgroup, d.cgroups = nil, map[*cgroup.Node]int{} }
