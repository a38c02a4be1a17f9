// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Scan is a scan of the processes. A source reports processes in it and then ends it. The reports
// of a scan that does not end count in the next scan.
type Scan Table

// Begin begins a scan at a time since boot.
func (t *Table) Begin(now time.Duration) *Scan {
	switch {
	case t.ended:
		t.Before = t.Now
		t.rest()
	case t.scans == 0:
		t.forget()
		t.Before, t.baseline = now, now // no process is younger than the baseline
	default:
		t.dropFound() // a process may go missing again
	}
	t.Now, t.ended, t.slots.next = now, false, 0
	t.round++
	return (*Scan)(t)
}

// rest drops the results of the previous scan.
func (t *Table) rest() {
	for _, slot := range t.Active {
		t.Rows[slot].rest()
	}
	t.slots.free = append(t.slots.free, t.slots.freedByScan...)
	t.slots.freedByScan = t.slots.freedByScan[:0]
	t.Active, t.Ended, t.Charges = t.Active[:0], t.Ended[:0], t.Charges[:0]
	t.Splits.slices = t.Splits.slices[:0]
	t.Unseen = Unseen{}
}

// forget drops the rows of a first scan that failed.
func (t *Table) forget() {
	t.Active, t.Rows, t.Ended, t.Charges = t.Active[:0], t.Rows[:0], t.Ended[:0], t.Charges[:0]
	t.Splits.slices = t.Splits.slices[:0]
	t.Unseen, t.slots, t.awaited = Unseen{}, slots{of: map[int32]Slot{}}, awaited{}
}

// Expect makes room for the processes of a first scan, which would otherwise grow the rows step by
// step and copy them.
func (s *Scan) Expect(processes int) {
	if len(s.Rows) == 0 {
		room := processes + processes/16 // so that the first new processes do not cause a copy
		s.Rows, s.Active = slices.Grow(s.Rows, room), slices.Grow(s.Active, processes)
		s.slots.of = make(map[int32]Slot, processes)
	}
}

// Table returns the Table that is scanned.
func (s *Scan) Table() *Table { return (*Table)(s) }

// AddSlice notes that an amount of CPU time was used on a CPU, for Sight.Split. next is the list of
// the other slices of the process, or 0. The unit of run is the same for all slices of a list.
func (s *Scan) AddSlice(cpu int32, run uint64, next Split) Split { return s.Splits.add(cpu, run, next) }

// AddParts returns the Split of CPU time that was used in the domains in proportion to weights.
func (s *Scan) AddParts(used units.CPUTime, weights []uint64) Split {
	return s.Splits.addParts(used, weights)
}

// See reports a process and its values. The row is valid until the next call of See.
func (s *Scan) See(now *Sight) *Process {
	p := s.find(now.ID)
	if p == nil {
		return s.addRow(now)
	}
	active := p.IsActive()
	// Clamp: a time that steps back and recovers must not be counted twice.
	used, childUsed := units.Advance(p.CPU, now.CPU), units.Advance(p.ChildCPU, now.ChildCPU)
	cpu, childCPU, split, events := p.CPU+used, p.ChildCPU+childUsed, p.Split, p.Events
	kept := p.Flags & (Born | Charged)
	if p.Is(Discards) && childUsed == 0 {
		kept |= Discards
	}
	settles := p.gone || p.Cgroup != now.Cgroup
	if settles {
		s.leaveCgroup(p)
	}
	p.Sight = *now
	p.CPU, p.ChildCPU, p.Flags = cpu, childCPU, now.Flags|kept
	p.Used, p.ChildUsed, p.Events = p.Used+used, p.ChildUsed+childUsed, events
	if used == 0 { // only rows in Active are reset by the next scan
		p.Split = split
	} else {
		p.Counted.Add(p.Events.advance(now.Events))
	}
	p.round, p.gone = s.round, false
	if settles {
		s.noteOldest(p)
	}
	s.activate(p, active)
	return p
}

// Run reports that the process of row p still runs, and its CPU time. The other fields of Sight
// stay as they are.
func (s *Scan) Run(p *Process, cpu units.CPUTime) {
	active, used := p.IsActive(), units.Advance(p.CPU, cpu)
	p.CPU, p.Used, p.round = p.CPU+used, p.Used+used, s.round
	if p.gone {
		p.gone, p.Flags = false, p.Flags&^Zombie
		s.noteOldest(p)
	}
	s.activate(p, active)
}

func (s *Scan) activate(p *Process, wasActive bool) {
	if !wasActive && p.IsActive() {
		s.Active = append(s.Active, p.Slot)
	}
}

// find returns the row of a process, or nil.
func (s *Scan) find(id ID) *Process {
	if p := s.Table().next(); p != nil && p.ID == id {
		s.slots.next++
		return p
	}
	for slot, ok := s.slots.of[id.PID]; ok; {
		p := &s.Rows[slot]
		if p.Start == id.Start || s.resumed.matches(p.Start, id.Start) {
			s.slots.next = slot + 1
			return p
		}
		slot, ok = p.older-1, p.older > 0
	}
	return nil
}

