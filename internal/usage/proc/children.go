// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// children is the scratch of traceChildren.
type children struct {
	balance []int64         // by slot
	rows    []Slot          // returned by rowsWhere
	tracer  []Slot          // of each process in Ended: the row whose child times include it, -1 without one
	ended   map[int32]int   // the index in Ended of each PID that had a row
	above   []Slot          // the surviving ancestor of each process in Ended, unset until it is found
	up      []Slot          // by slot: see above; unset until it is found
	most    []units.CPUTime // by slot: the sum of the longest last slices below a row
}

// unset is a Slot that was not found yet.
const unset = Slot(-2)

// unsetSlots returns n unset slots in the memory of a list.
func unsetSlots(list []Slot, n int) []Slot {
	list = slices.Grow(list[:0], n)[:n]
	for i := range list {
		list[i] = unset
	}
	return list
}

// traceChildren infers the CPU time that no row shows: the last slices of processes that ended, and
// short-lived children. When a process is waited for, the kernel adds its times and its own child
// times to the child times of the process that waited. See wait_task_zombie in kernel/exit.c and
// RUSAGE_CHILDREN in getrusage(2). The growth of a process's child times minus the CPU times in the
// rows of its exited descendants is therefore new time.
//
// node is the CPU time of processes since the previous scan. Inferred time never exceeds node minus
// the time of the rows, so that a mistaken parent does not count a long life twice.
func (s *Scan) traceChildren(node units.CPUTime) {
	c := &s.children
	c.balance = slices.Grow(c.balance[:0], len(s.Rows))[:len(s.Rows)]
	if grown := s.childTimeGrowth(); !grown && len(s.Ended) == 0 {
		return
	}
	s.subtractKnown()
	s.passUpDeficits()

	limit := units.Advance(s.Table().Used(nil), node)
	var found units.CPUTime
	for _, b := range c.balance {
		if b > 0 {
			found += min(units.CPUTime(b), limit)
		}
	}
	for slot, b := range c.balance {
		if b > 0 {
			c.balance[slot] = int64(units.Portion(min(units.CPUTime(b), limit), limit, max(found, limit)))
		}
	}
	s.giveLastSlices()
	for _, slot := range s.rowsWhere(func(b int64) bool { return b > 0 }) {
		s.Charge(Charge{Slot: slot, CPU: units.CPUTime(c.balance[slot])})
	}
}

// rowsWhere returns the rows with a balance of some kind, by PID. They are valid until the next
// call.
func (s *Scan) rowsWhere(is func(balance int64) bool) []Slot {
	c := &s.children
	c.rows = c.rows[:0]
	for slot, b := range c.balance {
		if is(b) {
			c.rows = append(c.rows, Slot(slot))
		}
	}
	s.sort(c.rows)
	return c.rows
}

// childTimeGrowth sets the balance of each row to the growth of its child times since the previous
// scan.
func (s *Scan) childTimeGrowth() (grown bool) {
	for i := range s.Rows {
		p := &s.Rows[i]
		s.children.balance[i] = int64(units.Advance(p.Owed, p.ChildUsed))
		p.Owed = min(units.Advance(p.ChildUsed, p.Owed), s.traits.ChildRounding)
		grown = grown || s.children.balance[i] > 0
	}
	return grown
}

// subtractKnown subtracts the last CPU time of each exited process from the balance of the row
// whose child times include it: its nearest ancestor that still runs.
func (s *Scan) subtractKnown() {
	c := &s.children
	if c.ended == nil {
		c.ended = map[int32]int{}
	}
	clear(c.ended)
	for i := range s.Ended {
		c.ended[s.Ended[i].PID] = i
	}
	c.tracer, c.above = c.tracer[:0], unsetSlots(c.above, len(s.Ended))
	for i := range s.Ended {
		e := &s.Ended[i]
		row := Slot(-1)
		switch {
		case e.Is(Kernel): // no process waits for a kernel thread
			s.Unseen.add(s.longestLastSlice(&e.Process))
		default:
			row = s.survivingAncestor(i)
			if row < 0 && !e.Is(Zombie) {
				s.Unseen.Untraced = Unbounded
			}
		}
		c.tracer = append(c.tracer, row)
		if row >= 0 {
			c.balance[row] -= int64(e.CPU + units.Advance(e.ChildUsed, e.ChildCPU))
		}
	}
}

