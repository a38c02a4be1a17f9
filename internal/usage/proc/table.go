// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bytes"
	"iter"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
)

// Table holds the processes of a node and their CPU time between the last two scans that succeeded.
// A source fills the same Table again and again. The contents are valid until the next scan begins,
// also if that scan fails.
//
// The first scan is the baseline: it finds all processes, and their usage is 0. New returns a Table
// that is ready for it.
type Table struct {
	// Rows has the processes by slot. The PID of a free slot is 0. Only Shrink changes the slot of
	// a process.
	Rows []Process
	// Active lists the slots of the processes that are new, ran, waited for a child or have a
	// charge, by PID.
	Active []Slot
	// Ended lists the processes that ended since the previous scan, by PID. Their slots are free
	// from the next scan on.
	Ended []Ended
	// Charges has the CPU time of processes without a row: first the charges that name a row, in
	// the order of Active, and then the others.
	Charges []Charge
	// Now is when the latest scan began, since boot, and Before is when the previous scan that
	// succeeded began. Before the first scan both are 0.
	Now, Before time.Duration
	Unseen      Unseen
	Splits      Splits
	Counting    Counting

	traits Traits
	history
	slots    slots
	awaited  awaited
	resumed  resumed
	children children
}

// history describes the scans of a Table.
type history struct {
	baseline time.Duration // when the first one began
	scans    uint64        // that succeeded
	round    uint32        // the number of the latest one, also if it failed
	ended    bool          // the latest one succeeded
}

// slots finds and assigns the slots of a Table.
type slots struct {
	of          map[int32]Slot // the newest row of each PID
	next        Slot           // after the row that the scan found last
	free        []Slot         // to be assigned
	freedByScan []Slot         // of the processes in Table.Ended
	emptied     bool           // a slot in Table.Active is free
	oldest      oldest
	renumbered  uint64
	rates       []rate // of each row in the latest interval with counts, see KeepRates
}

// New returns a Table of a source with these traits.
func New(traits Traits) *Table {
	return &Table{traits: traits, slots: slots{of: map[int32]Slot{}}}
}

// Traits returns the properties of the source.
func (t *Table) Traits() Traits { return t.traits }

// Scans returns how many scans have succeeded.
func (t *Table) Scans() uint64 { return t.scans }

// Len returns the number of processes.
func (t *Table) Len() int { return len(t.Rows) - len(t.slots.free) - len(t.slots.freedByScan) }

// Awaited returns how many of the processes are gone and have no exit event yet.
func (t *Table) Awaited() int { return len(t.awaited.list) }

// All returns the rows of all processes.
func (t *Table) All() iter.Seq[*Process] {
	return func(yield func(*Process) bool) {
		for i := range t.Rows {
			if p := &t.Rows[i]; p.PID != 0 && !yield(p) {
				return
			}
		}
	}
}

// Find returns the newest row of a PID, or nil.
func (t *Table) Find(pid int32) *Process {
	if p := t.next(); p != nil && p.PID == pid && !p.outdated {
		return p
	}
	slot, ok := t.slots.of[pid]
	if !ok {
		return nil
	}
	return &t.Rows[slot]
}

// next returns the row after the row that a scan found last, or nil. Sources report most processes
// in the order of the rows, and these are found without the map.
func (t *Table) next() *Process {
	if i := int(t.slots.next); i < len(t.Rows) && t.Rows[i].PID != 0 {
		return &t.Rows[i]
	}
	return nil
}

// BornThreads returns the number of threads of the processes that are new in this scan.
func (t *Table) BornThreads() (n uint64) {
	for _, slot := range t.Active {
		if p := &t.Rows[slot]; p.Is(Born) {
			n += uint64(max(p.Threads, 1))
		}
	}
	return n
}

