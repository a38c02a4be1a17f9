// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"cmp"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// gate selects the CPU clocks that a scan reads. It leaves out two kinds of processes:
//   - Processes of cgroups whose CPU counters stood still. These processes have not run, unless they
//     were moved to another cgroup.
//   - Idle processes: they used no CPU time in the latest idleFrom scans, and a counter includes
//     their CPU time. They may have run since.
//
// The debt is the CPU time in the counters that the clocks of the read processes do not explain. It
// is a sum over all processes, and accumulates from scan to scan. The scan reads clocks of idle
// processes if the debt exceeds maxDebt, or lastDebt in the last scan of a collection. It begins
// with the process that ran last, and stops once the debt is explained. If the debt still exceeds
// maxDebt, the scan reads all clocks. All clocks are also read every sweepEvery scans. A scan
// therefore misses at most maxDebt in total, plus the larger of maxDebt and the CPU time that all
// processes used while the clocks were read. CPU time of an idle process that a scan misses is
// found at most sweepEvery scans later.
//
// CPU time that processes use while the clocks are read is the lead of the clocks. It hides as much
// CPU time of idle processes. If the lead exceeds maxAhead, the scan and the next one read the clocks
// of all idle processes. A scan reads these clocks last, so that their number does not add to the
// lead.
//
// The exit of an idle process is found by the number of tasks, or if its parent waited for it.
// Otherwise, it is found when the clock of the process is read.
//
// A scan may miss more CPU time in these cases. The next reading of all clocks finds it.
//   - A process waited for a child without a row. The child may have used its CPU time in earlier
//     intervals.
//   - With version 2 only, a privileged process moved a process to the root, whose CPU time no
//     counter shows, or to a new outermost cgroup that was removed before the next scan.
//
// All clocks are read without need if the clock of a parent that waited was late: refreshKin reads
// its child times after the debt was compared.
type gate struct {
	leftOut
	placing
	tree   *cgroup.Tree
	isOwn  bool          // only the gate uses the tree
	from   int           // minimum number of processes of a cgroup whose counter is read
	places []place       // of the processes by slot
	shrunk uint64        // Table.Renumbered when places was reset
	number uint32        // of the scan
	scans  int           // number of scans since all clocks were read
	debt   time.Duration // CPU time since then that no clock explains, negative if clocks were read later
	ahead  time.Duration // maximum lead of the clocks of the latest scan over the counters
	found  time.Duration // CPU time that lookAgain found in this scan
	open   bool          // all clocks are read in this scan
	all    bool          // the counters include processes in the root
	excess int64         // clocksScan.excess when all clocks were read last
}

// leftOut holds the processes that were left out in a scan.
type leftOut struct {
	left   []proc.Slot // their cgroups stood still
	idle   []proc.Slot // idle processes
	waited []int32     // PIDs of the processes whose child times grew in the scan
	exited []int32     // PIDs of the parents of processes that exited
}

// placing counts the reads that find the cgroups of processes.
type placing struct {
	placed int    // processes whose cgroup files were read in this scan
	listed uint32 // the number of the last scan that listed the members of the root
}

// place is the cgroup of a process and the state of its clock.
type place struct {
	group  *cgroup.Node // nil until it is found
	ran    uint32       // the number of the last scan that found CPU time, 0 before the first
	unread bool         // the process was left out as idle since its clock was last read
}

const (
	// sweepEvery is the number of scans between two reads of all clocks. It bounds the delay after
	// which unexplained CPU time below maxDebt is found.
	sweepEvery = 60
	// maxDebt is the maximum CPU time of the node that may be unexplained.
	maxDebt = 10 * time.Millisecond
	// lastDebt is the maximum debt in the last scan of a collection before clocks of idle processes
	// are read.
	lastDebt = time.Millisecond
	// idleFrom is the number of scans without CPU time after which a process is idle.
	idleFrom = 16
	// lateInCgroup is the maximum CPU time in a cgroup's counter of idle processes, and of processes
	// that moved to the cgroup, whose clocks have not been read since. It exceeds maxDebt by the CPU
	// time that the node uses while clocks are read.
	lateInCgroup units.CPUTime = 50 * units.CPUTime(time.Millisecond)
	// maxAhead is the maximum lead of the clocks in a scan that leaves out idle processes. The leads
	// of two scans, an earlier one and the latest, hide CPU time in addition to maxDebt.
	maxAhead = (time.Duration(lateInCgroup) - maxDebt) / 2
	// gatedFrom is the minimum number of processes of a cgroup whose counter is read. Reading the
	// counter costs as much as reading a few clocks.
	gatedFrom = 8
	// placedPerScan is the maximum number of processes whose cgroups are read in a scan.
	placedPerScan = 500
	// listedFrom is the number of cgroup files that a scan reads before it also lists the members
	// of cgroups. A cgroup with more placed members is not listed.
	listedFrom = 32
	// placedFrom is the minimum age of a process whose cgroup is read. Most processes exit
	// before that age, and most others have reached their cgroup.
	placedFrom = 5 * time.Second
)

