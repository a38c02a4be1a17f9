// SPDX-License-Identifier: Apache-2.0

package scan

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
)

// Table is a scan of the processes, compared with the previous scan. A Source fills the same Table
// again and again; its slices are valid until the next scan.
//
// The first scan is the baseline: it lists all processes, and none has used anything. The zero
// Table is ready for it.
type Table struct {
	// Now is when the scan began, since boot.
	Now time.Duration
	// Processes lists all processes: by ascending PID, or those of an exact source the oldest
	// first.
	Processes []Process
	// Active lists the rows, ascending, of the processes that are new, ran, or have short-lived
	// processes beside them.
	Active []int32
	// Ended lists the processes that ended since the previous scan.
	Ended []Ended
	// ShortLived is the CPU time of short-lived processes that belong to no row.
	ShortLived units.CPUTime
	// ShortLivedIn lists the cgroups of that part of ShortLived whose cgroups are known.
	ShortLivedIn []CgroupTime
	// ShortLivedBy lists the part of ShortLived whose names are known (Options.Names). It is not in
	// ShortLivedIn.
	ShortLivedBy []NamedTime
	// Run is the CPU time of all processes that an exact source has found since the baseline. It
	// never decreases.
	Run units.CPUTime
	// Rounding is how far the CPU time of each row may be behind that of its process: in /proc,
	// user and system time are each rounded down to a Tick.
	Rounding units.CPUTime
	// Late is how far the CPU time of all rows of a cgroup together may be behind its processes, in
	// addition.
	Late units.CPUTime
	// Hidden reports whether there are processes that the scan could not see or read.
	Hidden bool
	// Missed reports whether more tasks may have been created since the previous scan than are new
	// in this one: processes may have started and exited in between. It is false for an exact
	// source.
	Missed bool
	// Untraced is an upper bound of the CPU time of exited processes that no counter showed, and of
	// processes that earlier scans missed, at most Unbounded.
	Untraced units.CPUTime
	// LostEnds is the number of exited processes without an event to an exact source, or with an
	// event that lacks CPU time.
	LostEnds uint64

	// Exact reports whether the source misses nothing that runs. It may show CPU time late, but never
	// too much.
	Exact bool
	// Baseline is when the first scan of an exact source began, since boot.
	Baseline time.Duration
	// ChildRounding is by how much child times may lack what the CPU times of the rows include.
	ChildRounding units.CPUTime

	previous
	slots
	order func(a, b *Process) int
	scans uint64

	awaited []Process // rows of processes that are gone and whose final CPU time is not known yet
	final   int       // rows of processes that ended during partial scans

	division divide.Division
	unplaced int32           // the block of ShortLived
	run      []units.CPUTime // Run by domain

	balance []int64 // scratch of traceChildren, by row
	tracer  []int32 // scratch of traceChildren: the row where each ended process's time must show
}

// previous is the previous scan.
type previous struct {
	Before    []Process // rows of the previous scan, from kept on
	kept      int       // how many rows, from the first, are those of the previous scan
	BeforeNow time.Duration
	resuming  bool     // the previous scan is that of a Past
	childless bool     // the previous scan has no child times
	undo      struct { // what Begin overwrote
		beforeNow time.Duration
		hidden    bool
		untraced  units.CPUTime
	}
}

// slots are the indices of processes in tables that belong to a Table.
type slots struct {
	numSlots    int32   // slots in use or free
	free        []int32 // slots to reuse
	freedByScan []int32 // slots of processes that ended in this scan: free from the next one on
	renumbered  uint64
}

// Unbounded is the value of Table.Untraced if nothing limits it.
const Unbounded = units.CPUTime(math.MaxInt64)

// Slots returns a number that is above every Slot.
func (t *Table) Slots() int { return int(t.numSlots) }

// Awaited returns how many rows are those of processes that are gone and whose final CPU time is
// not known yet.
func (t *Table) Awaited() int { return len(t.awaited) }

// Shrink renumbers the slots from 0 on, in the order of the rows, and frees the memory that more
// processes needed. It returns the slot that each row had. The processes that ended are dropped.
func (t *Table) Shrink() (slots []int32) {
	slots = make([]int32, len(t.Processes))
	t.Processes, t.Active = slices.Clone(t.Processes), slices.Clone(t.Active)
	for i := range t.Processes {
		slots[i], t.Processes[i].Slot = t.Processes[i].Slot, int32(i)
	}
	t.renumbered++
	t.numSlots, t.free, t.freedByScan = int32(len(slots)), nil, nil
	t.Before, t.Ended, t.ShortLivedIn, t.ShortLivedBy, t.awaited, t.balance, t.tracer = nil, nil, nil, nil, nil, nil, nil
	return slots
}

