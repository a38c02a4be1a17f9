// SPDX-License-Identifier: Apache-2.0

package scan

import (
	"bytes"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Comm is a task's name, at most 15 bytes and not necessarily UTF-8 (TASK_COMM_LEN,
// proc_pid_comm(5)).
type Comm [16]byte

// String returns the name with bytes that are not UTF-8 replaced.
func (c *Comm) String() string {
	b, _, _ := bytes.Cut(c[:], []byte{0})
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// Process is one process (thread group) in one scan. PID and Start identify it.
type Process struct {
	PID     int32
	Parent  int32 // PID of its parent, 0 if it has none or the parent is hidden
	Threads int32
	Kernel  bool          // a kernel thread, which has no executable
	Zombie  bool          // ended and not waited for: its times are final
	HasUID  bool          // UID is known
	Start   time.Duration // since boot
	// CPU is user and system time since Start of all threads, including those that ended.
	CPU units.CPUTime
	// ChildCPU is user and system time of descendants that ended and were waited for.
	ChildCPU units.CPUTime
	Comm     Comm
	// Cgroup is the id of its cgroup in the v2 hierarchy, 0 if the source does not report it.
	Cgroup uint64
	// Cgroups changes whenever the process moves in any hierarchy, v1 or v2, and Execs whenever it
	// executes a program. Cgroups is 0 if the source reports neither.
	Cgroups uint64
	Execs   uint64
	// LastCPU is the CPU that a thread of it was last on: the thread that ran last (BPF) or the
	// first one (procfs). It is negative if unknown.
	LastCPU int32
	Block   int32 // in the table's division: its first slice, or the block of LastSlice of a process that ended
	// Resident is its resident memory in bytes, including shared memory. It is as inexact as the
	// kernel's counter in /proc/<pid>/stat (proc_pid_stat(5), rss).
	Resident uint64

	// Slot is the index of the process in tables beside this one. It stays the same while the
	// process lives, and is reused later.
	Slot int32
	// Born reports whether this is the first scan with the process.
	Born bool
	// Discards reports whether it ignores SIGCHLD. The kernel then drops the times of its children
	// when they end.
	Discards bool
	// Stale reports whether the process ran after its files were read.
	Stale bool
	// Final reports whether its end is known and in Used. It stays a row until the next scan that
	// is not partial.
	Final bool
	// Used is the CPU time since the previous scan.
	Used units.CPUTime
	// ShortLived is the CPU time of short-lived processes of this row: its children or, with BPF,
	// those in its cgroup.
	ShortLived units.CPUTime
	// Owed is the CPU time of children that ended which ChildCPU does not include yet.
	Owed            units.CPUTime
	shortLivedParts int32 // the block of ShortLived
	// UID is its real user ID in the initial user namespace.
	UID uint32
}

// Ended is a process of the previous scan that is not in this one.
type Ended struct {
	Process // as last seen
	// LastSlice is the CPU time between the previous scan and the end, as far as anything shows it.
	LastSlice units.CPUTime
}

// CgroupTime is CPU time of one cgroup.
type CgroupTime struct {
	// Path is the cgroup's in the v2 hierarchy, below its root.
	Path  string
	Used  units.CPUTime
	Block int32
}

// NamedTime is CPU time of short-lived processes with the same name, user and cgroup.
type NamedTime struct {
	Comm Comm
	UID  uint32
	// Row is the row of a process in the same cgroup, or of the nearest ancestor in the root
	// cgroup. It is negative if there is none. Path is the path of the cgroup in the v2 hierarchy
	// then, below its root.
	Row   int32
	Path  string
	Used  units.CPUTime
	Block int32
}
