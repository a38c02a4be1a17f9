// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// treeTimes is the CPU time of a process and its descendants. If the process is this one, its own
// CPU time does not count. The CPU time of running processes is read from CPU clocks. To it are added
// the times of children that processes waited for, in ticks unless the parent is this process.
// Descendants whose parent ended remain in the tree.
type treeTimes struct {
	tree    *processTree
	root    int
	foreign map[int]bool  // processes that do not count
	own     bool          // the root is this process
	before  units.CPUTime // the time before the group began
	members map[int]member
	gone    units.CPUTime // the time of members that ended and have no ancestor that runs
	lost    error         // why times were lost, or nil
}

// member is a process of the tree as it was read last.
type member struct {
	start  uint64
	parent int
	used   units.CPUTime // including children that it waited for
}

// newTreeTimes counts the descendants of a process from now on, and the process unless it is this one.
func newTreeTimes(tree *processTree, root int, foreign map[int]bool) (t *treeTimes, err error) {
	t = &treeTimes{tree: tree, root: root, own: root == os.Getpid(), foreign: foreign}
	t.before, err = t.Used()
	return t, err
}

func (t *treeTimes) method() Method {
	if t.own {
		return ChildTimes
	}
	return ProcessTree
}

func (*treeTimes) path() string { return "" }

func (*treeTimes) close() error { return nil }

// start implements counter.
func (*treeTimes) start(fork func(cgroup int) error) error { return fork(-1) }

// Processes implements Members. It yields the processes that run now.
func (t *treeTimes) Processes(yield func(pid int32)) error {
	if err := t.read(); err != nil {
		return err
	}
	for pid := range t.members {
		if pid != t.root || !t.own {
			yield(int32(pid))
		}
	}
	return nil
}

// Used implements Members.
func (t *treeTimes) Used() (units.CPUTime, error) {
	if err := t.read(); err != nil {
		return 0, err
	}
	used := t.gone
	for _, m := range t.members {
		used += m.used
	}
	return units.Advance(t.before, used), nil
}

// read reads the tree.
func (t *treeTimes) read() error {
	if err := t.tree.refresh(); err != nil {
		return err
	}
	old := t.members
	t.members = make(map[int]member, len(old))
	if old == nil {
		t.visit(t.root, nil)
	}
	parentsFirst := func(a, b int) int { return cmp.Or(cmp.Compare(old[a].start, old[b].start), cmp.Compare(a, b)) }
	for _, pid := range slices.SortedFunc(maps.Keys(old), parentsFirst) {
		is := old[pid]
		t.visit(pid, &is)
	}
	runs := func(pid int) bool {
		now, ok := t.members[pid]
		return ok && now.start == old[pid].start
	}
	for pid, m := range old {
		// An ancestor that waited for the parent has the times of the children that the parent waited for.
		nearest := pid
		for range old { // at most: numbers that are used again could make a circle
			above, ok := old[nearest]
			if !ok || runs(nearest) {
				break
			}
			nearest = above.parent
		}
		if !runs(nearest) {
			t.gone += m.used
			t.lose(pid)
		}
	}
	return nil
}

// lose records the end of a process without a parent that waits.
func (t *treeTimes) lose(pid int) {
	if pid == t.root {
		t.lost = errors.New("the CPU time of the process between the last measurement and its exit is not available")
	} else if t.lost == nil {
		t.lost = errors.New("a descendant exited without a parent that waits: its CPU time before the exit is not available")
	}
}

// visit adds a process and those below it. is, if it is not nil, is the process as it was read last:
// another one may have its number.
//
// Each process is read before its children, so that a child that ends meanwhile is not counted twice.
func (t *treeTimes) visit(pid int, is *member) {
	if _, ok := t.members[pid]; ok || t.foreign[pid] {
		return
	}
	stat, err := t.tree.stat(pid)
	if err != nil || is != nil && stat.Starttime != is.start {
		return // it ended
	}
	m := member{start: stat.Starttime, parent: stat.PPID}
	if pid == t.root && t.own {
		m.used = waitedFor()
	} else {
		m.used = processTime(pid, &stat) + ticks(uint(max(stat.CUTime, 0))) + ticks(uint(max(stat.CSTime, 0)))
	}
	t.members[pid] = m
	children := t.tree.childrenOf(pid)
	if len(children) > 0 && t.lost == nil && t.tree.ignoresSIGCHLD(pid) {
		t.lost = fmt.Errorf("%s ignores SIGCHLD: the times of its exited children are lost", stat.Comm)
	}
	for _, child := range children {
		t.visit(child, nil)
	}
}

// waitedFor returns the CPU time of the descendants of this process that were waited for.
func waitedFor() units.CPUTime {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &u) // never fails
	return units.CPUTime(u.Utime.Nano() + u.Stime.Nano())
}

// processTime returns the CPU time of a process: of its CPU clock, or in ticks if that cannot be read.
func processTime(pid int, stat *procfs.ProcStat) units.CPUTime {
	if used, err := cpu.ReadCPUClock(int32(pid)); err == nil && used > 0 {
		return used
	}
	return ticks(stat.UTime) + ticks(stat.STime)
}

func ticks(n uint) units.CPUTime { return units.CPUTime(n) * units.Tick }

// clock returns the time of a clock, 0 if it cannot be read.
func clock(id int32) units.CPUTime {
	now, _ := cpu.ReadClock(id)
	return now
}
