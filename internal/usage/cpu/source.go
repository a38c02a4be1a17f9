// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
)

// Tick is the resolution of the CPU times in /proc.
const Tick = units.Tick

// Node is CPU time since the first read, summed over the CPUs of the node or of a domain. No figure
// ever decreases: where the kernel's counter steps back (idle, iowait, a CPU taken offline), it
// stands still.
type Node struct {
	// Busy is user, nice, system, irq and softirq time. Guest time is inside user. Steal time is
	// neither in Busy nor in Total: it belongs to another machine.
	Busy units.CPUTime
	// Total is Busy, idle and iowait time.
	Total units.CPUTime
	// Process is user, nice and system time, which processes account for.
	Process units.CPUTime
	// Interrupt is irq and softirq time, a part of Busy. It includes the time of ksoftirqd; see
	// Table.Softirqd. Where the kernel does not measure interrupts it includes nothing else, and
	// may stand still.
	Interrupt units.CPUTime
}

// Source is a CPU time source. A Source is not safe for concurrent use.
type Source interface {
	// ReadNode returns the node's CPU time since the first call.
	ReadNode() (Node, error)
	// ReadProcesses scans all processes into the table. After an error the table is as it was, and
	// the next scan covers what this one missed.
	ReadProcesses(*scan.Table) error
	// Domains returns the CPU time of each domain as of the last ReadNode, nil if the source
	// divides nothing.
	Domains() []Node
	// Name returns the name of the source for logs.
	Name() string
	// Exact reports whether scans account for all CPU time, including processes that ended. If
	// false, the caller infers the rest from child times and cgroup counters.
	Exact() bool
	Close() error
}

// Partial is a Source that may lack a part of what it is asked for.
type Partial interface {
	// Lacks returns what the source does without, nil if nothing.
	Lacks() error
}

// divisible is a Source that divides CPU time by domain on request.
type divisible interface{ divide(*divide.Topology) }

// countsCPUs is a Source that counts the busy time of each CPU on request.
type countsCPUs interface {
	countCPUs()
	CPUs() []units.CPUTime
}

// sharesCounters is a Source that reads counters of cgroups, unless they were read for another use.
type sharesCounters interface{ shareCounters(counters cgroup.CPUTime) }

// naming is a Source that can provide the names of short-lived processes on request.
type naming interface {
	nameExits()
	// awaitExits waits until the next scan has the exits until now.
	awaitExits()
}

// pathed is a Source that can provide the paths of version 2 cgroups by their IDs.
type pathed interface {
	// CgroupPath returns the path below the root of the hierarchy, or an empty string if it is
	// unknown.
	CgroupPath(cgroup uint64) string
}

// clocked is a Source with a clock.
type clocked interface{ clock() func() time.Duration }

// timed is a Source that counts time by the caller's clock.
type timed interface {
	// setTime is called before ReadNode with the time that the caller read.
	setTime(now time.Time)
}