// survivingAncestor returns the row of the nearest ancestor that still runs of a process in Ended,
// or
// -1. The exited ancestors on the way have the same surviving ancestor, so no part of a line is
// followed twice.
func (s *Scan) survivingAncestor(of int) Slot {
	c, row := &s.children, Slot(-1)
	p, next, hasEnded := &s.Ended[of].Process, of, true
	// A chain of parents is not longer than the table. The bound stops at a cycle of parents.
	for hops := 0; hops <= len(s.Rows); hops++ {
		if hasEnded {
			if row = c.above[next]; row != unset {
				break
			}
			row, p = -1, &s.Ended[next].Process
		}
		if p.Parent == 0 {
			break
		}
		if next, hasEnded = c.ended[p.Parent]; hasEnded {
			continue
		}
		old := s.Table().Find(p.Parent)
		if old == nil {
			break
		}
		if old.Start <= p.Start {
			row = old.Slot
			break
		}
		if old.Is(Born) {
			break
		}
		p = old
	}
	for i, ok := of, true; ok && c.above[i] == unset; i, ok = c.ended[s.Ended[i].Parent] {
		c.above[i] = row
	}
	return row
}

// passUpDeficits moves a negative balance to the ancestors of its row: an ancestor waits for the
// orphans of a process that ended in the same interval. If the ancestors lack the time too, the row
// owes it: the row was read before the process waited, or could not be read. The next scan will
// show the time in its child times.
func (s *Scan) passUpDeficits() {
	c := &s.children
	c.up = unsetSlots(c.up, len(s.Rows))
	for _, slot := range s.rowsWhere(func(b int64) bool { return b < 0 }) {
		p := &s.Rows[slot]
		deficit := -c.balance[slot]
		for up := s.ancestorWithBalance(slot); deficit > 0 && up >= 0; up = s.ancestorWithBalance(up) {
			taken := min(c.balance[up], deficit)
			c.balance[up] -= taken
			deficit -= taken
		}
		c.balance[slot] = 0
		if p.Owed += units.CPUTime(deficit); deficit > 0 && p.Owed > s.traits.ChildRounding {
			s.Unseen.Untraced = Unbounded // a parent that ignores SIGCHLD never gets the times of its children
		}
	}
}

// ancestorWithBalance returns the nearest ancestor of a row that has a positive balance, or -1. No
// balance becomes positive during passUpDeficits, so later searches skip the rows in between.
func (s *Scan) ancestorWithBalance(of Slot) Slot {
	c, row := &s.children, s.above(of)
	for hops := 0; row >= 0 && c.balance[row] <= 0; hops++ {
		if row = s.above(row); hops > len(s.Rows) {
			row = -1 // a cycle of parents
		}
	}
	for at := of; at != row && at >= 0; {
		at, c.up[at] = s.above(at), row
	}
	return row
}

// above returns the row of the parent of a row, or the result of the latest ancestorWithBalance
// that passed the row. It returns -1 without a parent.
func (s *Scan) above(of Slot) Slot {
	c := &s.children
	if c.up[of] == unset {
		c.up[of] = -1
		if p := s.Table().Find(s.Rows[of].Parent); p != nil {
			c.up[of] = p.Slot
		}
	}
	return c.up[of]
}

// giveLastSlices divides the positive balance of a row among the exited processes below the row, up
// to the longest last slice of each. The rest stays in the balance: short-lived children used it.
func (s *Scan) giveLastSlices() {
	c := &s.children
	c.most = slices.Grow(c.most[:0], len(s.Rows))[:len(s.Rows)]
	clear(c.most)
	for i := range s.Ended {
		if row := c.tracer[i]; row >= 0 && c.balance[row] > 0 {
			c.most[row] += s.lastSliceOf(i)
		}
	}
	for i := range s.Ended {
		if row := c.tracer[i]; row >= 0 && c.balance[row] > 0 {
			give := min(units.CPUTime(c.balance[row]), c.most[row])
			s.Ended[i].LastSlice += units.Portion(give, s.lastSliceOf(i), c.most[row])
		}
	}
	for _, row := range c.tracer {
		if row >= 0 && c.balance[row] > 0 {
			c.balance[row] -= int64(min(units.CPUTime(c.balance[row]), c.most[row]))
			c.most[row] = 0
		}
	}
}

// lastSliceOf bounds the last slice of a process in Ended, which its tracer shows.
func (s *Scan) lastSliceOf(i int) units.CPUTime {
	return min(s.longestLastSlice(&s.Ended[i].Process), units.CPUTime(s.children.balance[s.children.tracer[i]]))
}

// longestLastSlice bounds the CPU time of an exited process since the previous scan. Its threads
// ran no longer than the interval, and no longer than the process had lived until then. A 5 ms
// child that a scan happens to see does not get the CPU time of hundreds of siblings that no scan
// saw. A process that ran for minutes gets its whole last slice.
func (s *Scan) longestLastSlice(p *Process) units.CPUTime {
	return p.mostIn(min(s.Now-s.Before, s.Before-p.Start))
}
