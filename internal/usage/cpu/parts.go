// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// division is how a Table divides CPU time by domain. The zero division divides nothing.
//
// Of most processes all time goes to the domain of the CPU that they were last on, which their row tells. Where a source
// knows more, weights has a block with a number for each domain, and time is divided in proportion to them. Block 0 is
// nobody's.
type division struct {
	topology *Topology // nil: nothing is divided
	weights  []uint64
	parts    []units.CPUTime // what was returned last
	nobody   int32           // the block of Table.ShortLived
	run      []units.CPUTime // what Table.Run is of each domain
}

// divide makes the table divide CPU time by domain from the next scan on.
func (t *Table) divide(topology *Topology) {
	if topology == nil || t.topology == topology {
		return
	}
	n := len(topology.Domains())
	t.division = division{topology: topology, parts: make([]units.CPUTime, n), run: make([]units.CPUTime, n)}
}

// begin forgets the weights of the scan before.
func (d *division) begin() {
	if d.topology == nil {
		return
	}
	d.weights = append(d.weights[:0], make([]uint64, len(d.parts))...)
	d.nobody = 0
}

// take takes blocks of weights from a source. They follow block 0, in the source's order.
func (d *division) take(weights []uint64) {
	if d.topology != nil {
		d.weights = append(d.weights[:len(d.parts)], weights...)
	}
}

// block returns a block of weights, nil where there is none of that number.
func (d *division) block(i int32) []uint64 {
	n := len(d.parts)
	from := int(i) * n
	if i <= 0 || from+n > len(d.weights) {
		return nil
	}
	return d.weights[from : from+n]
}

// add adds time that was used in proportion to weights to a block, which it makes where i is 0. It returns the block.
func (d *division) add(i int32, used units.CPUTime, weights []uint64) int32 {
	if d.topology == nil {
		return 0
	}
	n := len(d.parts)
	if i <= 0 {
		i = int32(len(d.weights) / n)
		d.weights = slices.Grow(d.weights, n)[:len(d.weights)+n]
		clear(d.weights[int(i)*n:])
	}
	Divide(d.parts, used, weights)
	for k, part := range d.parts {
		d.weights[int(i)*n+k] = units.AddSaturating(d.weights[int(i)*n+k], uint64(part))
	}
	return i
}

// Divide divides amount in proportion to weights. The parts add up to amount exactly, and each is within one unit of its
// exact value. With no weight at all the first part is everything.
func Divide[W ~uint64](parts []units.CPUTime, amount units.CPUTime, weights []W) {
	clear(parts)
	var total, upTo uint64
	for _, w := range weights {
		total = units.AddSaturating(total, uint64(w))
	}
	if total == 0 {
		parts[0] = amount
		return
	}
	var given units.CPUTime
	for i, w := range weights {
		upTo = units.AddSaturating(upTo, uint64(w))
		next := units.CPUTime(units.MulDiv(uint64(amount), upTo, total))
		parts[i] = next - given
		given = next
	}
}

// divided returns an amount divided by a block of weights, or else all of it in the domain of a CPU.
func (t *Table) divided(amount units.CPUTime, block int32, lastCPU int32) []units.CPUTime {
	if t.topology == nil {
		return nil
	}
	if weights := t.block(block); weights != nil && slices.ContainsFunc(weights, func(w uint64) bool { return w > 0 }) {
		Divide(t.parts, amount, weights)
		return t.parts
	}
	clear(t.parts)
	t.parts[t.topology.Of(lastCPU)] = amount
	return t.parts
}

// Parts returns p.Used divided by domain, in the order of the topology; nil where the table divides nothing. The parts
// add up to p.Used. They are valid until the next call of any method that returns parts.
//
// With BPF what each thread used since the scan before is in the domain of the CPU that the thread was on last; what
// threads used that ended meanwhile is divided as the others' time is. With procfs all that a process used is in the
// domain of the CPU that it was on last. Either way a thread that changes its domain between two scans is counted in the
// last one only.
func (t *Table) Parts(p *Process) []units.CPUTime { return t.divided(p.Used, p.parts, p.LastCPU) }

// ShortLivedParts returns p.ShortLived divided by domain like Parts. With procfs, which shows nothing of the children, their time
// is in their parent's domain.
func (t *Table) ShortLivedParts(p *Process) []units.CPUTime {
	return t.divided(p.ShortLived, p.shortLivedParts, p.LastCPU)
}

// LastSliceParts returns e.LastSlice divided by domain like Parts. With BPF it is divided as all that the threads of the
// process used in their lives, each in the domain where it was last.
func (t *Table) LastSliceParts(e *Ended) []units.CPUTime {
	return t.divided(e.LastSlice, e.parts, e.LastCPU)
}

// PartsIn returns c.Used divided by domain like Parts, where c is one of ShortLivedIn.
func (t *Table) PartsIn(c *CgroupTime) []units.CPUTime { return t.divided(c.Used, c.parts, 0) }

// UnplacedParts returns t.ShortLived divided by domain like Parts.
func (t *Table) UnplacedParts() []units.CPUTime { return t.divided(t.ShortLived, t.nobody, 0) }

// RunIn returns what Run is of a domain.
func (t *Table) RunIn(domain int) units.CPUTime { return t.run[domain] }

func (t *Table) addRun(parts []units.CPUTime) {
	for i, part := range parts {
		t.run[i] += part
	}
}
