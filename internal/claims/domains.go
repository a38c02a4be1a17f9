// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/numa"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// domains divides the usage of the node by CPU package: each claim on the node's CPUs becomes a
// claim on each package where that CPU time was used. A nil domains divides nothing.
//
// A claim's weights under other allocation keys are divided in proportion to its CPU time in each
// package, as far as that counts under the key, but those of memory by where the memory is, as far
// as that is known: DRAM of a package is shared by the processes that holds memory there. A claim
// without CPU time, of a process that sleeps and holds memory, is else in the package where the
// process was last.
type domains struct {
	topology *divide.Topology
	cores    *cores
	keys     *Keys
	usage    []attribution.Usage // Interval.Domains without the node's
	last     []cpu.Node          // of each domain
	process  []units.CPUTime     // of each domain, that processes can account for in the interval
	// interrupt is the time of interrupts in each domain in the interval, softirqd the part of it
	// that is the processes ksoftirqd's. It counts if interrupts are unattributed.
	interrupt, softirqd []units.CPUTime

	// Of the interval's claims, as many for each as there are domains:
	places []units.CPUTime // in what proportion a claim is divided
	memory []uint64        // the bytes that it holds in each domain, and elsewhere: one more for each claim; 0 if not known
	placed []units.CPUTime // the sum of the places of all claims so far
	// ofCgroups says in what proportion the processes of a cgroup ran, from the cgroup's index on.
	ofCgroups []units.CPUTime
	cgroups   map[*cgroup.Node]int
	// shortLived says in what proportion short-lived processes are divided that are in no workload.
	shortLived []units.CPUTime
	// numa reports the NUMA placement of memory, or is nil. held marks the weights that are divided
	// by it.
	numa *numa.Places
	held [attribution.Weights]bool

	parts []units.CPUTime // scratch
	// andElsewhere is scratch, with one more place.
	andElsewhere []units.CPUTime
	counted      []units.CPUTime // scratch
	none         []units.CPUTime // all 0
}

func newDomains(topology *divide.Topology) *domains {
	if topology == nil {
		return nil
	}
	n := len(topology.Domains())
	return &domains{
		topology: topology, cgroups: map[*cgroup.Node]int{},
		process: make([]units.CPUTime, n), interrupt: make([]units.CPUTime, n), softirqd: make([]units.CPUTime, n),
		placed: make([]units.CPUTime, n), shortLived: make([]units.CPUTime, n), none: make([]units.CPUTime, n),
		parts: make([]units.CPUTime, n), andElsewhere: make([]units.CPUTime, n+1), counted: make([]units.CPUTime, n),
	}
}

// number returns the number of domains in addition to the domain of all CPUs of the node.
func (d *domains) number() int {
	if d == nil {
		return 0
	}
	return len(d.parts)
}

// of returns the index in Interval.Domains of a zone's domain, that of the node where the topology
// does not know it.
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
}

