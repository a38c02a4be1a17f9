// SPDX-License-Identifier: Apache-2.0

// Package gpu reads which processes used the node's GPUs. Each GPU is a separate domain.
package gpu

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Source reads which processes used some of the node's GPUs. One goroutine uses it.
type Source interface {
	// Read returns the usage of each GPU since the last Read; the first Read is the baseline. It
	// follows a scan of the processes, whose table it may read, and does not block. GPUs whose
	// usage the source can never report are missing. The slice is valid until the next call.
	//
	// If the error is not nil, the usage is incomplete.
	Read(now time.Time, processes *proc.Table) ([]Usage, error)
	// Close closes all files. No Read follows.
	Close() error
}

// Usage is the use of a GPU in an interval, and the processes that used it.
type Usage struct {
	Domain units.Domain // units.GPU of its PCI address
	// Total is the part of the interval whose usage is available, and Busy is the time in Total
	// during which the GPU was active. If both are 0, the usage follows later, and the GPU's energy
	// is deferred. GPU time has the unit of CPU time, nanoseconds.
	Busy, Total units.CPUTime
	// UntilRead reports whether the interval ends with the Read. Otherwise it ends with the last
	// reading of the GPU's energy, by the same library.
	UntilRead bool
	// Assumed reports whether a part of Busy and Total is assumed, because the GPU's activity in
	// that time is not available.
	Assumed bool
	// Users lists the processes that used the GPU or have it open.
	Users []User
	// Unattributed is the GPU time of processes that cannot be identified.
	Unattributed units.CPUTime
}

// User is a process that used a GPU or has it open, or several processes that cannot be
// distinguished, such as processes in a slice of a GPU if only the activity of the slice is
// available.
type User struct {
	PIDs []int32 // in the PID namespace of the root path's /proc; at least one
	// Used is the GPU time of all of them, 0 for a process that has the GPU open and did not use
	// it. Users of one GPU may together have used more than its Busy, because several engines may
	// work at once.
	Used units.CPUTime
	// Last is a time at which they had the GPU open, or zero. It distinguishes a process from a
	// later process with the same PID.
	Last time.Time
	// Cgroup is the path of their cgroup, or empty. It places processes that start and exit between
	// two scans.
	Cgroup string
}

// maxMemory bounds the GPU memory of a process in bytes (4 TiB, more than any GPU has). Larger
// values are ignored, such as the value of NVML for memory that is not available.
const maxMemory = 4 << 40

// ByMemory divides the GPU time used by several processes in proportion to the GPU memory in bytes
// that each process holds, and sets parts to the result. The parts add up to used. ByMemory reports
// whether any process holds memory. If not, it does not change parts.
//
// Memory does not show activity. It is a weight only if the GPU time of processes is not available.
func ByMemory(parts []units.CPUTime, used units.CPUTime, held []uint64) bool {
	d := units.Division{Amount: uint64(used)}
	for _, bytes := range held {
		if bytes <= maxMemory {
			d.Total = units.AddSaturating(d.Total, bytes)
		}
	}
	if d.Total == 0 {
		return false
	}
	for i, bytes := range held {
		parts[i] = 0
		if bytes <= maxMemory {
			parts[i] = units.CPUTime(d.Next(min(bytes, d.Left())))
		}
	}
	return true
}
