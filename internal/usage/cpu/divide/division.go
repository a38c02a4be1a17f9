// SPDX-License-Identifier: Apache-2.0

package divide

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Division divides CPU time by CPU and by domain. It refers to what threads used by the numbers of
// slices, and to what exited processes used by the numbers of blocks, which have a weight for each
// domain. Number 0 is neither. The zero Division divides nothing by domain.
type Division struct {
	used     []linked
	slices   []Slice   // returned last
	scratch  []Slice   // of Parts
	topology *Topology // nil: nothing is divided by domain
	weights  []uint64
	parts    []units.CPUTime // returned last
}

// Slice is CPU time that was used on one logical CPU between two scans.
type Slice struct {
	CPU  int32 // the number of the logical CPU, negative if unknown
	Used units.CPUTime
}

// linked is the CPU time of the threads of a process on one CPU, as far as a scan shows it. next is
// the number of the process's next slice, a lower one, or 0.
type linked struct {
	run  uint64
	cpu  int32
	next int32
}

// Divide makes the division divide by the domains of a topology from the next scan on.
func (d *Division) Divide(topology *Topology) {
	if topology == nil || d.topology == topology {
		return
	}
	*d = Division{topology: topology, parts: make([]units.CPUTime, len(topology.Domains()))}
}

// Divides reports whether CPU time is divided by domain.
func (d *Division) Divides() bool { return d.topology != nil }

// Begin forgets the slices and blocks of the previous scan.
func (d *Division) Begin() {
	d.used = d.used[:0]
	if d.topology != nil {
		d.weights = append(d.weights[:0], make([]uint64, len(d.parts))...)
	}
}

// AddSlice adds a slice. next is the number of the process's next slice, a lower one, or 0. The
// first call adds slice 0, which is not used.
func (d *Division) AddSlice(cpu int32, run uint64, next int32) {
	if int(next) >= len(d.used) {
		next = 0
	}
	d.used = append(d.used, linked{run: run, cpu: cpu, next: next})
}

// slice returns a slice, nil if there is none of that number.
func (d *Division) slice(i int32) *linked {
	if i <= 0 || int(i) >= len(d.used) {
		return nil
	}
	return &d.used[i]
}

// AppendSlices appends to an empty list the CPUs on which an amount of CPU time was used: in
// proportion to the slices from the first one on, or all of it on lastCPU if there are none. The
// slices add up to used.
func (d *Division) AppendSlices(to []Slice, first int32, used units.CPUTime, lastCPU int32) []Slice {
	var total uint64
	for s := d.slice(first); s != nil; s = d.slice(s.next) {
		total = units.AddSaturating(total, s.run)
		to = append(to, Slice{s.cpu, units.CPUTime(s.run)})
	}
	if total == 0 {
		return append(to[:0], Slice{lastCPU, used})
	}
	division := units.Division{Amount: uint64(used), Total: total}
	for i := range to {
		to[i].Used = units.CPUTime(division.Next(min(uint64(to[i].Used), division.Left())))
	}
	return to
}

// Slices returns what AppendSlices appends. The slices are valid until the next call.
func (d *Division) Slices(first int32, used units.CPUTime, lastCPU int32) []Slice {
	d.slices = d.AppendSlices(d.slices[:0], first, used, lastCPU)
	return d.slices
}

// Parts returns the slices of an amount of CPU time by domain, in the order of the topology, or nil
// if nothing is divided by domain. The parts add up to used. They are valid until the next call of
// a method that returns parts.
func (d *Division) Parts(first int32, used units.CPUTime, lastCPU int32) []units.CPUTime {
	if d.topology == nil {
		return nil
	}
	clear(d.parts)
	d.scratch = d.AppendSlices(d.scratch[:0], first, used, lastCPU)
	for _, s := range d.scratch {
		d.parts[d.topology.Of(s.CPU)] += s.Used
	}
	return d.parts
}

// block returns a block of weights, nil if there is none of that number.
func (d *Division) block(i int32) []uint64 {
	n := len(d.parts)
	from := int(i) * n
	if i <= 0 || from+n > len(d.weights) {
		return nil
	}
	return d.weights[from : from+n]
}

// AddParts divides used in proportion to weights and adds the parts to block i, or to a new block
// if i is 0. It returns the block's number.
func (d *Division) AddParts(i int32, used units.CPUTime, weights []uint64) int32 {
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

// Of returns an amount of CPU time divided in proportion to a block, like Parts. Without the block
// all of it is in the domain of a CPU.
func (d *Division) Of(amount units.CPUTime, block int32, lastCPU int32) []units.CPUTime {
	if d.topology == nil {
		return nil
	}
	if weights := d.block(block); weights != nil && slices.ContainsFunc(weights, func(w uint64) bool { return w > 0 }) {
		units.Divide(d.parts, amount, weights)
		return d.parts
	}
	clear(d.parts)
	d.parts[d.topology.Of(lastCPU)] = amount
	return d.parts
}
