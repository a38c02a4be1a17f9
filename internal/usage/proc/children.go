// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// children is the scratch of traceChildren.
type children struct {
	balance []int64       // by slot
	rows    []Slot        // returned by rowsWhere
	tracer  []Slot        // the row where the time of each process in Ended must show, -1 if there is none
	ended   map[int32]int // the index in Ended of each PID that had a row
}

// traceChildren infers the CPU time that no row shows: the last slices of processes that ended, and
// short-lived children. When a process is waited for, the kernel adds its times, and those of its
// own descendants, to the child times of the process that waited (kernel/exit.c, wait_task_zombie;
// getrusage(2), RUSAGE_CHILDREN). So the growth of a process's child times, less what the rows of
// its ended descendants had shown, is time that was not counted yet.
//
// node is the CPU time of processes since the previous scan. Inferred time never exceeds what the
// rows leave of it, so that a mistaken parent does not count a long life twice.
func (s *Scan) traceChildren(node units.CPUTime) {
	c := &s.children
	c.balance = slices.Grow(c.balance[:0], len(s.Rows))[:len(s.Rows)]
	if grown := s.childTimeGrowth(); !grown && len(s.Ended) == 0 {
		return
	}
	s.subtractKnown()
	s.settleDeficits()

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

// rowsWhere returns the rows with a balance of some kind, by PID. They are valid until the next call.
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

// subtractKnown subtracts what was known of each process that ended from the balance of the row
// where its time must show: its nearest ancestor that still runs.
func (s *Scan) subtractKnown() {
	c := &s.children
	if c.ended == nil {
		c.ended = map[int32]int{}
	}
	clear(c.ended)
	for i := range s.Ended {
		c.ended[s.Ended[i].PID] = i
	}
	c.tracer = c.tracer[:0]
	for i := range s.Ended {
		e := &s.Ended[i]
		row := Slot(-1)
		switch {
		case e.Is(Kernel): // no process waits for a kernel thread
			s.Unseen.add(s.longestLastSlice(&e.Process))
		default:
			row = s.survivingAncestor(&e.Process)
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

func (s *Scan) survivingAncestor(p *Process) Slot {
	start := p.Start
	// A chain of parents is at most as long as the table; the bound is for tables that lie.
	for pid, hops := p.Parent, 0; pid != 0 && hops <= len(s.Rows); hops++ {
		old := s.Table().Find(pid)
		i, hasEnded := s.children.ended[pid]
		switch {
		case hasEnded:
			old = &s.Ended[i].Process
		case old != nil && old.Start <= start:
			return old.Slot
		case old == nil || old.Is(Born):
			return -1
		}
		start, pid = old.Start, old.Parent
	}
	return -1
}

// settleDeficits moves a negative balance to the ancestors of its row: the orphans of a process
// that ended in the same interval are waited for further up. If the ancestors lack the time too,
// the row owes it: it was read before it waited, or could not be read, and its child times will
// show it in the next scan.
func (s *Scan) settleDeficits() {
	c := &s.children
	for _, slot := range s.rowsWhere(func(b int64) bool { return b < 0 }) {
		p := &s.Rows[slot]
		deficit := -c.balance[slot]
		for up, hops := s.Table().Find(p.Parent), 0; deficit > 0 && up != nil && hops < len(s.Rows); hops++ {
			taken := min(max(c.balance[up.Slot], 0), deficit)
			c.balance[up.Slot] -= taken
			deficit -= taken
			up = s.Table().Find(up.Parent)
		}
		c.balance[slot] = 0
		if p.Owed += units.CPUTime(deficit); deficit > 0 && p.Owed > s.traits.ChildRounding {
			s.Unseen.Untraced = Unbounded // a parent that ignores SIGCHLD never gets the times of its children
		}
	}
}

// giveLastSlices gives positive balances to the processes that ended below that row, up to what
// each can have used. The rest stays in the balance: it is that of short-lived children.
func (s *Scan) giveLastSlices() {
	balance, tracer := s.children.balance, s.children.tracer
	for i := range s.Ended {
		row := tracer[i]
		if row < 0 || balance[row] <= 0 {
			continue
		}
		// All that ended below one row share its balance, so the first of them serves all.
		shown := units.CPUTime(balance[row])
		var most units.CPUTime
		for k := i; k < len(s.Ended); k++ {
			if tracer[k] == row {
				most += min(s.longestLastSlice(&s.Ended[k].Process), shown)
			}
		}
		give := min(shown, most)
		balance[row] -= int64(give)
		for k := i; k < len(s.Ended); k++ {
			if tracer[k] == row {
				e := &s.Ended[k]
				e.LastSlice += units.Portion(give, min(s.longestLastSlice(&e.Process), shown), most)
				tracer[k] = -1
			}
		}
	}
}

// longestLastSlice bounds what a process can have used since the previous scan: no longer than the
// interval, and no longer than it had lived until then. So a 5 ms child that a scan happens to see
// is not billed for hundreds of siblings that no scan saw, and a process that ran for minutes gets
// its whole last slice.
func (s *Scan) longestLastSlice(p *Process) units.CPUTime {
	return p.mostIn(min(s.Now-s.Before, s.Before-p.Start))
}
