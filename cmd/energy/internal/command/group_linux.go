// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Group is the group of a command and its descendants.
//
// While a Group is open, this process must start processes only by Start. Other new children are
// reaped as orphans of the command. Children from before the Group was opened are not reaped.
//
// The methods may be called concurrently.
type Group struct {
	root string // of the host

	pidfd int // of the process of an attached group
	pid   int

	mu       sync.Mutex
	tree     *processTree
	counter  counter
	commands map[int]bool // children of Start that were not waited for
	foreign  map[int]bool // children from before New
	started  bool
	untried  []Method
	used     units.CPUTime // the most that the counter showed
	at       time.Time     // when the counter was read last
	ended    bool          // the counting has ended
}

// counter counts the CPU time of a group. It implements Members.
type counter interface {
	Members
	method() Method
	path() string
	// start calls fork, whose child must be in the group. fork makes the child in the cgroup v2 of
	// a descriptor, unless that is negative.
	start(fork func(cgroup int) error) error
	close() error
}

// preferred are the methods from the best. If the CPU time of cgroups is counted in version 1,
// container runtimes use it, and the group's path is of use to them.
var preferred = []Method{CgroupV1, CgroupV2, ChildTimes}

// New creates a group on a host whose root directory is root. It does not fail if no cgroup is
// available: Method reports how the group is counted.
func New(root string) (*Group, error) { return newGroup(root, preferred...) }

// newGroup makes a group that counts by the first method that works.
func newGroup(root string, methods ...Method) (*Group, error) {
	// The first use of package os that needs a pidfd forks a child, which must not be in the group.
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Release()
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the reaper of orphans: %w", err)
	}
	tree, err := newProcessTree(root)
	if err != nil {
		return nil, err
	}
	g := &Group{root: root, tree: tree, untried: methods, commands: map[int]bool{}, foreign: map[int]bool{}}
	for _, pid := range tree.childrenOf(os.Getpid()) {
		g.foreign[pid] = true
	}
	return g, g.countNext()
}

// countNext counts by the next method that works from now on.
func (g *Group) countNext() (err error) {
	for len(g.untried) > 0 {
		var c counter
		var rejected error
		switch g.untried[0] {
		case CgroupV1:
			c, rejected = newCgroupV1(g.root)
		case CgroupV2:
			c, rejected = newCgroup(&unified, g.root)
		default:
			c, rejected = newTreeTimes(g.tree, os.Getpid(), g.foreign)
		}
		g.untried = g.untried[1:]
		if rejected == nil {
			g.counter, g.used = c, 0
			return nil
		}
		err = errors.Join(err, rejected)
	}
	return err
}

// Source returns a CPU time source of the group. names is a source of the whole machine that reports
// the names of short-lived processes, or nil. The returned source closes it. The Group outlives both.
func (g *Group) Source(names Names) *Source {
	c := NewSource(g.root, g)
	if names == nil {
		return c
	}
	c.NameBy(names, func() string {
		if g.Method() != CgroupV2 {
			return ""
		}
		return g.Path()
	})
	return c
}

// Method returns how the group is counted. Start may change it.
func (g *Group) Method() Method {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.counter.method()
}

// Lost returns why CPU time of the group was lost, or nil. A cgroup loses no CPU time.
func (g *Group) Lost() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t, ok := g.counter.(*treeTimes); ok {
		return t.lost
	}
	return nil
}

// Path returns the path of the group's cgroup in its hierarchy, for instance for `docker run
// --cgroup-parent`. It is empty without a cgroup.
func (g *Group) Path() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.counter.path()
}

// Used implements Members. It never decreases.
func (g *Group) Used() (units.CPUTime, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reap()
	if g.ended {
		return g.used, nil
	}
	at := time.Now()
	used, err := g.counter.Used()
	if err != nil {
		return g.used, err
	}
	g.used, g.at = max(g.used, used), at
	return g.used, nil
}

// Counted returns the CPU time that the last Used returned, and when it was counted.
func (g *Group) Counted() (units.CPUTime, time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used, g.at
}

// End ends the counting: for the sources of the group it has no processes from now on, and its
// CPU time does not increase.
func (g *Group) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
}

// Processes implements Members. A cgroup does not list commands that ended and were not waited for.
func (g *Group) Processes(yield func(pid int32)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return nil
	}
	listed := map[int32]bool{}
	err := g.counter.Processes(func(pid int32) {
		listed[pid] = true
		yield(pid)
	})
	for pid := range g.commands {
		if !listed[int32(pid)] {
			yield(int32(pid))
		}
	}
	return err
}

// Close hands the processes of the group that still run over to the cgroup around it, and removes
// the group's. It does not kill them.
func (g *Group) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reap()
	if g.pid != 0 {
		return os.NewSyscallError("close", unix.Close(g.pidfd))
	}
	return g.counter.close()
}
