// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// division is how a Table divides CPU time by CPU and by domain. The zero division divides nothing by domain.
//
// By default all of a row's time was used on Process.LastCPU. If the source knows more, used has slices of the row, and the time is
// divided in proportion to these. The time of processes that ended is divided by domain only: weights has blocks with a number
// for each domain. Slice 0 and block 0 are not used.
type division struct {
	used     []slice
	slices   []Slice   // returned last
	scratch  []Slice   // of Parts
	topology *Topology // nil: nothing is divided by domain
	weights  []uint64
	parts    []units.CPUTime // returned last
	unplaced int32           // the block of Table.ShortLived
	run      []units.CPUTime // Table.Run by domain
}

// slice is what the threads of a process used on one CPU, as far as a scan shows it. next is that of the process's next slice, a
// lower one, or 0.
type slice struct {
	run  uint64
	cpu  int32
	next int32
}

// divide makes the table divide CPU time by domain from the next scan on.
func (t *Table) divide(topology *Topology) {
	if topology == nil || t.topology == topology {
		return
	}
	n := len(topology.Domains())
	t.division = division{topology: topology, parts: make([]units.CPUTime, n), run: make([]units.CPUTime, n)}
}

// beginDivision forgets the slices and weights of the scan before.
func (d *division) beginDivision() {
	d.used = d.used[:0]
	if d.topology == nil {
		return
	}
	d.weights = append(d.weights[:0], make([]uint64, len(d.parts))...)
	d.unplaced = 0
}

// slice returns a slice, nil if there is none of that number.
func (d *division) slice(i int32) *slice {
	if i <= 0 || int(i) >= len(d.used) {
		return nil
	}
	return &d.used[i]
}

// block returns a block of weights, nil if there is none of that number.
func (d *division) block(i int32) []uint64 {
	n := len(d.parts)
	from := int(i) * n
	if i <= 0 || from+n > len(d.weights) {
		return nil
	}
	return d.weights[from : from+n]
}

// addParts divides used in proportion to weights and adds the parts to block i, or to a new block if i is 0. It returns the
// block's number.
func (d *division) addParts(i int32, used units.CPUTime, weights []uint64) int32 {
	if d.topology == nil {
		return 0
	}
	n := len(d.parts)
	if i <= 0 {
		i = int32(len(d.weights) / n)
		d.weights = slices.Grow(d.weights, n)[:len(d.weights)+n]
		clear(d.weights[int(i)*n:])
	}
	units.Divide(d.parts, used, weights)
	for k, part := range d.parts {
		d.weights[int(i)*n+k] = units.AddSaturating(d.weights[int(i)*n+k], uint64(part))
	}
	return i
}

// divided returns amount divided by a block of weights, or if there is none all of it in the domain of a CPU.
func (t *Table) divided(amount units.CPUTime, block int32, lastCPU int32) []units.CPUTime {
	if t.topology == nil {
		return nil
	}
	if weights := t.block(block); weights != nil && slices.ContainsFunc(weights, func(w uint64) bool { return w > 0 }) {
		units.Divide(t.parts, amount, weights)
		return t.parts
	}
	clear(t.parts)
	t.parts[t.topology.Of(lastCPU)] = amount
	return t.parts
}

// Parts returns p.Used divided by domain, in the order of the topology, or nil if the table divides nothing. The parts add
// up to p.Used. They are valid until the next call of a method that returns parts. Each slice of p belongs to the domain of its
// CPU.
func (t *Table) Parts(p *Process) []units.CPUTime {
	if t.topology == nil {
		return nil
	}
	clear(t.parts)
	t.scratch = t.appendSlices(t.scratch[:0], p)
	for _, s := range t.scratch {
		t.parts[t.topology.Of(s.CPU)] += s.Used
	}
	return t.parts
}

// Slice is CPU time that was used on one logical CPU between two scans.
type Slice struct {
	CPU  int32 // the number of the logical CPU, negative if unknown
	Used units.CPUTime
}

// Slices returns on which CPUs p.Used was used, in no order. They add up to p.Used. They are valid until the next call of a
// method that returns slices.
//
// If the source notes slices (Options.Slices, with BPF), what each thread used since the previous scan is in a slice of the CPU that
// the thread was last on. The time of threads that ended meanwhile is divided like that of the others. Otherwise all of
// p.Used is in one slice, of p.LastCPU. Either way a thread that changes CPUs between two scans counts for the last one only.
func (t *Table) Slices(p *Process) []Slice {
	t.slices = t.appendSlices(t.slices[:0], p)
	return t.slices
}

// appendSlices appends to an empty list on which CPUs p.Used was used.
func (d *division) appendSlices(to []Slice, p *Process) []Slice {
	var total uint64
	for s := d.slice(p.parts); s != nil; s = d.slice(s.next) {
		total = units.AddSaturating(total, s.run)
		to = append(to, Slice{s.cpu, units.CPUTime(s.run)})
	}
	if total == 0 {
		return append(to[:0], Slice{p.LastCPU, p.Used})
	}
	division := units.Division{Amount: uint64(p.Used), Total: total}
	for i := range to {
		to[i].Used = units.CPUTime(division.Next(uint64(to[i].Used)))
	}
	return to
}

// ShortLivedParts returns p.ShortLived divided by domain like Parts: by where the short-lived processes ended (BPF), or all
// in the domain of their parent (procfs).
func (t *Table) ShortLivedParts(p *Process) []units.CPUTime {
	return t.divided(p.ShortLived, p.shortLivedParts, p.LastCPU)
}

// LastSliceParts returns e.LastSlice divided by domain like Parts. With BPF it is divided in proportion to what the threads
// used in their whole lives, each in the domain that it was last in.
func (t *Table) LastSliceParts(e *Ended) []units.CPUTime {
	return t.divided(e.LastSlice, e.parts, e.LastCPU)
}

// PartsIn returns c.Used divided by domain like Parts. c is an element of ShortLivedIn.
func (t *Table) PartsIn(c *CgroupTime) []units.CPUTime { return t.divided(c.Used, c.parts, 0) }

// PartsBy returns n.Used divided by domain like Parts. n is an element of ShortLivedBy.
func (t *Table) PartsBy(n *NamedTime) []units.CPUTime { return t.divided(n.Used, n.parts, 0) }

// UnplacedParts returns t.ShortLived divided by domain like Parts.
func (t *Table) UnplacedParts() []units.CPUTime { return t.divided(t.ShortLived, t.unplaced, 0) }

// RunIn returns the part of t.Run in a domain, by its index in the topology.
func (t *Table) RunIn(domain int) units.CPUTime { return t.run[domain] }

func (t *Table) addRun(parts []units.CPUTime) {
	for i, part := range parts {
		t.run[i] += part
	}
}
