// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// childTimes counts the descendants of this process: the clocks of those that run, and the times of those that were waited for,
// which the kernel adds up (getrusage(2), RUSAGE_CHILDREN). A process that ignores SIGCHLD does not wait for its children, and
// their times are lost.
type childTimes struct {
	proc    procfs.FS
	root    string
	before  units.CPUTime // of those that were waited for before
	foreign map[int]bool  // children that do not count
	// scan reports whether the kernel does not list a process's children (CONFIG_PROC_CHILDREN), so that all processes are read.
	scan   bool
	byPPID map[int][]int
}

func newChildTimes(root string, foreign map[int]bool) (*childTimes, error) {
	proc, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return nil, err
	}
	c := &childTimes{proc: proc, root: root, foreign: foreign}
	_, err = os.Stat("/proc/thread-self/children")
	c.scan = err != nil
	c.before, err = waitedFor()
	return c, err
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
// Each process is read before its children. So what is waited for meanwhile is missed until the next call, and never counted
// twice.
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
	if c.scan {
		if err := c.readAll(); err != nil {
			return err
		}
	}
	self := c.childrenOf(os.Getpid())
	for _, pid := range self {
		if !c.foreign[pid] {
			c.eachBelow(pid, yield)
		}
	}
	return nil
}

func (c *childTimes) eachBelow(pid int, yield func(pid int, stat *procfs.ProcStat)) {
	stat, err := c.stat(pid)
	if err != nil {
		return // it ended
	}
	yield(pid, &stat)
	for _, child := range c.childrenOf(pid) {
		c.eachBelow(child, yield)
	}
}

func (c *childTimes) stat(pid int) (procfs.ProcStat, error) {
	p, err := c.proc.Proc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return p.Stat()
}

// childrenOf returns the children of a process, those of all its threads.
func (c *childTimes) childrenOf(pid int) (children []int) {
	if c.scan {
		return c.byPPID[pid]
	}
	tasks := filepath.Join(c.root, "proc", strconv.Itoa(pid), "task")
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil
	}
	for _, t := range threads {
		list, err := os.ReadFile(filepath.Join(tasks, t.Name(), "children"))
		if err != nil {
			continue
		}
		for field := range bytes.FieldsSeq(list) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// readAll reads the parents of all processes.
func (c *childTimes) readAll() error {
	all, err := c.proc.AllProcs()
	if err != nil {
		return err
	}
	c.byPPID = map[int][]int{}
	for _, p := range all {
		stat, err := p.Stat()
		switch {
		case err == nil:
			c.byPPID[stat.PPID] = append(c.byPPID[stat.PPID], p.PID)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH):
			return err
		}
	}
	return nil
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