// addRow adds a row.
func (s *Scan) addRow(now *Sight) *Process {
	slot := Slot(len(s.Rows))
	if n := len(s.slots.free); n > 0 {
		slot, s.slots.free = s.slots.free[n-1], s.slots.free[:n-1]
	} else {
		s.Rows = append(s.Rows, Process{})
	}
	p := &s.Rows[slot]
	*p = Process{Sight: *now, Slot: slot, round: s.round}
	p.Flags |= Born
	p.Split = 0
	if older, ok := s.slots.of[p.PID]; ok {
		p.older = older + 1
		s.Rows[older].outdated = true
	}
	s.slots.of[p.PID] = slot
	s.noteOldest(p)
	s.Active = append(s.Active, slot)
	switch {
	case s.Table().BornSinceLastScan(now):
		p.Used, p.ChildUsed, p.Split, p.Counted = p.CPU, p.ChildCPU, now.Split, now.Events
	case s.scans > 0 && !s.traits.Exact: // earlier scans missed the process, and some of its CPU time is older than the interval
		s.Unseen.add(p.CPU)
	}
	return p
}

// Saw reports whether this scan has seen the process of a row.
func (s *Scan) Saw(p *Process) bool { return p.round == s.round }

// Remaining returns the rows that this scan has not seen, except rows whose exit is awaited. The
// loop body may report processes.
func (s *Scan) Remaining() iter.Seq[*Process] {
	return func(yield func(*Process) bool) {
		for i := range s.Rows {
			if p := &s.Rows[i]; p.PID != 0 && p.round != s.round && !p.gone && !yield(p) {
				return
			}
		}
	}
}

// Miss reports that the process of a row is gone. If the source reports ends, the row stays until
// Exit, but not longer than a minute.
func (s *Scan) Miss(p *Process) {
	switch {
	case !s.traits.ReportsEnds, s.resumed.resuming: // it may have ended before the source was opened
		s.end(p, 0)
	case !p.gone:
		s.await(p)
	}
}

// MissRemaining reports that all processes that this scan has not seen are gone.
func (s *Scan) MissRemaining() {
	for p := range s.Remaining() {
		s.Miss(p)
	}
}

// Exit reports the end of a process, its total CPU time and events, and weights by domain that
// divide this time. It returns false for a short-lived process, which no previous scan saw: the
// source must charge its CPU time. Exit follows the calls of See of its scan.
func (s *Scan) Exit(id ID, run units.CPUTime, events Events, weights []uint64) (known bool) {
	p := s.find(id)
	if p != nil && !p.Is(Born) {
		p.Split = s.AddParts(max(run, 1), weights)
		p.Counted.Add(p.Events.advance(events))
		s.end(p, units.Advance(p.CPU, run))
		return true
	}
	if p != nil {
		s.remove(p)
		s.slots.freedByScan = append(s.slots.freedByScan, p.Slot) // it is in Active
	}
	return s.awaited.gaveUp(id) || s.scans == 0 || id.Start < s.baseline
}

// end moves a row to Ended. last is the CPU time since the row was last reported.
func (s *Scan) end(p *Process, last units.CPUTime) {
	e := Ended{Process: *p, LastSlice: p.Used + last, LastCounted: p.Counted, rate: s.slots.rate(p.Slot)}
	e.Used, e.Counted, e.Flags = 0, Events{}, e.Flags&^(Born|Charged)
	s.Ended = append(s.Ended, e)
	s.remove(p)
	s.slots.freedByScan = append(s.slots.freedByScan, p.Slot)
}

// remove empties a slot.
func (s *Scan) remove(p *Process) {
	s.slots.emptied = s.slots.emptied || p.IsActive()
	s.unlink(p)
	s.leaveCgroup(p)
	if int(p.Slot) < len(s.slots.rates) {
		s.slots.rates[p.Slot] = rate{}
	}
	*p = Process{Slot: p.Slot}
}

// unlink removes a row from the rows of its PID.
func (s *Scan) unlink(p *Process) {
	newest := s.slots.of[p.PID]
	switch {
	case newest != p.Slot:
		newer := &s.Rows[newest]
		for newer.older != p.Slot+1 {
			newer = &s.Rows[newer.older-1]
		}
		newer.older = p.older
	case p.older > 0:
		s.slots.of[p.PID] = p.older - 1
	default:
		delete(s.slots.of, p.PID)
	}
}

// Charge adds CPU time that belongs to no row.
func (s *Scan) Charge(c Charge) {
	if c.CPU == 0 {
		return
	}
	s.Charges = append(s.Charges, c)
	if c.Slot >= 0 {
		p := &s.Rows[c.Slot]
		active := p.IsActive()
		p.Flags |= Charged
		s.activate(p, active)
	}
}