// placeless is the group of a process whose cgroup cannot be read, or is not counted separately
// from other cgroups.
var placeless = &cgroup.Node{}

// newGate returns a gate that reads the counters of cgroups with at least from processes. It uses
// the tree of the options, or its own tree if the options have none.
func newGate(o Options, from int) gate {
	g := gate{tree: o.Cgroups, isOwn: o.Cgroups == nil, from: from, number: idleFrom}
	if g.isOwn {
		g.tree = cgroup.New(cgroup.Options{Root: o.Root, Waits: o.Waits})
	}
	return g
}

// close frees the nodes of the tree, and closes the gate's own tree.
func (g *gate) close() error {
	g.reset()
	if g.isOwn {
		return g.tree.Close()
	}
	g.tree.WatchFrom(0)
	return nil
}

// begin reads the counters. If all is set, all clocks are read.
func (g *gate) begin(t *proc.Table, all bool) {
	if t.Renumbered() != g.shrunk {
		g.reset()
		g.shrunk = t.Renumbered()
	}
	g.tree.WatchFrom(g.from)
	g.tree.ReadCPUTime()
	grown, withRoot, known := g.tree.Grown()
	g.scans++
	g.debt = max(g.debt, -max(maxDebt, g.ahead)) + time.Duration(grown)
	g.all, g.open = withRoot, all || !known || g.scans >= sweepEvery
	g.left, g.idle, g.waited, g.exited, g.placed = g.left[:0], g.idle[:0], g.waited[:0], g.exited[:0], 0
	g.found = 0
	g.number++
	if g.open {
		g.scans, g.debt = 0, 0
	}
}

// end ends a scan. The CPU time used while the clocks were read is in the next growth of the
// counters, although the clocks have explained it.
func (g *gate) end() {
	if g.found > 0 {
		g.ahead = min(g.ahead+g.found, time.Duration(g.tree.Ahead()))
	}
	if g.open {
		g.debt = -g.ahead
	}
	if g.isOwn {
		g.tree.Sweep()
	}
}

// reset frees the nodes of the tree. The cgroups of all processes are read again.
func (g *gate) reset() {
	for slot := range g.places {
		g.leave(proc.Slot(slot))
	}
	g.places = g.places[:0]
}

// groupOf returns the cgroup of a process that has a slot.
func (g *gate) groupOf(p *proc.Process) *cgroup.Node {
	if int(p.Slot) < len(g.places) {
		return g.places[p.Slot].group
	}
	return nil
}

// leavesOut reports whether the clock of a process need not be read: the process has not run, or it
// is idle. A zombie can be waited for without running, and a process whose files are outdated may be
// a zombie.
func (g *gate) leavesOut(old *proc.Process) bool {
	group := g.groupOf(old)
	if g.open || group == nil || old.Is(proc.Stale) || old.Is(proc.Zombie) {
		return false
	}
	at := &g.places[old.Slot]
	switch {
	case !at.unread && group.StoodStill():
		g.left = append(g.left, old.Slot)
	case g.counts(&old.Sight, group) && g.number-at.ran > idleFrom:
		g.idle, at.unread = append(g.idle, old.Slot), true
	default:
		return false
	}
	return true
}

// noteRead records that the clock of a process was read, and whether the process ran.
func (g *gate) noteRead(slot proc.Slot, ran bool) {
	if int(slot) >= len(g.places) {
		return
	}
	at := &g.places[slot]
	if at.unread = false; ran {
		at.ran = g.number
	}
}

// isUnread reports whether the process with a slot was left out as idle after its clock was read last.
func (g *gate) isUnread(slot proc.Slot) bool {
	return int(slot) < len(g.places) && g.places[slot].unread
}

// explain subtracts from the debt the CPU time of a process, and of children that it waited for.
func (g *gate) explain(p *proc.Sight, group *cgroup.Node, used units.CPUTime) {
	if !g.open && g.counts(p, group) {
		g.debt -= time.Duration(used)
	}
}

// forget adds the CPU time of an exited process to the debt. This time was explained while the
// process ran, and the child times of its parent explain it a second time.
func (g *gate) forget(p *proc.Process, group *cgroup.Node) {
	if !g.open && g.counts(&p.Sight, group) {
		g.debt += time.Duration(p.CPU + p.ChildCPU)
	}
}

// counts reports whether the counters include the CPU time of a process.
func (g *gate) counts(p *proc.Sight, group *cgroup.Node) bool {
	return g.all || !p.Is(proc.Kernel) && group != placeless
}

// sweep reports whether all processes that were left out must be looked at.
func (g *gate) sweep() bool {
	if g.open || g.debt <= maxDebt {
		return false
	}
	g.scans, g.debt, g.open = 0, 0, true
	return true
}

// leave removes the process with a slot from its cgroup.
func (g *gate) leave(slot proc.Slot) {
	if int(slot) >= len(g.places) {
		return
	}
	if group := g.places[slot].group; group != nil && group != placeless {
		g.tree.Free(group)
	}
	g.places[slot].group = nil
}

