// SPDX-License-Identifier: Apache-2.0

package library

import (
	"path/filepath"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

// cgroups holds the cgroups of the processes in the last poll, so that a process that exits before
// the next scan is attributed to its container. Each cgroup is read once. A cgroups is not safe for
// concurrent use.
type cgroups struct {
	proc        *kernfs.Dir
	buf         []byte
	paths, next map[int32]string // by PID; next is filled while a poll is read
}

// maxCgroupFile is the maximum number of bytes read of a process's file cgroup. Version 1 has about
// ten lines.
const maxCgroupFile = 16 << 10

func newCgroups(root string) *cgroups {
	return &cgroups{
		proc: kernfs.NewKillable(filepath.Join(root, "proc")), buf: make([]byte, maxCgroupFile),
		paths: map[int32]string{}, next: map[int32]string{},
	}
}

// read reads the cgroups of the processes in a poll, and removes all others.
func (c *cgroups) read(found []gpulibrary.Device) {
	for i := range found {
		users := found[i].Users
		for _, u := range users[:min(len(users), maxUsers)] {
			for _, pid := range u.PIDs[:min(len(u.PIDs), maxUsers)] {
				c.readOf(pid)
			}
		}
	}
	c.paths, c.next = c.next, c.paths
	clear(c.next)
}

func (c *cgroups) readOf(pid int32) {
	if _, again := c.next[pid]; again || pid <= 0 {
		return
	}
	path, ok := c.paths[pid]
	if !ok {
		text, err := c.proc.ReadOf(pid, "cgroup", c.buf)
		if err != nil { // it has exited
			return
		}
		path = workload.ProcessCgroup(text)
	}
	c.next[pid] = path
}

// of returns the common cgroup of processes, or "" if their cgroups differ or were not read.
func (c *cgroups) of(pids []int32) (path string) {
	for i, pid := range pids {
		of, ok := c.paths[pid]
		if !ok || i > 0 && of != path {
			return ""
		}
		path = of
	}
	return path
}

func (c *cgroups) close() error { return c.proc.Close() }
