// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bytes"
	"math"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// ID distinguishes processes.
type ID struct {
	PID   int32
	Start time.Duration // since boot
}

// Comm is a task's name, at most 15 bytes and not necessarily UTF-8 (TASK_COMM_LEN,
// proc_pid_comm(5)).
type Comm [16]byte

// String returns the name with bytes that are not UTF-8 replaced.
func (c *Comm) String() string {
	b, _, _ := bytes.Cut(c[:], []byte{0})
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// Flags are properties of a process.
type Flags uint8

// The flags that a source reports.
const (
	Kernel   Flags = 1 << iota // a kernel thread, which has no executable
	Zombie                     // ended and not waited for: its times are final
	HasUID                     // Sight.UID is set
	Discards                   // it ignores SIGCHLD: the kernel drops the times of its children when they end
	Stale                      // the process ran after its files were read
)

// The flags that the table sets.
const (
	Born    Flags = 1 << 7 // this is the first scan with the process
	Charged Flags = 1 << 6 // Table.Charges of this scan names this row
)

// Sight is a report of one process (thread group).
type Sight struct {
	ID
	Parent  int32 // PID of its parent, 0 without a visible parent
	Threads int32
	// LastCPU is the last CPU of one of its threads: of the thread that ran last (BPF), or of the
	// first thread (procfs). It is negative if the source does not report it.
	LastCPU int32
	Flags   Flags
	Comm    Comm
	// UID is its real user ID in the initial user namespace.
	UID uint32
	// Split divides its CPU time since the previous scan by CPU or domain. 0 is LastCPU.
	Split Split
	// Cgroup is the ID of its cgroup in the v2 hierarchy, 0 if the source does not report it.
	Cgroup uint64
	// Cgroups changes whenever the process moves in any hierarchy, v1 or v2, and Execs whenever it
	// executes a program. Cgroups is 0 if the source reports neither.
	Cgroups, Execs uint64
	// Resident is its resident memory in bytes, including shared memory. It is as inexact as the
	// kernel's counter in /proc/<pid>/stat (proc_pid_stat(5), rss).
	Resident uint64
	// CPU is user and system time since Start of all threads, including those that ended.
	CPU units.CPUTime
	// ChildCPU is user and system time of descendants that ended and were waited for.
	ChildCPU units.CPUTime
	// Events are the hardware events of all threads, exited threads included, from the start of
	// counting. They are 0 if the source does not count events.
	Events Events
}

// Is reports whether the process has all of the flags.
func (s *Sight) Is(f Flags) bool { return s.Flags&f == f }

// Slot is the index of a process in Table.Rows and in tables that users keep by slot. It stays the
// same while the process lives, until Table.Shrink. Another process may get it from the scan after
// its end on.
type Slot = int32

// Process is a row of a Table.
type Process struct {
	Sight
	Slot Slot
	// Used is the CPU time since the previous scan.
	Used units.CPUTime
	// ChildUsed is the growth of ChildCPU since the previous scan.
	ChildUsed units.CPUTime
	// Owed is the CPU time of exited children that ChildCPU does not include yet.
	Owed units.CPUTime
	// Counted are the hardware events since the previous scan.
	Counted Events

	older Slot   // row of an earlier process with the same PID, plus 1; 0 without one
	round uint32 // the latest scan that saw it, including scans that failed
	gone  bool   // the process is gone, and its exit event has not arrived

	outdated bool // a later process had the same PID
}

// IsActive reports whether the row belongs to Table.Active.
func (p *Process) IsActive() bool {
	return p.Flags&(Born|Charged) != 0 || p.Used > 0 || p.ChildUsed > 0
}

// rest drops the results of a scan.
func (p *Process) rest() {
	p.Flags &^= Born | Charged
	p.Used, p.ChildUsed, p.Split, p.Counted = 0, 0, 0, Events{}
}

// maxThreads is more than any process has (PID_MAX_LIMIT).
const maxThreads = 1 << 22

// mostIn returns an upper bound of the CPU time that the process can use in a period.
func (p *Process) mostIn(d time.Duration) units.CPUTime {
	if p.Is(Zombie) {
		return 0
	}
	// User and system time are each rounded down to a tick.
	return units.CPUTime(max(d, 0))*units.CPUTime(min(max(p.Threads, 1), maxThreads)) + 2*units.Tick
}

// Ended is a process that ended since the previous scan.
type Ended struct {
	Process // as last seen
	// LastSlice is the CPU time between the previous scan and the end that the source reported or
	// the table inferred.
	LastSlice units.CPUTime
	// LastCounted are the hardware events in the last slice.
	LastCounted Events

	rate rate // see Table.KeepRates
}

// Charge is CPU time of short-lived processes, which no scan saw.
type Charge struct {
	// Slot is the row of a related process. A source that is not exact names the parent. An exact
	// source names a process in the same cgroup, or in the root cgroup the nearest ancestor. Slot
	// is negative without such a row.
	Slot Slot
	// Named reports whether all these processes had the name Comm and the user UID.
	Named bool
	Comm  Comm
	UID   uint32
	// Path is the path of their cgroup in the v2 hierarchy, below its root, if Slot is negative. It
	// is empty if the path is not available.
	Path  string
	CPU   units.CPUTime
	Split Split
	// Counted are the hardware events of these processes.
	Counted Events
}

// Traits are the properties of a source.
type Traits struct {
	// Exact reports whether the source finds every process that runs. It may show CPU time late,
	// but never too much.
	Exact bool
	// ChildTimes reports whether the source reports child times. The table infers from them the CPU
	// time of exited processes.
	ChildTimes bool
	// ReportsEnds reports whether each process that is gone is reported by Scan.Exit.
	ReportsEnds bool
	// Rounding is the maximum CPU time of a process that its row does not show yet. In /proc, user
	// and system time are each rounded down to a Tick.
	Rounding units.CPUTime
	// ChildRounding is the maximum CPU time of exited children that child times do not show yet.
	ChildRounding units.CPUTime
	// Late is the maximum CPU time, in addition to Rounding, that all rows of a cgroup together do
	// not show yet.
	Late units.CPUTime
}

// Unbounded is the value of Unseen.Untraced without an upper bound.
const Unbounded = units.CPUTime(math.MaxInt64)

// Unseen describes the gaps of a scan.
type Unseen struct {
	// Hidden reports whether there are processes that the scan could not see or read.
	Hidden bool
	// Missed reports whether more tasks may have been created since the previous scan than are new
	// in this one: processes may have started and exited in between. It is false for an exact
	// source.
	Missed bool
	// Untraced is an upper bound of the CPU time of exited processes that no counter showed, and of
	// processes that earlier scans missed, at most Unbounded.
	Untraced units.CPUTime
	// LostExits is the number of exited processes without an event to an exact source, or with an
	// event that lacks CPU time.
	LostExits uint64
}

func (u *Unseen) add(untraced units.CPUTime) {
	u.Untraced = min(units.AddSaturating(u.Untraced, untraced), Unbounded)
}
