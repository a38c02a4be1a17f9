// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// traceChildren finds the CPU time that no visible process shows: the last slices of processes that
// ended, and the whole life of children that came and went between two passes. When a process is waited
// for, the kernel adds its times, and those of its own descendants, to the child times of the one that
// waited (kernel/exit.c, wait_task_zombie; getrusage(2), RUSAGE_CHILDREN). So what a process's child times
// grew by, less what was already known of its descendants that ended, is time that nobody was billed for.
//
// limit is the CPU time of processes that the visible ones leave: inference never goes beyond it, so that
// a mistaken parent cannot bill a long life twice.
func (t *Table) traceChildren(limit units.CPUTime) {
	for i := range t.Processes {
		t.Processes[i].Unseen = 0
	}
	t.balance = slices.Grow(t.balance[:0], len(t.Processes))[:len(t.Processes)]
	grown := t.childTimeGrowth()
	if !grown && len(t.Ended) == 0 {
		return
	}
	t.subtractKnown()
	t.settleDeficits()

	var found units.CPUTime
	for i, b := range t.balance {
		if b > 0 {
			b := min(units.CPUTime(b), limit)
			t.balance[i] = int64(b)
			found += b
		}
	}
	if found > limit {
		for i, b := range t.balance {
			if b > 0 {
				t.balance[i] = int64(portion(units.CPUTime(b), limit, found))
			}
		}
	}
	t.giveLastSlices()
	for i, b := range t.balance {
		if b > 0 {
			t.Processes[i].Unseen = units.CPUTime(b)
		}
	}
}

// childTimeGrowth sets each row's balance to what its child times grew by since the previous pass.
func (t *Table) childTimeGrowth() (grown bool) {
	j := 0
	for i := range t.Processes {
		p := &t.Processes[i]
		t.balance[i] = 0
		if p.Born {
			if t.BornSinceLastPass(p) {
				t.balance[i] = int64(p.ChildCPU)
			}
		} else {
			for t.before[j].PID != p.PID {
				j++
			}
			old := &t.before[j]
			t.balance[i] = int64(units.Advance(old.owed, units.Advance(old.ChildCPU, p.ChildCPU)))
		}
		grown = grown || t.balance[i] > 0
	}
	return grown
}

// subtractKnown takes what was known of each process that ended from the balance of the row where its
// time must show: its nearest ancestor that still runs.
func (t *Table) subtractKnown() {
	t.tracer = t.tracer[:0]
	for i := range t.Ended {
		e := &t.Ended[i]
		row := -1
		switch {
		case e.Kernel: // nobody waits for a kernel thread
			t.Untraced = min(t.Untraced+t.longestLastSlice(&e.Process), Unbounded)
		default:
			row = t.survivingAncestor(&e.Process)
			if row < 0 && !e.Zombie {
				t.Untraced = Unbounded
			}
		}
		t.tracer = append(t.tracer, int32(row))
		if row >= 0 {
			t.balance[row] -= int64(e.CPU + e.ChildCPU)
		}
	}
}

func (t *Table) survivingAncestor(p *Process) int {
	start := p.Start
	// A chain of parents is at most as long as the table; the bound is for tables that lie.
	for pid, hops := p.Parent, 0; pid != 0 && hops <= len(t.before); hops++ {
		old := find(t.before, pid)
		row := findRow(t.Processes, pid)
		if row >= 0 && t.Processes[row].Start <= start && (old == nil || old.Start == t.Processes[row].Start) {
			return row
		}
		if old == nil {
			return -1
		}
		start, pid = old.Start, old.Parent
	}
	return -1
}

// settleDeficits takes what a row could not show from its ancestors: the orphans of a process that ended in
// the same interval are waited for further up. What is lacking there too the row owes: it was read before
// it waited, or could not be read, and its child times will show it at the next pass.
func (t *Table) settleDeficits() {
	for i := range t.balance {
		for up, hops := i, 0; t.balance[i] < 0 && hops < len(t.balance); hops++ {
			if up = findRow(t.Processes, t.Processes[up].Parent); up < 0 {
				break
			}
			if b := t.balance[up]; b > 0 {
				taken := min(b, -t.balance[i])
				t.balance[up] -= taken
				t.balance[i] += taken
			}
		}
		if t.balance[i] < 0 {
			t.Processes[i].owed += units.CPUTime(-t.balance[i])
			t.balance[i] = 0
			t.Untraced = Unbounded // a parent that ignores SIGCHLD never gets its children's times
		}
	}
}

// giveLastSlices hands positive balances to the processes that ended below that row, up to what each can
// have used. The rest is left in the balance: children that no pass saw.
func (t *Table) giveLastSlices() {
	for i := range t.Ended {
		row := t.tracer[i]
		if row < 0 || t.balance[row] <= 0 {
			continue
		}
		// All that ended below one row share its balance, so they are served together, at the first.
		shown := units.CPUTime(t.balance[row])
		var most units.CPUTime
		for k := i; k < len(t.Ended); k++ {
			if t.tracer[k] == row {
				most += min(t.longestLastSlice(&t.Ended[k].Process), shown)
			}
		}
		give := min(shown, most)
		t.balance[row] -= int64(give)
		for k := i; k < len(t.Ended); k++ {
			if t.tracer[k] == row {
				e := &t.Ended[k]
				e.LastSlice = portion(give, min(t.longestLastSlice(&e.Process), shown), most)
				t.tracer[k] = -1
			}
		}
	}
}

// maxThreads is more than any process has (PID_MAX_LIMIT).
const maxThreads = 1 << 22

// longestLastSlice bounds what a process can have used after it was last seen: no longer than the
// interval, and no longer than it had lived until then. A 5 ms child that a pass happens to catch is
// thereby not billed for the hundreds of its siblings that no pass caught, and a process that ran for
// minutes gets its whole last slice.
func (t *Table) longestLastSlice(p *Process) units.CPUTime {
	if p.Zombie {
		return 0
	}
	lived := min(t.Now-t.beforeNow, t.beforeNow-p.Start)
	// User and system time are each rounded down to a tick.
	return units.CPUTime(max(lived, 0))*units.CPUTime(min(max(p.Threads, 1), maxThreads)) + 2*Tick
}

// portion is amount * part / whole without overflow; part must not exceed whole.
func portion(amount, part, whole units.CPUTime) units.CPUTime {
	return units.CPUTime(units.MulDiv(uint64(amount), uint64(part), uint64(whole)))
}