// placeAll finds the cgroups of processes that are due.
func (s *clocksScan) placeAll() {
	t, g := s.Table(), &s.clocks.gate
	if n := len(t.Rows) - len(g.places); n > 0 {
		g.places = append(g.places, make([]place, n)...)
	}
	for p := range t.All() {
		if s.isDue(p) && g.placed < placedPerScan {
			s.place(p)
		}
	}
}

// isDue reports whether the cgroup of a process is to be found.
func (s *clocksScan) isDue(p *proc.Process) bool {
	return s.clocks.gate.places[p.Slot].group == nil && s.Table().Now-p.Start >= placedFrom
}

// place finds the cgroup of a process. If the scan places many processes, it also places the other
// members of the cgroup, unless many members were placed before. In version 1, such a member may
// have only a secondary thread in the cgroup. maxDebt bounds the CPU time that scans then miss.
func (s *clocksScan) place(p *proc.Process) {
	g := &s.clocks.gate
	at := &g.places[p.Slot]
	at.group = placeless
	if p.Is(proc.Kernel) {
		return
	}
	g.placed++
	text, err := s.source.readCgroup(p.PID)
	if err != nil {
		return
	}
	at.group = cmp.Or(g.tree.Watch(text), placeless)
	if g.placed < listedFrom || at.group.Holds() > listedFrom || at.group == placeless && g.listed == g.number {
		return
	}
	if at.group == placeless {
		g.listed = g.number
	}
	members, err := g.tree.Members(text)
	for _, pid := range members {
		if q := s.Table().Find(pid); err == nil && q != nil && s.isDue(q) && !q.Is(proc.Kernel) {
			g.places[q.Slot].group = at.group
			if at.group != placeless {
				at.group.Hold()
			}
		}
	}
}

// lookAtLeft looks at processes that were left out:
//   - If the debt exceeds most, idle processes until the debt is explained.
//   - If the number of tasks shows an exit, or if the lead of the clocks in this scan or in the
//     previous one exceeds maxAhead, all idle processes.
//   - If the gate decides to sweep, all processes.
//   - Otherwise, the children of processes that waited for a child. Such a child was idle, or had
//     moved to another cgroup before it exited.
func (s *clocksScan) lookAtLeft(tasks uint64, most time.Duration) {
	g := &s.clocks.gate
	before := g.ahead
	g.ahead = time.Duration(g.tree.Ahead())
	for _, pid := range g.exited { // the child times of an idle parent that waited explain CPU time
		if p := s.Table().Find(pid); p != nil && s.Saw(p) && g.isUnread(p.Slot) {
			s.lookAgain(p.Slot)
		}
	}
	hasExited := func() bool { return s.excess(tasks) > g.excess }
	exited, searches := hasExited(), !g.open && g.debt > most
	if searches {
		slices.SortFunc(g.idle, func(a, b proc.Slot) int { return cmp.Compare(g.places[b].ran, g.places[a].ran) })
	}
	readsAll := exited || max(before, g.ahead) > maxAhead
	for _, slot := range g.idle {
		if readsAll || searches && g.debt > 0 {
			s.lookAgain(slot)
		} else {
			g.left = append(g.left, slot)
		}
	}
	slices.Sort(g.waited)
	all := g.sweep() || exited && hasExited()
	for _, slot := range g.left {
		if all || len(g.waited) > 0 && isIn(g.waited, s.Rows[slot].Parent) {
			s.lookAgain(slot)
		}
	}
	if g.open || all {
		g.excess = s.excess(tasks)
	}
}

// excess returns by how much the threads of the rows outnumber the tasks of the node. It grows if
// the scan misses the exit of a process.
func (s *clocksScan) excess(tasks uint64) int64 { return int64(s.threads) - int64(tasks) }

// lookAgain looks at a process that was left out.
func (s *clocksScan) lookAgain(slot proc.Slot) {
	g, p := &s.clocks.gate, &s.Rows[slot]
	if p.PID == 0 { // it has exited
		return
	}
	group, moved := g.groupOf(p), !g.places[slot].unread // its cgroup stood still: if it ran, it was moved
	now, err := s.clocks.clock(p.PID)
	if err == nil {
		g.noteRead(slot, now > p.CPU)
	}
	switch {
	case errors.Is(err, syscall.EINVAL):
		g.forget(p, group)
		s.threads -= uint64(p.Threads)
		s.Miss(p)
	case err != nil:
		s.unreadable = true
	case now > p.CPU:
		g.found += time.Duration(now - p.CPU)
		g.explain(&p.Sight, group, now-p.CPU)
		if moved {
			g.leave(slot)
		}
		p.Flags |= proc.Stale
		s.Run(p, now)
		had := p.Threads
		s.refresh(p)
		s.threads += uint64(p.Threads) - uint64(had)
	}
}

func isIn(pids []int32, pid int32) bool {
	_, ok := slices.BinarySearch(pids, pid)
	return ok
}
