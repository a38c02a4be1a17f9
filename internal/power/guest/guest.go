// SPDX-License-Identifier: Apache-2.0

// Package guest tells the virtual machines of a node the energy that they were attributed, and reads it in the virtual machine:
// as a powercap tree in a directory that the hypervisor shares with it, or over vsock.
package guest

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Report is what a virtual machine is told: the energy that it was attributed until a moment, by zone.
type Report struct {
	// Epoch identifies the series of totals: a random word that is made with the first report about a virtual machine. Under
	// another epoch the totals begin anew: the virtual machine is on another host.
	Epoch string
	// Generation grows with each report of an epoch. Two readers that see the same generation see the same energy.
	Generation uint64
	// Time is when the energy was attributed, by the host's clock.
	Time time.Time
	// Zones has one zone a kind.
	Zones []Zone
}

// Zone is the energy of a zone kind that a virtual machine was attributed, over all sockets of the host, active and idle.
type Zone struct {
	Kind power.Kind
	// Energy is the total of the epoch. It never goes down.
	Energy units.Energy
}

// VM is what a virtual machine was attributed since the receiver of the host started.
type VM struct {
	ID, Name string
	// CID is the machine's vsock context ID (vsock(7)), 0 if it has none.
	CID uint32
	// Zones has the energy of each zone kind. A total that goes down is that of a series that began anew.
	Zones []Zone
}