// Renumbered returns how often Shrink has renumbered the slots.
func (t *Table) Renumbered() uint64 { return t.renumbered }

// Scans returns how many scans have succeeded.
func (t *Table) Scans() uint64 { return t.scans }

// Begin starts a scan: the current one becomes the previous one.
func (t *Table) Begin(now time.Duration) {
	t.undo.beforeNow, t.undo.hidden, t.undo.untraced = t.BeforeNow, t.Hidden, t.Untraced
	t.Before, t.Processes = t.Processes, t.Before[:0]
	t.clear(now, 0)
}

// clear drops what the previous scan found. The first kept rows stay.
func (t *Table) clear(now time.Duration, kept int) {
	t.BeforeNow, t.Now = t.Now, now
	if t.scans == 0 {
		t.BeforeNow = now // nothing is younger than the baseline
	}
	t.Hidden, t.Missed, t.Untraced, t.ShortLived, t.ShortLivedIn = false, false, 0, 0, t.ShortLivedIn[:0]
	t.ShortLivedBy = t.ShortLivedBy[:0]
	t.LostEnds = 0
	t.kept, t.Active = kept, t.Active[:0]
	t.division.Begin()
	t.unplaced = 0
}

// BeginKeeping starts a scan whose first rows are those of the previous one. Call Advance for each
// of them that changed. The scan must succeed: Abort cannot undo it.
func (t *Table) BeginKeeping(now time.Duration, kept int) {
	if kept == 0 {
		t.Begin(now)
		return
	}
	t.rest(kept)
	t.Before = append(t.Before[:0], t.Processes[kept:]...)
	t.Processes = t.Processes[:kept]
	t.clear(now, kept)
}

// rest drops what the previous scan found of the first rows.
func (t *Table) rest(rows int) {
	for _, i := range t.Active {
		if int(i) < rows {
			p := &t.Processes[i]
			p.Born, p.Used, p.ShortLived, p.Block, p.shortLivedParts = false, 0, 0, 0, 0
		}
	}
}

// BeginPartial starts a scan that keeps all rows. Call Advance for each process that ran and has a
// row, then InsertBorn for those that have none, then End for each row whose process ended.
func (t *Table) BeginPartial(now time.Duration) {
	t.rest(len(t.Processes))
	t.dropEnded()
	t.clear(now, len(t.Processes))
}

// dropEnded forgets the processes that ended in the previous scan.
func (t *Table) dropEnded() {
	t.free = append(t.free, t.freedByScan...)
	t.freedByScan = t.freedByScan[:0]
	t.Ended = t.Ended[:0]
}

// InsertBorn adds rows for new processes, which it sorts. It returns the first row that is not what
// it was.
func (t *Table) InsertBorn(order func(a, b *Process) int, born []Process) (first int) {
	slices.SortFunc(born, func(a, b Process) int { return order(&a, &b) })
	old, at := len(t.Processes)-1, len(t.Processes)+len(born)-1
	t.Processes = append(t.Processes, born...)
	for i := len(born) - 1; i >= 0; at-- {
		if old >= 0 && order(&t.Processes[old], &born[i]) > 0 {
			t.Processes[at] = t.Processes[old]
			old--
			continue
		}
		t.Processes[at] = born[i]
		t.add(&t.Processes[at])
		i--
	}
	first = at + 1
	t.Active = slices.DeleteFunc(t.Active, func(row int32) bool { return int(row) >= first })
	t.kept = first
	t.Activate()
	return first
}

// End gives a row all that its process used. The process is in Ended after the next scan that is
// not partial.
func (t *Table) End(row int32, run units.CPUTime) {
	p := &t.Processes[row]
	active, used := p.isActive(), units.Advance(p.CPU, run)
	p.CPU, p.Used, p.Zombie, p.Final = p.CPU+used, p.Used+used, true, true
	t.final++
	if !active && used > 0 {
		t.Active = append(t.Active, row)
	}
}

// Advance updates a row that was kept.
func (t *Table) Advance(row int32, now *Process) {
	p := &t.Processes[row]
	now.follow(p)
	*p = *now
	if p.Used > 0 {
		t.Active = append(t.Active, row)
	}
}

