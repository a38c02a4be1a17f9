// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Table is one pass over the processes and what changed since the pass before. It is filled again and
// again; its slices are valid until the next pass. The zero value is ready for the first.
type Table struct {
	// Sizes asks the source for sizes (Resident) that are a second old at most. Otherwise the size of a process that
	// sleeps may be a minute old.
	Sizes bool
	// Now is when the pass began, since boot.
	Now time.Duration
	// Processes are all that run: by ascending PID, those of an exact source by age.
	Processes []Process
	// Active are the rows, ascending, of the processes that are new, ran, or had children that came and went.
	Active []int32
	// Ended are those that ended since the previous pass.
	Ended []Ended
	// Unseen is what processes used that came and went between the passes and that belong to no row.
	Unseen units.CPUTime
	// UnseenIn says where the part of Unseen was used of which that is known.
	UnseenIn []CgroupTime
	// Run is all CPU time of processes that exact passes have found since the first: it never goes down.
	Run units.CPUTime
	// Hidden says that processes run which the pass could not see or read.
	Hidden bool
	// Untraced is the most that processes which ended can have used without anything showing it, up to
	// Unbounded.
	Untraced units.CPUTime
	// LostEnds is how many processes ended of whose end the pass of an exact source was not told.
	LostEnds uint64

	before    []Process // rows of the pass before, from kept on
	kept      int       // how many rows, from the first, are those of the pass before
	beforeNow time.Duration
	undo      struct { // what begin overwrote
		beforeNow time.Duration
		hidden    bool
		untraced  units.CPUTime
	}
	order       func(a, b *Process) int
	exact       bool          // the source misses nothing that runs, and may show a time late but never too much
	baseline    time.Duration // when the first pass of an exact source began
	passes      uint64
	slots       int32   // slots given out so far
	free        []int32 // slots to give out again
	freedByPass []int32 // slots whose processes ended in this pass: free from the next one on

	awaited []Process // rows of processes that are gone, whose final CPU time is not known yet

	division

	balance []int64 // scratch of traceChildren, by row
	tracer  []int32 // scratch of traceChildren: the row where each ended process's time must show
}

// Unbounded is the Table's Untraced where nothing limits it.
const Unbounded = units.CPUTime(math.MaxInt64)

// Slots is the number of slots given out so far: every Slot is below it.
func (t *Table) Slots() int { return int(t.slots) }

// Awaited returns how many rows are of processes that are gone and wait for their final CPU time.
func (t *Table) Awaited() int { return len(t.awaited) }

// Compact gives the processes the slots from 0 on, in the order of their rows, and gives back the memory that was needed for
// more of them. It returns the slot that each row had. What the scan told of processes that ended is gone.
func (t *Table) Compact() (slots []int32) {
	slots = make([]int32, len(t.Processes))
	t.Processes, t.Active = slices.Clone(t.Processes), slices.Clone(t.Active)
	for i := range t.Processes {
		p := &t.Processes[i]
		slots[i], p.Slot = p.Slot, int32(i)
	}
	t.slots, t.free, t.freedByPass = int32(len(slots)), nil, nil
	t.before, t.Ended, t.UnseenIn, t.awaited, t.balance, t.tracer = nil, nil, nil, nil, nil, nil
	return slots
}

// Pass numbers the passes that succeeded, from 1.
func (t *Table) Pass() uint64 { return t.passes }

// begin starts a pass: what was current becomes the pass before.
func (t *Table) begin(now time.Duration) {
	t.undo.beforeNow, t.undo.hidden, t.undo.untraced = t.beforeNow, t.Hidden, t.Untraced
	t.before, t.Processes = t.Processes, t.before[:0]
	t.beforeNow, t.Now = t.Now, now
	if t.passes == 0 {
		t.beforeNow = now // nothing is younger than the first pass
	}
	t.Hidden, t.Untraced, t.Unseen, t.UnseenIn = false, 0, 0, t.UnseenIn[:0]
	t.LostEnds = 0
	t.kept, t.Active = 0, t.Active[:0]
	t.division.begin()
}

// beginKeeping starts a pass like begin, whose first rows are those of the pass before: what changed in them is told
// to advance.
func (t *Table) beginKeeping(now time.Duration, kept int) {
	if kept == 0 {
		t.begin(now)
		return
	}
	for _, i := range t.Active {
		if int(i) < kept {
			p := &t.Processes[i]
			p.Born, p.Used, p.Unseen, p.parts, p.unseenParts = false, 0, 0, 0, 0
		}
	}
	t.before = append(t.before[:0], t.Processes[kept:]...)
	t.Processes = t.Processes[:kept]
	t.beforeNow, t.Now = t.Now, now
	if t.passes == 0 {
		t.beforeNow = now // nothing is younger than the first pass
	}
	t.Hidden, t.Untraced, t.Unseen, t.UnseenIn = false, 0, 0, t.UnseenIn[:0]
	t.LostEnds = 0
	t.kept, t.Active = kept, t.Active[:0]
	t.division.begin()
}

// advance gives a row that was kept what the pass shows of it.
func (t *Table) advance(row int32, now *Process) {
	p := &t.Processes[row]
	now.follow(p)
	*p = *now
	if p.Used > 0 {
		t.Active = append(t.Active, row)
	}
}

// follow makes the row the next one of the same process.
func (p *Process) follow(old *Process) {
	// What dips and recovers is nobody's twice.
	p.CPU, p.ChildCPU = max(p.CPU, old.CPU), max(p.ChildCPU, old.ChildCPU)
	p.Slot, p.Born, p.Used = old.Slot, false, units.Advance(old.CPU, p.CPU)
	p.discards = old.discards && p.ChildCPU == old.ChildCPU
}

