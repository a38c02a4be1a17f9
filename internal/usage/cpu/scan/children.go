// SPDX-License-Identifier: Apache-2.0

package scan

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// traceChildren infers the CPU time that no row shows: the last slices of processes that ended, and
// short-lived children. When a process is waited for, the kernel adds its times, and those of its
// own descendants, to the child times of the process that waited (kernel/exit.c, wait_task_zombie;
// getrusage(2), RUSAGE_CHILDREN). So the growth of a process's child times, less what the rows of
// its ended descendants had shown, is time that was not counted yet.
//
// limit is the CPU time of processes that the rows leave. Inferred time never exceeds it, so that a
// mistaken parent does not count a long life twice.
func (t *Table) traceChildren(limit units.CPUTime) {
	for i := range t.Processes {
		t.Processes[i].ShortLived = 0
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
				t.balance[i] = int64(units.Portion(units.CPUTime(b), limit, found))
			}
		}
	}
	t.giveLastSlices()
	for i, b := range t.balance {
		if b > 0 {
			t.Processes[i].ShortLived = units.CPUTime(b)
		}
	}
}

// childTimeGrowth sets the balance of each row to the growth of its child times since the previous
// scan.
func (t *Table) childTimeGrowth() (grown bool) {
	j := 0
	for i := range t.Processes {
		p := &t.Processes[i]
		t.balance[i] = 0
		if p.Born {
			if t.BornSinceLastScan(p) {
				t.balance[i] = int64(p.ChildCPU)
			}
		} else {
			for t.Before[j].PID != p.PID {
				j++
			}
			old := &t.Before[j]
			shown := units.Advance(old.ChildCPU, p.ChildCPU)
			t.balance[i] = int64(units.Advance(old.Owed, shown))
			p.Owed = min(units.Advance(shown, old.Owed), t.ChildRounding)
		}
		grown = grown || t.balance[i] > 0
	}
	return grown
}

// subtractKnown subtracts what was known of each process that ended from the balance of the row
// where its time must show: its nearest ancestor that still runs.
func (t *Table) subtractKnown() {
	t.tracer = t.tracer[:0]
	for i := range t.Ended {
		e := &t.Ended[i]
		row := -1
		switch {
		case e.Kernel: // no process waits for a kernel thread
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
	for pid, hops := p.Parent, 0; pid != 0 && hops <= len(t.Before); hops++ {
		old := Find(t.Before, pid)
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

// settleDeficits moves a negative balance to the ancestors of its row: the orphans of a process
// that ended in the same interval are waited for further up. If the ancestors lack the time too,
// the row owes it: it was read before it waited, or could not be read, and its child times will
// show it in the next scan.
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
			p := &t.Processes[i]
			p.Owed += units.CPUTime(-t.balance[i])
			t.balance[i] = 0
			if p.Owed > t.ChildRounding {
				t.Untraced = Unbounded // a parent that ignores SIGCHLD never gets the times of its children
			}
		}
	}
}

// giveLastSlices gives positive balances to the processes that ended below that row, up to what
// each can have used. The rest stays in the balance: it is that of short-lived children.
func (t *Table) giveLastSlices() {
	for i := range t.Ended {
		row := t.tracer[i]
		if row < 0 || t.balance[row] <= 0 {
			continue
		}
		// All that ended below one row share its balance, so the first of them serves all.
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
				e.LastSlice = units.Portion(give, min(t.longestLastSlice(&e.Process), shown), most)
				t.tracer[k] = -1
			}
		}
	}
}

// maxThreads is more than any process has (PID_MAX_LIMIT).
const maxThreads = 1 << 22

// longestLastSlice bounds what a process can have used since the previous scan: no longer than the
// interval, and no longer than it had lived until then. So a 5 ms child that a scan happens to see
// is not billed for hundreds of siblings that no scan saw, and a process that ran for minutes gets
// its whole last slice.
func (t *Table) longestLastSlice(p *Process) units.CPUTime {
	return p.MostIn(min(t.Now-t.BeforeNow, t.BeforeNow-p.Start))
}

// MostIn returns an upper bound of what the process can use in a time.
func (p *Process) MostIn(d time.Duration) units.CPUTime {
	if p.Zombie {
		return 0
	}
	// User and system time are each rounded down to a tick.
	return units.CPUTime(max(d, 0))*units.CPUTime(min(max(p.Threads, 1), maxThreads)) + 2*units.Tick
}
