// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// childTimes is the CPU time of the descendants of this process: the CPU clocks of running
// descendants, and the times of reaped children, which the kernel adds up (getrusage(2),
// RUSAGE_CHILDREN). A process that ignores SIGCHLD does not reap its children, and their times are
// lost.
type childTimes struct {
	tree    *processTree
	before  units.CPUTime // of children that were reaped before
	foreign map[int]bool  // children that do not count
	lost    error         // why times were lost, nil if nothing shows that any were
}

func newChildTimes(tree *processTree, foreign map[int]bool) (*childTimes, error) {
	before, err := waitedFor()
	return &childTimes{tree: tree, foreign: foreign, before: before}, err
}

func (*childTimes) method() Method { return ChildTimes }
func (*childTimes) path() string   { return "" }
func (*childTimes) close() error   { return nil }

// start implements counter.
func (*childTimes) start(fork func(cgroup int) error) error { return fork(-1) }

// waitedFor returns the CPU time of the descendants that were waited for.
func waitedFor() (units.CPUTime, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &u); err != nil {
		return 0, err
	}
	return units.CPUTime(u.Utime.Nano() + u.Stime.Nano()), nil
}

// Used implements cpu.Group.
//
// Each process is read before its children. So what is waited for meanwhile is missed until the
// next call, and never counted twice.
func (c *childTimes) Used() (units.CPUTime, error) {
	waited, err := waitedFor()
	if err != nil {
		return 0, err
	}
	used := units.Advance(c.before, waited)
	return used, c.each(func(pid int, stat *procfs.ProcStat) {
		used += processTime(pid, stat) + ticks(uint(stat.CUTime)) + ticks(uint(stat.CSTime))
	})
}

// Processes implements cpu.Group.
func (c *childTimes) Processes(yield func(pid int32)) error {
	return c.each(func(pid int, _ *procfs.ProcStat) { yield(int32(pid)) })
}

// each calls yield with each descendant, before those below it.
func (c *childTimes) each(yield func(pid int, stat *procfs.ProcStat)) error {
	if err := c.tree.refresh(); err != nil {
		return err
	}
	for _, pid := range c.tree.childrenOf(os.Getpid()) {
		if !c.foreign[pid] {
			c.eachBelow(pid, yield)
		}
	}
	return nil
}

func (c *childTimes) eachBelow(pid int, yield func(pid int, stat *procfs.ProcStat)) {
	stat, err := c.tree.stat(pid)
	if err != nil {
		return // it ended
	}
	yield(pid, &stat)
	children := c.tree.childrenOf(pid)
	if len(children) > 0 && c.lost == nil && c.tree.ignoresSIGCHLD(pid) {
		c.lost = fmt.Errorf("%s ignores SIGCHLD: the times of its children that ended are lost", stat.Comm)
	}
	for _, child := range children {
		c.eachBelow(child, yield)
	}
}

// processTime returns the CPU time of a process by its own clock, in nanoseconds, or where there is none in ticks.
func processTime(pid int, stat *procfs.ProcStat) units.CPUTime {
	const sched = 2 // CPUCLOCK_SCHED of a process, not a thread (linux/posix-timers.h)
	if used := clock(int32(^pid<<3 | sched)); used > 0 {
		return used
	}
	return ticks(stat.UTime) + ticks(stat.STime)
}

func ticks(n uint) units.CPUTime { return units.CPUTime(n) * units.Tick }

// clock returns the time of a clock, 0 if it cannot be read.
func clock(id int32) units.CPUTime {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		return 0
	}
	return units.CPUTime(time.Duration(t.Nano()))
}
