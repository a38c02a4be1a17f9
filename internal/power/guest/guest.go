// SPDX-License-Identifier: Apache-2.0

// Package guest exports to the virtual machines of a node the energy that was attributed to them,
// and reads that energy in the virtual machine: from a directory that the hypervisor shares with the
// virtual machine, or over vsock.
package guest

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Report is the energy that was attributed to a virtual machine up to a point in time, by zone.
type Report struct {
	// ID is the VM.ID in the report of a tree, and empty elsewhere.
	ID string
	// Epoch identifies the series of totals: a random word that is made with the first report about
	// a virtual machine. Under another epoch the totals begin anew: the virtual machine is on
	// another host.
	Epoch string
	// Generation grows with each report of an epoch. Two readers that see the same generation see the same energy.
	Generation uint64
	// Time is when the energy was attributed, by the host's clock.
	Time time.Time
	// Zones has one zone a kind. What others than this package wrote may have more.
	Zones []Zone
}

// Zone is the energy of a zone kind that a virtual machine was attributed, over all sockets of the
// host, active and idle.
type Zone struct {
	Kind power.Kind
	// Energy is the total of the epoch. It never goes down.
	Energy units.Energy
	// ID, Name and Parent are from the powercap tree of another program, in which the zone was read.
	// If ID is empty they are those of Place.
	ID, Name, Parent string
	// Range is the range of the counter in such a tree, 0 if the tree has none.
	Range units.Energy
}

// IsExported reports whether the energy of a zone kind is exported to guests: it must have a place
// in a powercap tree. GPU and Other have none. A graphics card that is assigned to a machine is read by
// the machine's own meters, and would be counted twice if its energy were exported, too. The energy
// that a machine used of a card shared with the host, or with other machines, is reported by the
// host only.
func IsExported(k power.Kind) bool { return slices.Contains(treeKinds[:], k) }

// Place returns the ID and the name that the zone of a kind has in a virtual machine's powercap
// tree, and the ID of the zone that its directory is in, empty at the top. Psys and platform have
// one place: both are the whole machine. The kind must be one that is exported to guests.
func Place(k power.Kind) (id, name, parent string) {
	const top = "intel-rapl:0"
	switch k {
	case power.Package:
		return top, "package-0", ""
	case power.DRAM:
		return top + ":0", "dram", top
	case power.Core:
		return top + ":1", "core", top
	case power.Uncore:
		return top + ":2", "uncore", top
	default:
		return "intel-rapl:1", "psys", ""
	}
}

// samePlace reports whether zones of two kinds have one Place.
func samePlace(a, b power.Kind) bool { return a == b || isWhole(a) && isWhole(b) }

// isWhole reports whether a kind covers the whole machine.
func isWhole(k power.Kind) bool { return k == power.PSys || k == power.Platform }

// VM is the energy that was attributed to a virtual machine since Start.
type VM struct {
	ID, Name string
	// CID is the machine's vsock context ID (vsock(7)), 0 if it has none.
	CID uint32
	// Start is when the totals were 0. A series that began anew has another one.
	Start time.Time
	// Zones has the energy of each zone kind. A total that goes down is that of a series that began anew, too.
	Zones []Zone
	// Ended marks a machine that has stopped or no longer receives an export: these are its last
	// totals.
	Ended bool
}
