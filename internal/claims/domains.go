// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// domains divides the usage of the node by CPU package: each claim on the node's CPUs becomes a claim on each package
// where that CPU time was used. A nil domains divides nothing.
//
// A claim's weights under other allocation keys are divided in proportion to its CPU time in each package, as far as that counts
// under the key. A claim
// without CPU time, of a process that sleeps and holds memory, is in the package where the process was last. So DRAM is
// shared within each package by the memory of the processes that ran there, wherever that memory is.
type domains struct {
	topology *cpu.Topology
	cores    *cores
	keys     *Keys
	usage    []attribution.Usage // Interval.Domains without the node's
	last     []cpu.Node          // of each domain
	process  []units.CPUTime     // of each domain, that processes can account for in the interval
	// interrupt is the time of interrupts in each domain in the interval, softirqd the part of it that is the processes
	// ksoftirqd's. It counts if interrupts are unattributed.
	interrupt, softirqd []units.CPUTime

	// Of the interval's claims, as many for each as there are domains:
	places []units.CPUTime // in what proportion a claim is divided
	placed []units.CPUTime // the sum of the places of all claims so far
	// ofCgroups says in what proportion the processes of a cgroup ran, from the cgroup's index on.
	ofCgroups []units.CPUTime
	cgroups   map[*cgroup.Node]int
	// shortLived says in what proportion short-lived processes are divided that are in no workload.
	shortLived []units.CPUTime
	parts      []units.CPUTime // scratch
	counted    []units.CPUTime // scratch
	none       []units.CPUTime // all 0
}

func newDomains(topology *cpu.Topology) *domains {
	if topology == nil {
		return nil
	}
	n := len(topology.Domains())
	return &domains{
		topology: topology, process: make([]units.CPUTime, n),
		interrupt: make([]units.CPUTime, n), softirqd: make([]units.CPUTime, n), placed: make([]units.CPUTime, n), shortLived: make([]units.CPUTime, n), parts: make([]units.CPUTime, n),
		counted: make([]units.CPUTime, n),
		none:    make([]units.CPUTime, n), cgroups: map[*cgroup.Node]int{},
	}
}

// number returns how many domains there are beside the node's CPUs.
func (d *domains) number() int {
	if d == nil {
		return 0
	}
	return len(d.parts)
}

// of returns the index in Interval.Domains of a zone's domain, that of the node where the topology does not know it.
func (d *domains) of(z *power.Zone) int {
	if d == nil {
		return 0
	}
	i, ok := d.topology.Index(z.Domain)
	if !ok {
		return 0
	}
	return 1 + i
}

// begin starts an interval without claims. usage is Interval.Domains without the node's.
func (d *domains) begin(m *Measurement, usage []attribution.Usage) {
	if d == nil {
		return
	}
	if d.last == nil {
		d.last = slices.Clone(m.Domains)
	}
	d.usage = usage
	for i, now := range m.Domains {
		u := &usage[i]
		u.Busy, u.Total, u.Unattributed = now.Busy-d.last[i].Busy, now.Total-d.last[i].Total, 0
		u.Claims = u.Claims[:0]
		d.process[i] = now.Process - d.last[i].Process
		d.interrupt[i] = now.Interrupt - d.last[i].Interrupt
	}
	copy(d.last, m.Domains)
	d.places, d.ofCgroups = d.places[:0], d.ofCgroups[:0]
	clear(d.cgroups)
	clear(d.shortLived)
	clear(d.placed)
	d.noteShortLived(m.Table.UnplacedParts())
}

// claimed notes where the next claim's CPU time was used. Where parts tells nothing, it is where p was last, or else
// where all claims before it were.
func (d *domains) claimed(parts []units.CPUTime, p *cpu.Process) {
	if d == nil {
		return
	}
	from, n := len(d.places), len(d.parts)
	d.places = slices.Grow(d.places, n)[:from+n]
	place := d.places[from:]
	clear(place)
	switch {
	case slices.ContainsFunc(parts, func(part units.CPUTime) bool { return part > 0 }):
		copy(place, parts)
	case p != nil:
		place[d.topology.Of(p.LastCPU)] = 1
	default:
		copy(place, d.placed)
	}
	for i := range place {
		d.placed[i] = units.AddSaturating(d.placed[i], place[i])
	}
}

// ranIn notes that a process of a cgroup ran in these parts, or where it was last if it did not run.
func (d *domains) ranIn(n *cgroup.Node, parts []units.CPUTime, p *cpu.Process) {
	if d == nil {
		return
	}
	for ; n != nil; n = n.Parent() {
		places := d.in(n)
		for i, part := range parts {
			places[i] = units.AddSaturating(places[i], part)
		}
		places[d.topology.Of(p.LastCPU)]++
	}
}