// claimed notes where the next claim's CPU time was used. If parts shows nothing, it is where p was
// last, or else where all claims before it were.
func (d *domains) claimed(parts []units.CPUTime, p *proc.Process) {
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

// beginPlaces starts an interval in which places reports where memory is, for the weights of keys.
func (d *domains) beginPlaces(places *numa.Places, keys *Keys, now time.Time) {
	if d == nil || places == nil {
		return
	}
	d.numa, d.held = places, keys.held()
	d.memory = d.memory[:0]
	places.Begin(now)
}

// holds notes where the memory of the next claim is, by its cgroup.
func (d *domains) holds(path string) {
	if d == nil || d.numa == nil {
		return
	}
	from, n := len(d.memory), len(d.parts)+1
	d.memory = slices.Grow(d.memory, n)[:from+n]
	clear(d.memory[from:])
	if path != "" {
		copy(d.memory[from:], d.numa.Of(path))
	}
}

// memoryOf returns where the memory of a claim is, nil if that is not known or the claim has no
// weight of memory.
func (d *domains) memoryOf(claim int, c *attribution.Claim) []uint64 {
	n := len(d.parts) + 1
	weighs := false
	for w, held := range d.held {
		weighs = weighs || held && c.Weights[w] > 0
	}
	if d.numa == nil || !weighs || !slices.ContainsFunc(d.memory[claim*n:(claim+1)*n], func(bytes uint64) bool { return bytes > 0 }) {
		return nil
	}
	return d.memory[claim*n : (claim+1)*n]
}

// ranIn notes that a process of a cgroup ran in these parts, or where it was last if it did not
// run.
func (d *domains) ranIn(n *cgroup.Node, parts []units.CPUTime, p *proc.Process) {
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

// ofSoftirqd returns where to add what ksoftirqd used in each domain.
func (d *domains) ofSoftirqd() []units.CPUTime {
	if d == nil {
		return nil
	}
	clear(d.softirqd)
	return d.softirqd
}

// divide divides the node's usage, which is complete and has its weights. interrupts is the
// unattributed CPU time of interrupts. The rest of node.Unattributed is that of processes that
// cannot be named.
func (d *domains) divide(node *attribution.Usage, interrupts units.CPUTime) {
	if d == nil {
		return
	}
	n := len(d.parts)
	for i := range node.Claims {
		d.divideClaim(i, &node.Claims[i], d.places[i*n:(i+1)*n], d.memoryOf(i, &node.Claims[i]))
	}
	averages := d.averages(node)
	for i := range d.usage {
		d.usage[i].Unweighed, d.usage[i].Averages = node.Unweighed, averages
	}
	d.divideUnnamed(node.Unattributed - interrupts)
	d.divideInterrupts(interrupts, &node.Weightless)
}

// divideClaim divides a claim by where its CPU time was used, and its weights of memory by where
// the memory is, unless that is nil.
func (d *domains) divideClaim(i int, c *attribution.Claim, place []units.CPUTime, memory []uint64) {
	only := slices.IndexFunc(place, func(part units.CPUTime) bool { return part > 0 })
	if memory == nil && only >= 0 && !slices.ContainsFunc(place[only+1:], func(part units.CPUTime) bool { return part > 0 }) {
		d.usage[only].Claims = append(d.usage[only].Claims, *c)
		return
	}
	var divided [divide.MaxDomains]attribution.Claim
	units.Divide(d.parts, c.CPU, place)
	for k, part := range d.parts {
		divided[k] = attribution.Claim{Claimant: c.Claimant, ShortLived: c.ShortLived, CPU: part}
	}
	for w, weight := range c.Weights {
		switch {
		case weight == 0:
			continue
		case memory != nil && d.held[w]:
			units.Divide(d.andElsewhere, units.CPUTime(weight), memory)
			copy(d.parts, d.andElsewhere)
		case d.keys.discounts(w) && d.cores.divide(d.counted, place, i, d.topology):
			units.Divide(d.parts, units.CPUTime(weight), d.counted)
		default:
			units.Divide(d.parts, units.CPUTime(weight), place)
		}
		for k, part := range d.parts {
			divided[k].Weights[w] = uint64(part)
		}
	}
	for k := range d.usage {
		if memory == nil || divided[k].CPU > 0 || divided[k].Weights != [attribution.Weights]uint64{} {
			d.usage[k].Claims = append(d.usage[k].Claims, divided[k])
		}
	}
}

// averages returns what CPU time weighs on average over all domains, under the keys by which claims
// weigh where their memory is. Within a domain, claims may weigh much that used little CPU time
// there.
func (d *domains) averages(node *attribution.Usage) (averages [attribution.Weights]attribution.Average) {
	if d.numa == nil || node.Unattributed == 0 {
		return averages
	}
	for w := range averages {
		if a := &averages[w]; d.held[w] {
			for i := range node.Claims {
				a.Weight = units.AddSaturating(a.Weight, node.Claims[i].Weights[w])
				a.CPU = units.AddSaturating(a.CPU, node.Claims[i].CPU)
			}
		}
	}
	return averages
}

// divideUnnamed divides the CPU time of processes that cannot be named in proportion to the CPU
// time of each domain that no claim covers.
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

// divideInterrupts divides the unattributed CPU time of interrupts in proportion to that of each
// domain.
func (d *domains) divideInterrupts(all units.CPUTime, weightless *[attribution.Weights]units.CPUTime) {
	for i := range d.usage {
		d.usage[i].Weightless = [attribution.Weights]units.CPUTime{}
	}
	if all == 0 {
		return
	}
	for i := range d.interrupt {
		d.interrupt[i] = units.Advance(d.softirqd[i], d.interrupt[i])
	}
	d.addUnattributed(all, d.interrupt)
	for i, part := range d.parts {
		for w := range weightless {
			d.usage[i].Weightless[w] = min(part, weightless[w])
		}
	}
}

// addUnattributed adds unattributed CPU time to the domains in proportion to places, or else to
// what processes used there.
func (d *domains) addUnattributed(all units.CPUTime, places []units.CPUTime) {
	if slices.Max(places) == 0 {
		places = d.process
	}
	units.Divide(d.parts, all, places)
	for i, part := range d.parts {
		d.usage[i].Unattributed += part
	}
}

// shrink frees the memory that was needed for more claims.
func (d *domains) shrink() {
	if d != nil {
		d.places, d.memory, d.ofCgroups, d.cgroups = nil, nil, nil, map[*cgroup.Node]int{}
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
