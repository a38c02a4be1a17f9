// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"bytes"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Tick is the resolution of the CPU times in /proc.
const Tick = units.Tick

// Node is the node's CPU time over all CPUs since the first read. No figure ever goes down: a component
// that the kernel lets step back (idle, iowait, a CPU taken offline) stands still instead.
type Node struct {
	// Busy is user, nice, system, irq and softirq time. Guest time is inside user. Steal is neither busy
	// nor total: another machine had that time.
	Busy units.CPUTime
	// Total is Busy, idle and iowait.
	Total units.CPUTime
	// Process is user, nice and system time: what processes can account for.
	Process units.CPUTime
}

// Comm is a task's name, at most 15 bytes and not necessarily UTF-8 (TASK_COMM_LEN, proc_pid_comm(5)).
type Comm [16]byte

// String returns the name with bytes that are not UTF-8 replaced.
func (c *Comm) String() string {
	b, _, _ := bytes.Cut(c[:], []byte{0})
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// Process is one process (thread group) in one pass. PID and Start identify it.
type Process struct {
	PID     int32
	Parent  int32 // its parent's PID, 0 where it has none or none that can be seen
	Threads int32
	Kernel  bool          // a kernel thread: it has no executable
	Zombie  bool          // ended, not waited for: its times are final
	Start   time.Duration // since boot
	// CPU is user and system time since Start, of all its threads, those that ended too.
	CPU units.CPUTime
	// ChildCPU is the user and system time of the descendants that ended and were waited for.
	ChildCPU units.CPUTime
	Comm     Comm
	// Cgroup is the id of its cgroup in the v2 hierarchy, 0 where the source does not tell.
	Cgroup uint64
	// Cgroups is another one whenever the process moves in any hierarchy, v1 or v2, and Execs whenever it executes
	// a program. Cgroups is 0 where the source tells neither.
	Cgroups uint64
	Execs   uint64
	// LastCPU is the CPU that it was last on, one of its threads that ran lately or its first; below 0 where
	// that is not known.
	LastCPU int32
	parts   int32 // the block of Used in the table's division
	// Resident is what it has in memory, in bytes, shared memory included. It is as inexact as the kernel's own
	// counter in /proc/<pid>/stat (proc_pid_stat(5), rss).
	Resident uint64

	// Slot numbers the process for as long as it lives; a slot is used again later.
	Slot int32
	// Born says that this is the first pass that shows it.
	Born bool
	// Used is the CPU time since the previous pass.
	Used units.CPUTime
	// Unseen is what its children used that came and went between the passes.
	Unseen units.CPUTime
	// owed is what its child times do not show yet of children that ended.
	owed units.CPUTime
	// discards says that it ignores SIGCHLD: the kernel adds the times of its children to nobody's when they end.
	discards    bool
	unseenParts int32 // the block of Unseen
}

// Ended is a process that the previous pass showed and this one does not.
type Ended struct {
	Process // as last seen
	// LastSlice is the CPU time between the previous pass and the end, as far as anything shows it.
	LastSlice units.CPUTime
}

// CgroupTime is CPU time of one cgroup.
type CgroupTime struct {
	// Path is the cgroup's in the v2 hierarchy, below its root.
	Path  string
	Used  units.CPUTime
	parts int32
}

// Source reads CPU time. It is used from one goroutine.
type Source interface {
	// ReadNode returns the node's CPU time so far.
	ReadNode() (Node, error)
	// ReadProcesses makes one pass over all processes into the table. After an error the table is as it
	// was, and the next pass covers what this one missed.
	ReadProcesses(*Table) error
	// Domains returns the CPU time of each domain of a node that is divided, as of the last ReadNode.
	Domains() []Node
	// Name is the source's name in the configuration.
	Name() string
	// Exact says that its passes show all CPU time, of those who ended too: there is nothing to infer.
	Exact() bool
	Close() error
}