// in returns in what proportion the processes of a cgroup ran, as far as is noted.
func (d *domains) in(n *cgroup.Node) []units.CPUTime {
	if d == nil {
		return nil
	}
	from, ok := d.cgroups[n]
	if !ok {
		from = len(d.ofCgroups)
		d.cgroups[n] = from
		d.ofCgroups = append(d.ofCgroups, d.none...)
	}
	return d.ofCgroups[from : from+len(d.none)]
}

// noteShortLived notes where short-lived processes ran that are in no workload.
func (d *domains) noteShortLived(parts []units.CPUTime) {
	if d == nil {
		return
	}
	for i, part := range parts {
		d.shortLived[i] = units.AddSaturating(d.shortLived[i], part)
	}
}

// ofShortLived returns what was noted of them.
func (d *domains) ofShortLived() []units.CPUTime {
	if d == nil {
		return nil
	}
	return d.shortLived
}

// forgetShortLived takes back what was noted of them.
func (d *domains) forgetShortLived(parts []units.CPUTime) {
	if d == nil {
		return
	}
	for i, part := range parts {
		d.shortLived[i] = units.Advance(part, d.shortLived[i])
	}
}

// ofSoftirqd returns where to add what ksoftirqd used in each domain.
func (d *domains) ofSoftirqd() []units.CPUTime {
	if d == nil {
		return nil
	}
	clear(d.softirqd)
	return d.softirqd
}

// divide divides the node's usage, which is complete and has its weights. interrupts is the unattributed CPU time of interrupts.
// The rest of node.Unattributed is that of processes that cannot be named.
func (d *domains) divide(node *attribution.Usage, interrupts units.CPUTime) {
	if d == nil {
		return
	}
	n := len(d.parts)
	for i := range node.Claims {
		d.divideClaim(i, &node.Claims[i], d.places[i*n:(i+1)*n])
	}
	for i := range d.usage {
		d.usage[i].Unweighed = node.Unweighed
	}
	d.divideUnnamed(node.Unattributed - interrupts)
	d.divideInterrupts(interrupts)
}

func (d *domains) divideClaim(i int, c *attribution.Claim, place []units.CPUTime) {
	only := slices.IndexFunc(place, func(part units.CPUTime) bool { return part > 0 })
	if only >= 0 && !slices.ContainsFunc(place[only+1:], func(part units.CPUTime) bool { return part > 0 }) {
		d.usage[only].Claims = append(d.usage[only].Claims, *c)
		return
	}
	cpu.Divide(d.parts, c.CPU, place)
	for i, part := range d.parts {
		u := &d.usage[i]
		u.Claims = append(u.Claims, attribution.Claim{Claimant: c.Claimant, ShortLived: c.ShortLived, CPU: part})
	}
	for w, weight := range c.Weights {
		if weight == 0 {
			continue
		}
		by := place
		if d.keys.discounts(w) && d.cores.divide(d.counted, i, d.topology) {
			by = d.counted
		}
		cpu.Divide(d.parts, units.CPUTime(weight), by)
		for i, part := range d.parts {
			claims := d.usage[i].Claims
			claims[len(claims)-1].Weights[w] = uint64(part)
		}
	}
}

// divideUnnamed divides the CPU time of processes that cannot be named in proportion to the CPU time of each domain that no
// claim covers.
func (d *domains) divideUnnamed(all units.CPUTime) {
	if all == 0 {
		return
	}
	for i := range d.usage {
		var claimed units.CPUTime
		for k := range d.usage[i].Claims {
			claimed = units.AddSaturating(claimed, d.usage[i].Claims[k].CPU)
		}
		d.shortLived[i] = units.Advance(claimed, d.process[i])
	}
	d.addUnattributed(all, d.shortLived)
}

// divideInterrupts divides the unattributed CPU time of interrupts in proportion to that of each domain.
func (d *domains) divideInterrupts(all units.CPUTime) {
	if all == 0 {
		return
	}
	for i := range d.interrupt {
		d.interrupt[i] = units.Advance(d.softirqd[i], d.interrupt[i])
	}
	d.addUnattributed(all, d.interrupt)
}

// addUnattributed adds unattributed CPU time to the domains in proportion to places, or else to what processes used there.
func (d *domains) addUnattributed(all units.CPUTime, places []units.CPUTime) {
	if slices.Max(places) == 0 {
		places = d.process
	}
	cpu.Divide(d.parts, all, places)
	for i, part := range d.parts {
		d.usage[i].Unattributed += part
	}
}

// compact gives back the memory that was needed for more claims.
func (d *domains) compact() {
	if d != nil {
		d.places, d.ofCgroups, d.cgroups = nil, nil, map[*cgroup.Node]int{}
	}
}

// drop drops the usage of the interval.
func (d *domains) drop() {
	if d == nil {
		return
	}
	for i := range d.usage {
		d.usage[i].Claims, d.usage[i].Unattributed = d.usage[i].Claims[:0], 0
	}
}
