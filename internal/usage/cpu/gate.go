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

// gate selects the CPU clocks that a scan reads. It leaves out the processes of cgroups whose CPU
// counters stood still: these processes have not run. A process that was moved to another cgroup
// may run unnoticed until its clock is read again. All clocks are read every sweepEvery scans, and
// at once when the clocks that were read leave more than maxDebt of the node's CPU time
// unexplained. Unexplained CPU time is that of all processes together and adds up from scan to
// scan, so a scan misses at most maxDebt in all, plus maxDebt or the CPU time of all processes
// while the clocks were read, whichever is more.
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
	tree   *cgroup.Tree
	isOwn  bool // only the gate uses the tree
	from   int
	groups []*cgroup.Node // of the processes by slot, nil until the cgroup of a process is read
	shrunk uint64         // Table.Renumbered when groups was reset
	scans  int            // number of scans since all clocks were read
	debt   time.Duration  // CPU time since then that no clock explains, negative if clocks were read later
	ahead  time.Duration  // maximum lead of the clocks of the latest scan over the counters
	open   bool           // all clocks are read in this scan
	all    bool           // the counters include processes in the root
	left   []proc.Slot    // of processes that were left out in this scan
	waited []int32        // PIDs of processes whose child times grew in this scan
	placed int            // processes whose cgroups were read in this scan
}

const (
	// sweepEvery is the number of scans between two reads of all clocks. It bounds the delay after
	// which unexplained CPU time below maxDebt is found.
	sweepEvery = 60
	// maxDebt is the maximum CPU time of the node that may be unexplained.
	maxDebt = 10 * time.Millisecond
	// lateInCgroup is the maximum CPU time in a cgroup's counter of processes whose clocks have not
	// been read since they moved to the cgroup. It exceeds maxDebt by the CPU time that the node
	// uses while clocks are read.
	lateInCgroup units.CPUTime = 50 * units.CPUTime(time.Millisecond)
	// gatedFrom is the minimum number of processes of a cgroup whose counter is read. Reading the
	// counter costs as much as reading a few clocks.
	gatedFrom = 8
	// placedPerScan is the maximum number of processes whose cgroups are read in a scan.
	placedPerScan = 500
	// placedFrom is the minimum age of a process whose cgroup is read. Most processes exit
	// before that age, and most others have reached their cgroup.
	placedFrom = 5 * time.Second
)

// placeless is the group of a process whose cgroup cannot be read, or is not counted separately
// from other cgroups.
var placeless = &cgroup.Node{}

// newGate returns a gate that reads the counters of cgroups with at least from processes. It uses
// the tree of the options, or else a tree of its own.
func newGate(o Options, from int) gate {
	g := gate{tree: o.Cgroups, isOwn: o.Cgroups == nil, from: from}
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
	g.left, g.waited, g.placed = g.left[:0], g.waited[:0], 0
	if g.open {
		g.scans, g.debt = 0, 0
	}
}

// end ends a scan. The CPU time used while the clocks were read is in the next growth of the
// counters, although the clocks have explained it.
func (g *gate) end() {
	g.ahead = time.Duration(g.tree.Ahead())
	if g.open {
		g.debt = -g.ahead
	}
	if g.isOwn {
		g.tree.Sweep()
	}
}

// reset frees the nodes of the tree. The cgroups of all processes are read again.
func (g *gate) reset() {
	for slot := range g.groups {
		g.leave(proc.Slot(slot))
	}
	g.groups = g.groups[:0]
}

// groupOf returns the cgroup of a process that has a slot.
func (g *gate) groupOf(p *proc.Process) *cgroup.Node {
	if int(p.Slot) < len(g.groups) {
		return g.groups[p.Slot]
	}
	return nil
}

// leavesOut reports whether the clock of a process need not be read, because the process has not
// run. A zombie can be waited for without running, and a process whose files are outdated may be a
// zombie.
func (g *gate) leavesOut(old *proc.Process) bool {
	group := g.groupOf(old)
	return !g.open && group != nil && !old.Is(proc.Stale) && !old.Is(proc.Zombie) && group.StoodStill()
}

// explain subtracts from the debt the CPU time of a process, and of children that it waited for.
func (g *gate) explain(p *proc.Sight, group *cgroup.Node, used units.CPUTime) {
	if !g.open && g.counts(p, group) {
		g.debt -= time.Duration(used)
	}
}

// forget adds to the debt the CPU time of a process that ended, which was explained while it ran:
// the child times of its parent explain it a second time.
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
	if int(slot) >= len(g.groups) {
		return
	}
	if group := g.groups[slot]; group != nil && group != placeless {
		g.tree.Free(group)
	}
	g.groups[slot] = nil
}

// placeAll finds the cgroups of processes that are due.
func (s *clocksScan) placeAll() {
	t, g := s.Table(), &s.clocks.gate
	if n := len(t.Rows) - len(g.groups); n > 0 {
		g.groups = append(g.groups, make([]*cgroup.Node, n)...)
	}
	for p := range t.All() {
		if g.groups[p.Slot] == nil && t.Now-p.Start >= placedFrom && g.placed < placedPerScan {
			g.groups[p.Slot] = s.place(p)
		}
	}
}

// place returns the cgroup of a process.
func (s *clocksScan) place(p *proc.Process) *cgroup.Node {
	if p.Is(proc.Kernel) {
		return placeless
	}
	g := &s.clocks.gate
	g.placed++
	text, err := s.source.readCgroup(p.PID)
	if err != nil {
		return placeless
	}
	return cmp.Or(g.tree.Watch(text), placeless)
}

// lookAtLeft looks at processes that were left out: at all of them after a sweep decision of the
// gate, otherwise at the children of processes that waited for a child. Such a child exited in a
// cgroup to which it was moved.
func (s *clocksScan) lookAtLeft() {
	g := &s.clocks.gate
	all := g.sweep()
	slices.Sort(g.waited)
	for _, slot := range g.left {
		p := &s.Rows[slot]
		if !all && !isIn(g.waited, p.Parent) {
			continue
		}
		now, err := s.clocks.clock(p.PID)
		switch {
		case errors.Is(err, syscall.EINVAL):
			g.forget(p, g.groupOf(p))
			s.Miss(p)
		case err != nil:
			s.unreadable = true
		case now > p.CPU:
			g.explain(&p.Sight, g.groupOf(p), now-p.CPU)
			g.leave(slot) // the counter of its cgroup stood still: the process is elsewhere
			p.Flags |= proc.Stale
			s.Run(p, now)
			s.refresh(p)
		}
	}
}

func isIn(pids []int32, pid int32) bool {
	_, ok := slices.BinarySearch(pids, pid)
	return ok
}