// Used returns the total CPU time that the scan found. It also adds this time to parts, by domain;
// parts is nil without a topology.
func (t *Table) Used(parts []units.CPUTime) (used units.CPUTime) {
	add := func(cpu units.CPUTime, split Split, lastCPU int32) {
		used += cpu
		if parts != nil && cpu > 0 {
			addTo(parts, t.Splits.Parts(split, cpu, lastCPU))
		}
	}
	for _, slot := range t.Active {
		p := &t.Rows[slot]
		add(p.Used, p.Split, p.LastCPU)
	}
	for i := range t.Ended {
		e := &t.Ended[i]
		add(e.LastSlice, e.Split, e.LastCPU)
	}
	for i := range t.Charges {
		c := &t.Charges[i]
		add(c.CPU, c.Split, t.lastCPU(c))
	}
	return used
}

// ChargeParts returns the CPU time of a charge divided by domain like Splits.Parts.
func (t *Table) ChargeParts(c *Charge) []units.CPUTime {
	return t.Splits.Parts(c.Split, c.CPU, t.lastCPU(c))
}

// lastCPU returns the last CPU of the row that a charge names.
func (t *Table) lastCPU(c *Charge) int32 {
	if c.Slot < 0 {
		return -1
	}
	return t.Rows[c.Slot].LastCPU
}

// Softirqd returns the CPU time that the kernel's ksoftirqd threads used since the previous scan,
// and adds it to parts, by domain; parts is nil without a topology. The softirq column
// of /proc/stat includes this time, though the threads are processes that account for it
// (kernel/sched/cputime.c, irqtime_account_process_tick).
func (t *Table) Softirqd(parts []units.CPUTime) (used units.CPUTime) {
	for _, slot := range t.Active {
		p := &t.Rows[slot]
		if !p.Is(Kernel) || p.Used == 0 || !bytes.HasPrefix(p.Comm[:], softirqd) {
			continue
		}
		used += p.Used
		if parts != nil {
			addTo(parts, t.Splits.Parts(p.Split, p.Used, p.LastCPU))
		}
	}
	return used
}

var softirqd = []byte("ksoftirqd/")

func addTo(sums, parts []units.CPUTime) {
	for i, part := range parts {
		sums[i] += part
	}
}

// BornSinceLastScan reports whether a process started after the previous scan. If it did not, and
// the previous scan did not have it (the baseline, a PID that a scan missed), its CPU time may be
// older than the interval. An exact source finds every process, so only a process that started
// before the baseline is old.
func (t *Table) BornSinceLastScan(p *Sight) bool {
	since := t.Before
	if t.traits.Exact {
		since = t.baseline
	}
	return t.scans > 0 && p.Start >= since.Truncate(time.Duration(units.Tick))
}

// Renumbered returns how often Shrink has renumbered the slots.
func (t *Table) Renumbered() uint64 { return t.slots.renumbered }

// Shrink renumbers the slots from 0 on, in the order of the rows, and frees the memory that more
// processes needed. It returns the slot that each row had. The processes that ended are dropped.
func (t *Table) Shrink() (were []Slot) {
	rows := make([]Process, 0, t.Len())
	now := make([]Slot, len(t.Rows))
	for p := range t.All() {
		now[p.Slot] = Slot(len(rows))
		were = append(were, p.Slot)
		rows = append(rows, *p)
		rows[len(rows)-1].Slot = Slot(len(rows) - 1)
	}
	of := make(map[int32]Slot, len(rows))
	for pid, slot := range t.slots.of {
		of[pid] = now[slot]
	}
	for i := range rows {
		if p := &rows[i]; p.older > 0 {
			p.older = now[p.older-1] + 1
		}
	}
	for i := range t.awaited.list {
		t.awaited.list[i].slot = now[t.awaited.list[i].slot]
	}
	t.Active = slices.Clone(t.Active)
	for i, slot := range t.Active {
		t.Active[i] = now[slot]
	}
	t.Rows, t.slots, t.children = rows, slots{of: of, renumbered: t.slots.renumbered + 1}, children{}
	t.Ended, t.Charges = nil, nil
	return were
}

// Divide makes the table divide CPU time by the domains of a topology from the next scan on.
func (t *Table) Divide(topology *divide.Topology) { t.Splits.divide(topology) }
