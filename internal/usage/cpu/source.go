// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Tick is the resolution of the CPU times in /proc.
const Tick = units.Tick

// Source reads the CPU times of processes. A Source is not safe for concurrent use.
type Source interface {
	// Scan scans the processes into the table. After an error the table has no usage to be read,
	// and the next scan covers the window of this one.
	Scan(*proc.Table, Request) error
	// Traits describes the source as of now.
	Traits() Traits
	Close() error
}

// Want selects the values that a window reads of processes that did not run since the previous
// scan.
type Want struct {
	// All updates the rows of all processes, and Table.Ended has all processes that ended.
	// Otherwise the source may leave the rows of processes that did not run as they are, and leave
	// processes whose rows are final out of Table.Ended. The next scan with All makes up for that.
	//
	// Even with All, Clocks may leave the rows of idle processes as they were if at most 1 ms
	// (lastDebt) of the node's CPU time is unexplained. The CPU time of these processes, and their
	// exits, may then be missing until a later scan.
	All bool
	// Resident asks for values of Process.Resident that are at most a second old. Otherwise the
	// value of a process may be as old as when it ran last.
	Resident bool
	// LastCPU asks for values of Process.LastCPU as of this scan. Otherwise the value of a process
	// may be as old as the last scan with All.
	LastCPU bool
}

// Request is a Reader's request to scan.
type Request struct {
	Want
	// Used is the growth of Node.Process since the window of the last scan that succeeded. It
	// limits the CPU time that a source infers. An exact source does not infer.
	Used units.CPUTime
	// Created is the number of tasks created since boot, 0 if it is not available or the source is
	// exact.
	Created uint64
}

// Traits describes a Source.
type Traits struct {
	// Name is the name of the source for logs.
	Name string
	proc.Traits
	// Lacks is the reason if the source lacks a requested feature, otherwise nil.
	Lacks error
	// Uncounted is the reason if hardware events are requested and not counted, or only counted in
	// a part of the time. Otherwise it is nil.
	Uncounted error
	// Unread is the reason if the CPU times of some processes are not read: processes block reads,
	// or reads are slow. It is nil if all are read, and for sources that no process can block.
	Unread error
	// Paths finds the paths of Process.Cgroup. It is nil if the source does not set Process.Cgroup.
	Paths Paths

	now func() time.Duration // the clock of start times; nil: any clock
}

// Paths finds the paths of version 2 cgroups.
type Paths interface {
	// Path returns the path of the cgroup with an ID, below the root of the hierarchy, or an empty
	// string if the path is not available.
	Path(id uint64) string
}
