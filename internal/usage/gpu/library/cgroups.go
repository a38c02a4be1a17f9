// SPDX-License-Identifier: Apache-2.0

package library

import (
	"path/filepath"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

// cgroups knows the cgroups of the processes that the last poll named: one that ends before the
// next scan is found in its container by them. Each is read once. It is not safe for concurrent
// use.
type cgroups struct {
	proc  *kernfs.Dir
	buf   []byte
	known map[int32]*named
	polls uint64
}

type named struct {
	path string
	poll uint64 // the last one that named the process
}

// maxCgroupFile bounds how much is read of a process's file cgroup. Version 1 has some ten lines.
const maxCgroupFile = 16 << 10

func newCgroups(root string) *cgroups {
	return &cgroups{proc: kernfs.NewKillable(filepath.Join(root, "proc")), buf: make([]byte, maxCgroupFile), known: map[int32]*named{}}
}

// learn reads the cgroups of processes that were not named by the poll before.
func (c *cgroups) learn(users []gpulibrary.User) {
	for i := range users[:min(len(users), maxUsers)] {
		for _, pid := range users[i].PIDs[:min(len(users[i].PIDs), maxUsers)] {
			c.learnOf(pid)
		}
	}
}

func (c *cgroups) learnOf(pid int32) {
	if n, ok := c.known[pid]; ok {
		n.poll = c.polls
		return
	}
	if pid <= 0 {
		return
	}
	if text, err := c.proc.ReadOf(pid, "cgroup", c.buf); err == nil { // else it has ended
		c.known[pid] = &named{workload.ProcessCgroup(text), c.polls}
	}
}

// sweep ends a poll, and forgets the processes that it did not name.
func (c *cgroups) sweep() {
	for pid, n := range c.known {
		if n.poll != c.polls {
			delete(c.known, pid)
		}
	}
	c.polls++
}

// of returns the cgroup that processes have in common, empty where that is not known.
func (c *cgroups) of(pids []int32) (path string) {
	for i, pid := range pids {
		n, ok := c.known[pid]
		if !ok || i > 0 && n.path != path {
			return ""
		}
		path = n.path
	}
	return path
}

func (c *cgroups) close() error { return c.proc.Close() }