// follow compares the row with that of the same process in the previous scan.
func (p *Process) follow(old *Process) {
	// Clamp: a time that steps back and recovers must not be counted twice.
	p.CPU, p.ChildCPU = max(p.CPU, old.CPU), max(p.ChildCPU, old.ChildCPU)
	p.Slot, p.Born, p.Used = old.Slot, false, units.Advance(old.CPU, p.CPU)
	p.Discards = old.Discards && p.ChildCPU == old.ChildCPU
	if p.Used == 0 {
		p.Block = 0 // a row that is not active keeps nothing of a scan
	}
}

// BornThreads returns the number of threads of the processes that are new in this scan.
func (t *Table) BornThreads() (n uint64) {
	for _, row := range t.Active {
		if p := &t.Processes[row]; p.Born {
			n += uint64(max(p.Threads, 1))
		}
	}
	return n
}

// isActive reports whether the row belongs to Active.
func (p *Process) isActive() bool { return p.Born || p.Used > 0 || p.ShortLived > 0 }

// Activate lists the active rows among those that were not kept.
func (t *Table) Activate() {
	for i := t.kept; i < len(t.Processes); i++ {
		if t.Processes[i].isActive() {
			t.Active = append(t.Active, int32(i))
		}
	}
}

// GiveShortLived adds the CPU time of a short-lived process to a row.
func (t *Table) GiveShortLived(row int32, run units.CPUTime, weights []uint64) {
	if run == 0 {
		return // a row that is not active keeps nothing of a scan
	}
	p := &t.Processes[row]
	if !p.isActive() {
		t.Active = append(t.Active, row)
	}
	p.shortLivedParts = t.division.AddParts(p.shortLivedParts, run, weights)
	p.ShortLived += run
}

// Abort undoes Begin after a scan that failed.
func (t *Table) Abort() {
	t.Before, t.Processes = t.Processes[:0], t.Before
	t.Now, t.BeforeNow = t.BeforeNow, t.undo.beforeNow
	t.Hidden, t.Untraced = t.undo.hidden, t.undo.untraced
	t.Activate()
}

// EachMissed calls add for each process of the previous scan that has no row, in ascending order of
// PIDs. add may add rows; those before are sorted by PID.
func (t *Table) EachMissed(add func(old *Process)) {
	listed, j := len(t.Processes), 0
	for i := range t.Before {
		pid := t.Before[i].PID
		for j < listed && t.Processes[j].PID < pid {
			j++
		}
		if j == listed || t.Processes[j].PID != pid {
			add(&t.Before[i])
		}
	}
}

// Previous returns the row of a PID in the previous scan, nil if there was none.
func (t *Table) Previous(pid int32) *Process { return Find(t.Before, pid) }

// Finish compares the scan with the previous one and infers what no row shows. node is the CPU time
// that processes account for since then: inferred time never exceeds what the rows leave of it.
func (t *Table) Finish(node units.CPUTime) {
	used := t.Match(ByPID, nil)
	if !t.childless {
		t.traceChildren(units.Advance(used, node))
	}
	t.EndResume()
	t.Activate()
	t.scans++
}

// Match pairs the rows that were not kept with those of the previous scan, both in the given order,
// and returns the CPU time used. final, if not nil, returns the final CPU time of a process that is
// gone; while that is not known the row stays and uses nothing.
func (t *Table) Match(order func(a, b *Process) int, final func(*Process) (units.CPUTime, bool)) (used units.CPUTime) {
	t.Sort(order)
	if t.resuming {
		t.adoptStarts(order)
	}
	t.dropEnded()
	t.awaited, t.final = t.awaited[:0], 0

	end := func(old *Process) {
		e := Ended{Process: *old}
		e.Block, e.shortLivedParts = 0, 0
		if final != nil {
			run, known := final(&e.Process)
			if !known {
				e.Born, e.Used, e.ShortLived, e.Zombie = false, 0, 0, true
				t.awaited = append(t.awaited, e.Process)
				return
			}
			e.LastSlice = units.Advance(old.CPU, run)
			used += e.LastSlice
		}
		t.Ended = append(t.Ended, e)
		t.freedByScan = append(t.freedByScan, old.Slot)
	}
	j := 0
	for i := t.kept; i < len(t.Processes); i++ {
		p := &t.Processes[i]
		for j < len(t.Before) && order(&t.Before[j], p) < 0 {
			end(&t.Before[j])
			j++
		}
		if j < len(t.Before) && t.Before[j].PID == p.PID && t.Before[j].Start == p.Start {
			p.follow(&t.Before[j])
			j++
		} else {
			t.add(p)
		}
		used += p.Used
	}
	for ; j < len(t.Before); j++ {
		end(&t.Before[j])
	}
	if len(t.awaited) > 0 {
		t.Processes = append(t.Processes, t.awaited...)
		t.Sort(order)
	}
	return used
}