// Lose adds processes whose exit events were lost, and the CPU time of their whole lives.
// incomplete is the number of other exit events that lack CPU time. Losses before the baseline do
// not count.
func (s *Scan) Lose(ends, incomplete uint64, run units.CPUTime) {
	if ends > 0 || run > 0 { // the kernel adds to one of the two first
		s.awaited.lost = s.round
	}
	if s.scans > 0 {
		s.Unseen.LostExits += ends + incomplete
		s.Unseen.add(run)
	}
}

// End ends a successful scan of all processes. Processes without a call of See, Run or Miss still
// run. node is the CPU time of all processes since the previous scan. It limits the sum of inferred
// time and the time of the rows.
func (s *Scan) End(node units.CPUTime) {
	if s.traits.ChildTimes && !s.resumed.childless {
		s.traceChildren(node)
	}
	if s.resumed.resuming { // exits without a receiver are not all counted
		s.resumed, s.Unseen.Untraced = resumed{}, Unbounded
	}
	s.awaited.listed, s.awaited.at = s.Now, s.round
	s.EndPartial()
}

// EndPartial ends a successful scan that did not look at all processes. It does not infer
// CPU time from child times.
func (s *Scan) EndPartial() {
	s.updateAwaited()
	if s.slots.emptied {
		s.dropEmptied()
	}
	s.sort(s.Active)
	slices.SortStableFunc(s.Charges, func(a, b Charge) int { return s.compare(a.Slot, b.Slot) })
	slices.SortFunc(s.Ended, func(a, b Ended) int { return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Start, b.Start)) })
	s.ended = true
	s.scans++
}

// dropEmptied drops the slots of exited processes from Active. Their charges have no row: their
// processes exited after the charge, in an earlier scan that failed or because their exit events
// are overdue.
func (s *Scan) dropEmptied() {
	s.Active = slices.DeleteFunc(s.Active, func(slot Slot) bool { return s.Rows[slot].PID == 0 })
	for i := range s.Charges {
		if c := &s.Charges[i]; c.Slot >= 0 && s.Rows[c.Slot].PID == 0 {
			c.Slot = -1
		}
	}
	s.slots.emptied = false
}

// sort sorts slots by PID: shares of energy are rounded one after the other, and the same processes
// must get the same shares whichever slots they have.
func (s *Scan) sort(list []Slot) {
	slices.SortFunc(list, s.compare)
}

// compare compares slots by PID. A slot below 0 is the last.
func (s *Scan) compare(a, b Slot) int {
	if a < 0 || b < 0 {
		return cmp.Compare(b, a)
	}
	return cmp.Or(cmp.Compare(s.Rows[a].PID, s.Rows[b].PID), cmp.Compare(a, b))
}

// OldestIn returns the slot of the oldest process of a cgroup that is not a zombie, or a negative
// number if there is no such process. Call it after all calls of Exit: the rows are searched at
// most once a scan.
func (s *Scan) OldestIn(cgroup uint64) Slot {
	h := &s.slots.oldest
	slot, ok := h.of[cgroup]
	if ok && s.isLive(slot) {
		return slot
	}
	if h.of != nil && !ok || h.round == s.round {
		return -1
	}
	if h.of == nil {
		h.of = map[uint64]Slot{}
	}
	clear(h.of)
	h.round = s.round
	for p := range s.Table().All() {
		s.noteOldest(p)
	}
	return s.OldestIn(cgroup)
}

// oldest holds the slot of the oldest process of each cgroup, or is empty. The slot is negative
// once that process has left the cgroup.
type oldest struct {
	of    map[uint64]Slot
	round uint32 // of the scan that searched all processes
}

// maxOldest is the number of cgroups above which oldest is emptied. Most of these cgroups no longer
// exist.
const maxOldest = 1 << 16

// isLive reports whether a slot holds a process that is not a zombie.
func (s *Scan) isLive(slot Slot) bool { return slot >= 0 && !s.Rows[slot].Is(Zombie) }

// noteOldest records a process as the oldest of its cgroup if no recorded process is older.
func (s *Scan) noteOldest(p *Process) {
	h := &s.slots.oldest
	if h.of == nil || p.Is(Zombie) {
		return
	}
	if len(h.of) > maxOldest {
		h.of = nil
		return
	}
	slot, ok := h.of[p.Cgroup]
	if !ok || s.isLive(slot) && cmp.Or(cmp.Compare(p.Start, s.Rows[slot].Start), cmp.Compare(p.PID, s.Rows[slot].PID)) < 0 {
		h.of[p.Cgroup] = p.Slot
	}
}

// leaveCgroup records that a process leaves its cgroup.
func (s *Scan) leaveCgroup(p *Process) {
	oldest := s.slots.oldest.of
	if slot, ok := oldest[p.Cgroup]; ok && slot == p.Slot {
		oldest[p.Cgroup] = -1
	}
}
