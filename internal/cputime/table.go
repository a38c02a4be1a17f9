package cputime

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Table is one pass over the processes and what changed since the pass before. It is filled again and
// again; its slices are valid until the next pass. The zero value is ready for the first.
type Table struct {
	// Now is when the pass began, since boot.
	Now time.Duration
	// Processes are all that run, by ascending PID.
	Processes []Process
	// Ended are those that ended since the previous pass.
	Ended []Ended
	// Hidden says that processes run which the pass could not see or read.
	Hidden bool
	// Untraced is the most that processes which ended can have used without anything showing it, up to
	// Unbounded.
	Untraced units.CPUTime

	before      []Process
	beforeNow   time.Duration
	undo        struct { // what begin overwrote
		beforeNow time.Duration
		hidden    bool
		untraced  units.CPUTime
	}
	passes      uint64
	slots       int32   // slots given out so far
	free        []int32 // slots to give out again
	freedByPass []int32 // slots whose processes ended in this pass: free from the next one on

	balance []int64 // scratch of traceChildren, by row
	tracer  []int32 // scratch of traceChildren: the row where each ended process's time must show
}

// Unbounded is the Table's Untraced where nothing limits it.
const Unbounded = units.CPUTime(math.MaxInt64)

// Slots is the number of slots given out so far: every Slot is below it.
func (t *Table) Slots() int { return int(t.slots) }

// begin starts a pass: what was current becomes the pass before.
func (t *Table) begin(now time.Duration) {
	t.undo.beforeNow, t.undo.hidden, t.undo.untraced = t.beforeNow, t.Hidden, t.Untraced
	t.before, t.Processes = t.Processes, t.before[:0]
	t.beforeNow, t.Now = t.Now, now
	t.Hidden, t.Untraced = false, 0
}

// abort undoes begin after a pass that failed.
func (t *Table) abort() {
	t.before, t.Processes = t.Processes[:0], t.before
	t.Now, t.beforeNow = t.beforeNow, t.undo.beforeNow
	t.Hidden, t.Untraced = t.undo.hidden, t.undo.untraced
}

// previous returns the row of a PID in the pass before, nil if there was none.
func (t *Table) previous(pid int32) *Process { return find(t.before, pid) }

// finish compares the pass with the one before. node is the CPU time that processes can account for since
// then: inferred time never exceeds what it leaves.
func (t *Table) finish(node units.CPUTime) {
	if !slices.IsSortedFunc(t.Processes, byPID) {
		slices.SortFunc(t.Processes, byPID)
	}
	t.free = append(t.free, t.freedByPass...)
	t.freedByPass = t.freedByPass[:0]
	t.Ended = t.Ended[:0]

	var used units.CPUTime
	j := 0
	for i := range t.Processes {
		p := &t.Processes[i]
		for j < len(t.before) && t.before[j].PID < p.PID {
			t.end(&t.before[j])
			j++
		}
		if j < len(t.before) && t.before[j].PID == p.PID {
			old := &t.before[j]
			j++
			if old.Start == p.Start {
				p.Slot = old.Slot
				p.Born = false
				p.Used = units.Advance(old.CPU, p.CPU)
				used += p.Used
				continue
			}
			t.end(old)
		}
		t.bear(p)
		used += p.Used
	}
	for ; j < len(t.before); j++ {
		t.end(&t.before[j])
	}
	t.traceChildren(units.Advance(used, node))
	t.passes++
}

func (t *Table) bear(p *Process) {
	if n := len(t.free); n > 0 {
		p.Slot, t.free = t.free[n-1], t.free[:n-1]
	} else {
		p.Slot = t.slots
		t.slots++
	}
	p.Born = true
	p.Used = 0
	if t.BornSinceLastPass(p) {
		p.Used = p.CPU
	}
}

// BornSinceLastPass says whether the process started after the previous pass. One that is older and was not seen
// then (the first pass, a PID that a pass missed) has used its time before, when it was not watched.
func (t *Table) BornSinceLastPass(p *Process) bool {
	return t.passes > 0 && p.Start >= t.beforeNow.Truncate(time.Duration(Tick))
}

func (t *Table) end(p *Process) {
	t.Ended = append(t.Ended, Ended{Process: *p})
	t.freedByPass = append(t.freedByPass, p.Slot)
}

func byPID(a, b Process) int { return cmp.Compare(a.PID, b.PID) }

func find(rows []Process, pid int32) *Process {
	if i := findRow(rows, pid); i >= 0 {
		return &rows[i]
	}
	return nil
}

func findRow(rows []Process, pid int32) int {
	i, ok := slices.BinarySearchFunc(rows, pid, func(p Process, pid int32) int { return cmp.Compare(p.PID, pid) })
	if !ok {
		return -1
	}
	return i
}
