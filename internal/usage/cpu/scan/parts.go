// SPDX-License-Identifier: Apache-2.0

package scan

import (
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
)

// Divide makes the table divide CPU time by domain from the next scan on.
//
// By default all of a row's time was used on Process.LastCPU. If the source adds slices of the row,
// the time is divided in proportion to these. The time of processes that ended is divided by domain
// only.
func (t *Table) Divide(topology *divide.Topology) {
	t.division.Divide(topology)
	if topology != nil && len(t.run) != len(topology.Domains()) {
		t.run = make([]units.CPUTime, len(topology.Domains()))
	}
}

// AddSlice adds what the threads of a process used on one CPU; see Division.AddSlice.
func (t *Table) AddSlice(cpu int32, run uint64, next int32) { t.division.AddSlice(cpu, run, next) }

// AddParts divides used by domain in proportion to weights and adds it to block i; see
// Division.AddParts.
func (t *Table) AddParts(i int32, used units.CPUTime, weights []uint64) int32 {
	return t.division.AddParts(i, used, weights)
}

// Parts returns p.Used divided by domain, in the order of the topology, or nil if the table divides
// nothing. The parts add up to p.Used. They are valid until the next call of a method that returns
// parts. Each slice of p belongs to the domain of its CPU.
func (t *Table) Parts(p *Process) []units.CPUTime {
	return t.division.Parts(p.Block, p.Used, p.LastCPU)
}

// Slices returns on which CPUs p.Used was used, in no order. They add up to p.Used. They are valid
// until the next call of a method that returns slices.
//
// If the source notes slices (Options.Slices, with BPF), what each thread used since the previous
// scan is in a slice of the CPU that the thread was last on. The time of threads that ended
// meanwhile is divided like that of the others. Otherwise all of p.Used is in one slice, of
// p.LastCPU. Either way a thread that changes CPUs between two scans counts for the last one only.
func (t *Table) Slices(p *Process) []divide.Slice {
	return t.division.Slices(p.Block, p.Used, p.LastCPU)
}

// ShortLivedParts returns p.ShortLived divided by domain like Parts: by where the short-lived
// processes ended (BPF), or all in the domain of their parent (procfs).
func (t *Table) ShortLivedParts(p *Process) []units.CPUTime {
	return t.division.Of(p.ShortLived, p.shortLivedParts, p.LastCPU)
}

// LastSliceParts returns e.LastSlice divided by domain like Parts. With BPF it is divided in
// proportion to what the threads used in their whole lives, each in the domain that it was last in.
func (t *Table) LastSliceParts(e *Ended) []units.CPUTime {
	return t.division.Of(e.LastSlice, e.Block, e.LastCPU)
}

// PartsIn returns c.Used divided by domain like Parts. c is an element of ShortLivedIn.
func (t *Table) PartsIn(c *CgroupTime) []units.CPUTime { return t.division.Of(c.Used, c.Block, 0) }

// PartsBy returns n.Used divided by domain like Parts. n is an element of ShortLivedBy.
func (t *Table) PartsBy(n *NamedTime) []units.CPUTime { return t.division.Of(n.Used, n.Block, 0) }

// UnplacedParts returns t.ShortLived divided by domain like Parts.
func (t *Table) UnplacedParts() []units.CPUTime { return t.division.Of(t.ShortLived, t.unplaced, 0) }

// RunIn returns the part of t.Run in a domain, by its index in the topology.
func (t *Table) RunIn(domain int) units.CPUTime { return t.run[domain] }

// addRun adds to the domains what AddUp adds to Run.
func (t *Table) addRun(parts []units.CPUTime) {
	for i, part := range parts {
		t.run[i] += part
	}
}
