// SPDX-License-Identifier: Apache-2.0

// Package guest exports to the virtual machines of a node the energy that was attributed to them.
// It also reads this energy in a virtual machine, from a directory that the hypervisor shares with
// the virtual machine, or over vsock.
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
	// Epoch is a random identifier of the series of totals. It is created with the first report
	// about a virtual machine. In a new epoch, the totals restart, for example on another host.
	Epoch string
	// Generation increases with each report of an epoch. Reports with the same epoch and generation
	// have the same energy.
	Generation uint64
	// Time is the end of the attributed time, by the host's clock.
	Time time.Time
	// Zones has one zone per kind. A report from another program may have several zones of a kind.
	Zones []Zone
}

// Zone is the energy of a zone kind that was attributed to a virtual machine. It is the sum over
// all sockets of the host, and of active and idle energy.
type Zone struct {
	Kind power.Kind
	// Energy is the total in µJ since the start of the epoch. It never decreases.
	Energy units.Energy
	// ID, Name and Parent describe a zone of another program's powercap tree. In all other reports
	// they are empty, and Place has them.
	ID, Name, Parent string
	// Range is the range of the counter in such a tree, 0 if it is not given.
	Range units.Energy
}

// IsExported reports whether the energy of a zone kind is exported to guests: it must have a place
// in a powercap tree. GPU and Other do not. A graphics card that is assigned to a machine is read
// by the machine's own meters: if its energy were exported as well, it would be counted twice. For
// a card that is shared with the host or with other machines, only the host reports the energy.
func IsExported(k power.Kind) bool { return slices.Contains(treeKinds[:], k) }

// Place returns the ID and the name of the zone of a kind in a virtual machine's powercap tree, and
// the ID of its parent zone, which is empty at the top. PSys and Platform share a place, because
// both cover the whole machine. The kind must be exported to guests.
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

// samePlace reports whether zones of two kinds share a Place.
func samePlace(a, b power.Kind) bool { return a == b || isWhole(a) && isWhole(b) }

// isWhole reports whether a kind covers the whole machine.
func isWhole(k power.Kind) bool { return k == power.PSys || k == power.Platform }

// VM is the energy that was attributed to a virtual machine since Start.
type VM struct {
	ID, Name string
	// CID is the machine's vsock context ID (vsock(7)), 0 if the machine has no vsock device.
	CID uint32
	// Start is the time when the totals were 0. It changes if the totals restart.
	Start time.Time
	// Zones has the energy of each zone kind. A total that decreases also means that the totals
	// restarted.
	Zones []Zone
	// Ended marks a machine that has stopped or no longer receives an export: these are its last
	// totals.
	Ended bool
}