// isActive says whether the row belongs to Active.
func (p *Process) isActive() bool { return p.Born || p.Used > 0 || p.Unseen > 0 }

// activate lists the active rows among those that were not kept.
func (t *Table) activate() {
	for i := t.kept; i < len(t.Processes); i++ {
		if t.Processes[i].isActive() {
			t.Active = append(t.Active, int32(i))
		}
	}
}

// giveUnseen says that children of a process used this much.
func (t *Table) giveUnseen(row int32, run units.CPUTime, weights []uint64) {
	p := &t.Processes[row]
	p.unseenParts = t.division.add(p.unseenParts, run, weights)
	if run > 0 && !p.isActive() {
		t.Active = append(t.Active, row)
	}
	p.Unseen += run
}

// abort undoes begin after a pass that failed.
func (t *Table) abort() {
	t.before, t.Processes = t.Processes[:0], t.before
	t.Now, t.beforeNow = t.beforeNow, t.undo.beforeNow
	t.Hidden, t.Untraced = t.undo.hidden, t.undo.untraced
	t.activate()
}

// previous returns the row of a PID in the pass before, nil if there was none.
func (t *Table) previous(pid int32) *Process { return find(t.before, pid) }

// finish compares the pass with the one before, and infers what no process shows. node is the CPU time that
// processes can account for since then: inferred time never exceeds what it leaves.
func (t *Table) finish(node units.CPUTime) {
	used := t.match(byPID, nil)
	t.traceChildren(units.Advance(used, node))
	t.activate()
	t.passes++
}

// match pairs the rows that were not kept with those of the pass before, both in this order, and returns what was used. Where
// final is given it says of a process that is gone what it used in all; while that is not known yet the
// row stays, and nothing is used.
func (t *Table) match(order func(a, b *Process) int, final func(*Process) (units.CPUTime, bool)) (used units.CPUTime) {
	t.sort(order)
	t.free = append(t.free, t.freedByPass...)
	t.freedByPass = t.freedByPass[:0]
	t.Ended = t.Ended[:0]
	t.awaited = t.awaited[:0]

	end := func(old *Process) {
		e := Ended{Process: *old}
		e.parts, e.unseenParts = 0, 0
		if final != nil {
			run, known := final(&e.Process)
			if !known {
				e.Born, e.Used, e.Unseen, e.Zombie = false, 0, 0, true
				t.awaited = append(t.awaited, e.Process)
				return
			}
			e.LastSlice = units.Advance(old.CPU, run)
			used += e.LastSlice
		}
		t.Ended = append(t.Ended, e)
		t.freedByPass = append(t.freedByPass, old.Slot)
	}
	j := 0
	for i := t.kept; i < len(t.Processes); i++ {
		p := &t.Processes[i]
		for j < len(t.before) && order(&t.before[j], p) < 0 {
			end(&t.before[j])
			j++
		}
		if j < len(t.before) && t.before[j].PID == p.PID && t.before[j].Start == p.Start {
			p.follow(&t.before[j])
			j++
		} else {
			t.bear(p)
		}
		used += p.Used
	}
	for ; j < len(t.before); j++ {
		end(&t.before[j])
	}
	if len(t.awaited) > 0 {
		t.Processes = append(t.Processes, t.awaited...)
		t.sort(order)
	}
	return used
}

// sort puts the rows that were not kept in order. They nearly always are already.
func (t *Table) sort(order func(a, b *Process) int) {
	s := (*rows)(t)
	s.order = order
	if !sort.IsSorted(s) {
		sort.Sort(s)
	}
}

// rows sorts a table's rows in place: they are too large to be handed to a comparison by value.
type rows Table

func (r *rows) Len() int           { return len(r.Processes) - r.kept }
func (r *rows) at(i int) *Process  { return &r.Processes[r.kept+i] }
func (r *rows) Less(i, j int) bool { return r.order(r.at(i), r.at(j)) < 0 }
func (r *rows) Swap(i, j int)      { a, b := r.at(i), r.at(j); *a, *b = *b, *a }

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
// then (the first pass, a PID that a pass missed) has used its time before, when it was not watched. What an
// exact source shows for the first time was being created during the previous pass at the earliest, whatever
// the clock says.
func (t *Table) BornSinceLastPass(p *Process) bool {
	since := t.beforeNow
	if t.exact {
		since = t.baseline
	}
	return t.passes > 0 && p.Start >= since.Truncate(time.Duration(Tick))
}

// byPID orders rows as /proc lists them.
func byPID(a, b *Process) int {
	return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Start, b.Start))
}

// byAge orders rows as the kernel's list of tasks does.
func byAge(a, b *Process) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID))
}

// addUp adds to Run what an exact pass found.
func (t *Table) addUp() {
	found := t.Unseen
	for _, i := range t.Active {
		found += t.Processes[i].Used + t.Processes[i].Unseen
	}
	for i := range t.Ended {
		found += t.Ended[i].LastSlice
	}
	t.Run += found
	if t.topology != nil {
		t.addRunParts()
	}
}

// addRunParts adds to the domains what addUp adds to Run.
func (t *Table) addRunParts() {
	t.addRun(t.NobodysParts())
	for _, i := range t.Active {
		t.addRun(t.Parts(&t.Processes[i]))
		t.addRun(t.UnseenParts(&t.Processes[i]))
	}
	for i := range t.Ended {
		t.addRun(t.LastParts(&t.Ended[i]))
	}
}

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
