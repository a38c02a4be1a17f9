// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Meter reads the energy of zones. One goroutine uses it.
type Meter interface {
	// Read returns all zones, and is called once an interval. It does not block: a meter that is slow
	// or remote reads on its own goroutine and returns its last readings. A reading with the same At
	// as before is not new: the energy of its zone is deferred, together with the claims of the
	// interval. The readings are valid until the next call.
	//
	// The error is the reason why no zone could be read, or a warning if there are good readings. The
	// error of a single zone is in its Reading. If there are no zones, the error is fs.ErrNotExist or
	// ErrNoZones, and a later call looks again.
	Read(ctx context.Context, s Sample) ([]Reading, error)
	// Close releases the resources of the meter. No Read follows.
	Close() error
}

// ErrNoZones is the error of a meter whose interface exists but has no usable zone: it has no zone
// of a wanted kind, or only zones that cannot be inspected.
var ErrNoZones = errors.New("no usable zone")

// ErrUnmeasured is the error of a zone that is not measured at present, as is normal for it: a
// battery does not measure the machine on mains power. The time counts as unmeasured, and powers
// before and after it are not interpolated. It is not a failure: Set.Failed omits the zone, and
// Gaps does not increase.
var ErrUnmeasured = errors.New("not measured at present")

// Zone is one meter of one piece of hardware. A zone is identified by its pointer: a meter returns
// the same pointer while the zone exists.
type Zone struct {
	ID     string // as the system names it: "intel-rapl:0:1"
	Name   string // for people: "package-0"
	Vendor string // of a GPU, if available: "NVIDIA"
	Kind   Kind
	Parent string // ID of the zone that contains this one, empty at the top
	Method Method
	// Domain is the hardware that the zone measures. Its users share the energy of the zone.
	Domain units.Domain
	// Includes is the CPU socket that the meter of a GPU also measures, or empty. Set subtracts the
	// energy of the socket.
	Includes units.Domain
	// MaxWatts is the maximum power of the zone, in watts. 0 selects the maximum power of its Kind.
	MaxWatts uint64
	// Prompt reports whether a reading is at most a few milliseconds older than the read. Polled
	// meters and averaging meters are not prompt.
	Prompt bool
}

// Kind is a zone kind: the hardware that a zone measures. Energy of zones of one kind is reported
// together, over all sockets and dies.
type Kind string

// The zone kinds. Package to PSys are the kernel's RAPL domains
// (drivers/powercap/intel_rapl_common.c, rapl_domain_names).
const (
	Package  Kind = "package"  // a CPU socket or die: cores, uncore, cache
	Core     Kind = "core"     // the cores, inside Package
	Uncore   Kind = "uncore"   // integrated graphics and the rest, inside Package
	DRAM     Kind = "dram"     // memory, not part of Package
	PSys     Kind = "psys"     // RAPL's platform domain: the package and the parts that the vendor connects to it
	Platform Kind = "platform" // the whole machine
	GPU      Kind = "gpu"      // a graphics card with its memory
	Other    Kind = "other"    // the whole machine without Package, DRAM and GPU
)

// Kinds lists every zone kind, in the order of reports.
var Kinds = []Kind{Package, Core, Uncore, DRAM, PSys, Platform, GPU, Other}

// Method is how the energy of a zone is obtained: the value of the attribute energy.method.
type Method string

// The methods.
const (
	Measured Method = "measured"
	Modeled  Method = "modeled"
	Reported Method = "reported" // by the hypervisor, to this virtual machine
)

// Class is a zone kind and a method. Energy of zones of one class is attributed and reported
// together.
type Class struct {
	Zone   Kind
	Method Method
}

// Sample is the moment of a read and the node's CPU time until then. Models estimate power from the
// CPU time. Both CPU times are cumulative and never decrease.
type Sample struct {
	At    time.Time // with a monotonic clock reading
	Busy  units.CPUTime
	Total units.CPUTime
	// If the CPUs were at rest after the last read, Rest is the end of the time at rest, with Busy and
	// Total at this time. Otherwise it is zero. A power model computes the energy before and after
	// this time separately, because power is not linear in utilization.
	Rest struct {
		At          time.Time
		Busy, Total units.CPUTime
	}
	// Waits bounds the waits for directories that users block. If nil, each meter has its own
	// Waits.
	Waits *kernfs.Waits
}

// Reading is one zone in one read.
type Reading struct {
	Zone *Zone
	// Total is the energy since the zone's first good read. It never decreases. A failed read does
	// not change it, and the next good read adds the missed energy.
	Total units.Energy
	// At is when Total was last updated. It is zero until the first good read.
	At time.Time
	// Correction is the correction applied to Total and At.
	Correction Correction
	// Err is the reason why the zone could not be read, or nil.
	Err   error
	Event Event
	// Raw is the counter that Total is derived from, as of its last good read.
	Raw Raw
	// Unmeasured is the total time that readings of a power sensor did not cover, since its first
	// good read or ErrUnmeasured. No energy is counted for this time. Gaps is the number of such
	// times. Rejected is the number of impossible readings, which are not counted.
	Unmeasured     time.Duration
	Gaps, Rejected int64

	since time.Time // when Total was 0 and the zone was read in the past, zero if it was not
	meter int       // index of the meter in its Set
	// polled marks a zone of a Poller, which also reads the counter between calls of Read.
	polled bool
}

// Event is a special case of a reading, such as a wraparound or a reset of a counter.
type Event uint8

// The events of a counter, and of an integrator.
const (
	NoEvent  Event = iota
	Wrapped        // passed its maximum and continued from 0
	Rebased        // stepped back or jumped further than is possible: no energy is added, and counting continues from there
	Appeared       // first good reading: the baseline
	Gap            // came too late to integrate the whole time since the previous reading
	Rejected       // was impossible and is not counted
)
