// SPDX-License-Identifier: Apache-2.0

package scan

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// PastProcess is the stored state of a process. The names are those of Process.
type PastProcess struct {
	PID, Parent, Threads     int32
	Kernel, Zombie, Discards bool
	Start                    time.Duration
	CPU, ChildCPU, Owed      units.CPUTime
}

// AppendPast appends what another Table needs of the processes of the scan.
func (t *Table) AppendPast(to []PastProcess) []PastProcess {
	for i := range t.Processes {
		q := &t.Processes[i]
		to = append(to, PastProcess{
			PID: q.PID, Parent: q.Parent, Threads: q.Threads, Kernel: q.Kernel, Zombie: q.Zombie, Discards: q.Discards,
			Start: q.Start, CPU: q.CPU, ChildCPU: q.ChildCPU, Owed: q.Owed,
		})
	}
	return to
}

// Resume makes the scan of a past the previous one. now is when that scan began, since boot, and
// wasExact reports whether its source was exact, and so reported no child times. exact reports
// whether the source of the next scan is.
func (t *Table) Resume(past []PastProcess, now time.Duration, wasExact, exact bool) {
	t.Processes = make([]Process, len(past))
	for i := range past {
		q := &past[i]
		t.Processes[i] = Process{
			PID: q.PID, Parent: q.Parent, Threads: q.Threads, Kernel: q.Kernel, Zombie: q.Zombie, Discards: q.Discards,
			Start: q.Start, CPU: q.CPU, ChildCPU: q.ChildCPU, Owed: q.Owed, LastCPU: -1, Slot: int32(i),
		}
		if !exact {
			t.Processes[i].Start = q.Start.Truncate(time.Duration(units.Tick))
		}
	}
	order := ByPID
	if exact {
		order = ByAge
	}
	slices.SortFunc(t.Processes, func(a, b Process) int { return order(&a, &b) })
	t.numSlots, t.scans, t.Now = int32(len(t.Processes)), 1, now
	t.Exact, t.Baseline = exact, now
	t.resuming, t.childless = true, wasExact
}

// ID distinguishes processes.
type ID struct {
	PID   int32
	Start time.Duration // since boot
}

// adoptStarts gives each row of the past the start time that this scan has for the same process:
// sources differ in the precision of start times.
func (t *Table) adoptStarts(order func(a, b *Process) int) {
	starts := make(map[ID]time.Duration, len(t.Processes))
	for i := range t.Processes {
		p := &t.Processes[i]
		starts[ID{p.PID, p.Start.Truncate(time.Duration(units.Tick))}] = p.Start
	}
	for i := range t.Before {
		old := &t.Before[i]
		if start, ok := starts[ID{old.PID, old.Start.Truncate(time.Duration(units.Tick))}]; ok {
			old.Start = start
		}
	}
	slices.SortFunc(t.Before, func(a, b Process) int { return order(&a, &b) })
}

// Resuming reports whether the previous scan is that of a past.
func (t *Table) Resuming() bool { return t.resuming }

// EndResume ends the first scan after a past. What ended meanwhile is not all known.
func (t *Table) EndResume() {
	if t.resuming {
		t.resuming, t.childless, t.Untraced = false, false, Unbounded
	}
}
