// SPDX-License-Identifier: Apache-2.0

package power

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Kind is what a zone measures. Zones of one kind are added up over sockets and dies.
type Kind string

// The kinds of zones that the kernel's RAPL driver names
// (drivers/powercap/intel_rapl_common.c, rapl_domain_names).
const (
	Package Kind = "package" // a CPU socket or die: cores, uncore, cache
	Core    Kind = "core"    // the cores, inside Package
	Uncore  Kind = "uncore"  // integrated graphics and the rest, inside Package
	DRAM    Kind = "dram"    // memory beside Package
	PSys    Kind = "psys"    // the platform: everything above and more
)

// Kinds lists every kind in the order in which they are reported.
var Kinds = []Kind{Package, Core, Uncore, DRAM, PSys}

// Zone names one energy counter of the node.
type Zone struct {
	ID     string // directory name under /sys/class/powercap, "intel-rapl:0:1"
	Name   string // the zone's own name, "package-0"
	Kind   Kind
	Parent string // ID of the zone that contains it, empty at the top
	Source Source // where its figures come from
}

// Event is what a counter did in a pass besides counting.
type Event uint8

// The events of a counter.
const (
	NoEvent  Event = iota
	Wrapped        // passed its maximum and went on from 0
	Rebased        // went back, or jumped further than any zone can: nothing is added, counting goes on from here
	Appeared       // first good reading: the baseline
)

// Reading is one zone in one pass.
type Reading struct {
	Zone *Zone
	// Total is the energy since the zone's baseline. It never goes down. A pass that fails leaves it as
	// it was, and the next good one adds what was missed.
	Total units.Energy
	// At is when Total was last brought up to date; zero until the first good read.
	At time.Time
	// Err is why this pass could not read the zone, nil if it could.
	Err   error
	Event Event
}

// Sample is the moment of a pass and the node's CPU time until then, for meters that derive power
// from utilisation. Both times are cumulative and never go down.
type Sample struct {
	At    time.Time // with a monotonic clock reading
	Busy  units.CPUTime
	Total units.CPUTime
}

// Source is where energy figures come from, the value of the attribute energy.source.
type Source string

// The sources of energy figures.
const (
	Measured Source = "measured"
	Modeled  Source = "modeled"
)

// Meter reads the energy of the node's zones. It is used from one goroutine.
type Meter interface {
	// Read returns every known zone. The slice and the readings are valid until the next call.
	// The error is for what keeps all zones from being read; a single zone's is in its Reading.
	Read(Sample) ([]Reading, error)
	Source() Source
	Close() error
}
