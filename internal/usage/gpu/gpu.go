// SPDX-License-Identifier: Apache-2.0

// Package gpu reads which processes used the node's GPUs. Each GPU is a domain of its own.
package gpu

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
)

// Source reads which processes used some of the node's GPUs. One goroutine uses it.
type Source interface {
	// Read returns the usage of each GPU since the last Read; the first one is the baseline. It is
	// called right after a scan of the processes, which it may look at, and does not block. A GPU
	// whose usage the source can never report is left out. The slice is valid until the next call.
	//
	// If the error is not nil, the usage is returned as far as it is known.
	Read(now time.Time, processes *scan.Table) ([]Usage, error)
	// Close releases what is open. No Read follows.
	Close() error
}

// Usage is how much a GPU was used in an interval, and by which processes.
type Usage struct {
	Domain units.Domain // units.GPU of its PCI address
	// Busy and Total are the time that the GPU worked and the time that it is known of, 0 where
	// nothing is known of the interval: the GPU's energy then waits. Busy is at most Total. GPU
	// time is counted as CPU time is, in nanoseconds.
	Busy, Total units.CPUTime
	// UntilRead reports whether Busy and Total are of the time until the Read. Otherwise they are of
	// the time until the last reading of the GPU's energy, by the same library.
	UntilRead bool
	// Assumed reports whether some of Busy and Total is assumed, and unattributed, because nothing
	// shows how busy the GPU was.
	Assumed bool
	// Users lists the processes that used the GPU or have it open.
	Users []User
	// Unattributed is the GPU time of processes that cannot be named.
	Unattributed units.CPUTime
}

// User is a process that used a GPU or has it open, or several that cannot be distinguished, such
// as those of a slice of a GPU of which only the slice's activity is known.
type User struct {
	PIDs []int32 // in the PID namespace of the root path's /proc; at least one
	// Used is the GPU time of all of them, 0 for one that has the GPU open and did not use it.
	// Users of one GPU may together have used more than its Busy, as where several engines work at
	// once.
	Used units.CPUTime
	// Last is a time at which they had the GPU open, zero if none is recorded. It distinguishes a
	// process from a later process with the same PID.
	Last time.Time
	// Cgroup is the path of their cgroup, for processes that come and go between two scans. It is
	// empty where that is not known.
	Cgroup string
}