// Sort sorts the rows that were not kept. They nearly always are in order already.
func (t *Table) Sort(order func(a, b *Process) int) {
	s := (*rows)(t)
	s.order = order
	if !sort.IsSorted(s) {
		sort.Sort(s)
	}
}

// rows sorts a table's rows in place. They are too large to compare by value.
type rows Table

func (r *rows) Len() int           { return len(r.Processes) - r.kept }
func (r *rows) at(i int) *Process  { return &r.Processes[r.kept+i] }
func (r *rows) Less(i, j int) bool { return r.order(r.at(i), r.at(j)) < 0 }
func (r *rows) Swap(i, j int)      { a, b := r.at(i), r.at(j); *a, *b = *b, *a }

func (t *Table) add(p *Process) {
	if n := len(t.free); n > 0 {
		p.Slot, t.free = t.free[n-1], t.free[:n-1]
	} else {
		p.Slot = t.numSlots
		t.numSlots++
	}
	p.Born = true
	p.Used = 0
	switch {
	case t.BornSinceLastScan(p):
		p.Used = p.CPU
	case t.scans > 0 && !t.Exact: // earlier scans missed the process, and some of its CPU time is older than the interval
		t.Untraced = min(t.Untraced+p.CPU, Unbounded)
	}
}

// BornSinceLastScan reports whether the process started after the previous scan. If it did not, and
// the previous scan did not have it (the baseline, a PID that a scan missed), its CPU time is from
// before we watched it. An exact source misses none, so only what started before the baseline is
// old.
func (t *Table) BornSinceLastScan(p *Process) bool {
	since := t.BeforeNow
	if t.Exact {
		since = t.Baseline
	}
	return t.scans > 0 && p.Start >= since.Truncate(time.Duration(units.Tick))
}

// ByPID orders rows as /proc lists them.
func ByPID(a, b *Process) int {
	return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Start, b.Start))
}

// ByAge orders rows as the kernel's list of tasks does.
func ByAge(a, b *Process) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID))
}

// AddLost adds missed process exits, of which only the count and the total CPU time are known.
// Exits before the baseline do not count.
func (t *Table) AddLost(count uint64, run units.CPUTime) {
	if t.scans > 0 {
		t.LostEnds += count
		t.Untraced = min(t.Untraced+run, Unbounded)
	}
}

// AddUnplaced adds CPU time that belongs to no row, and that was used in the domains in proportion
// to weights.
func (t *Table) AddUnplaced(run units.CPUTime, weights []uint64) {
	if run > 0 {
		t.ShortLived += run
		t.unplaced = t.division.AddParts(t.unplaced, run, weights)
	}
}

// EndScan counts a scan that succeeded.
func (t *Table) EndScan() { t.scans++ }

// Kept returns how many rows, from the first, are those of the previous scan.
func (t *Table) Kept() int { return t.kept }

// Finals returns how many rows are those of processes that ended during partial scans.
func (t *Table) Finals() int { return t.final }

// AddUp adds the CPU time that an exact scan found to Run.
func (t *Table) AddUp() {
	found := t.ShortLived
	for _, i := range t.Active {
		found += t.Processes[i].Used + t.Processes[i].ShortLived
	}
	for i := range t.Ended {
		found += t.Ended[i].LastSlice
	}
	t.Run += found
	if t.division.Divides() {
		t.addRunParts()
	}
}

// addRunParts adds to the domains what AddUp adds to Run.
func (t *Table) addRunParts() {
	t.addRun(t.UnplacedParts())
	for _, i := range t.Active {
		t.addRun(t.Parts(&t.Processes[i]))
		t.addRun(t.ShortLivedParts(&t.Processes[i]))
	}
	for i := range t.Ended {
		t.addRun(t.LastSliceParts(&t.Ended[i]))
	}
}

// Find returns the row of a PID among rows that are sorted by PID, nil if there is none.
func Find(rows []Process, pid int32) *Process {
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
