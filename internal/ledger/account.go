// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Amounts holds the energy of an account in one kind.
type Amounts struct {
	// Energy is the active energy since the account's start, and Recent the active energy of the
	// current collection. Divided by KindTotals.RecentTime, Recent is the average power.
	Energy, Recent units.Energy
	// Idle is the idle energy that the account carries in addition to Energy, and RecentIdle the
	// idle energy of the current collection.
	Idle, RecentIdle units.Energy
}

// Account holds the totals of one process, program, container, pod, VM or group, or is the overflow
// account of an entity.
//
// Totals never decrease while the account is in the ledger. An account that ended stays until its
// end is acknowledged, and continues if its owner returns before that.
type Account struct {
	Entity identity.Entity
	// Owner describes the owner. Only the parts that belong to the entity are set. In an overflow
	// account, no part is set.
	Owner identity.Owner
	// Other marks the overflow account of an entity. Except for processes, the overflow account is
	// added when energy is first moved to it.
	Other bool
	// Start is when the totals were 0.
	Start time.Time
	// CPU is the CPU time since Start, of the node's CPUs.
	CPU units.CPUTime
	// An account that has ended receives no energy.
	Lifetime

	amounts []kindAmounts // by kind; further kinds have 0

	refs     int32                // claimants that may still add to it
	claimant attribution.Claimant // of a process: its newest claimant, or unset after its release
	// restored is set for an account of a restored state until the account continues. Until then it
	// does not count as ended: otherwise, if the limits were lowered, restored accounts would use
	// up the room for accounts that end now.
	restored restored

	rank      rank  // while it has a series
	candidate int32 // index in Ledger.candidates, or unset

	group bool // the result of IsGroup

	idleMembers int32  // claimants that share its idle energy
	request     uint64 // the argument of SetRequest
}

// restored is the status of an account in the state that was restored.
type restored uint8

const (
	notRestored restored = iota
	wasEnded
	wasLive
)

// kindAmounts holds the amounts of an account in one kind. first is the number of the first
// emission of its series, or 0 before it.
type kindAmounts struct {
	Amounts
	first uint64
}

// IsGroup reports whether the account has the energy of programs, containers or pods without a
// series that have the same names. Its owner has only these names.
func (a *Account) IsGroup() bool { return a.group }

// live reports whether the account has an active series.
func (a *Account) live() bool { return a.candidate == unset && !a.Ended() && !a.Other }

// awaitsNames reports whether the account is not emitted yet, because more names of its owner may
// be found soon.
func (a *Account) awaitsNames() bool { return !a.Ended() && a.Entity.AwaitsNames(&a.Owner.Workload) }

// Amounts returns the account's amounts of a kind.
func (a *Account) Amounts(kind int) Amounts {
	if kind >= len(a.amounts) {
		return Amounts{}
	}
	return a.amounts[kind].Amounts
}

// active returns the active energy of all kinds, at most the largest Energy.
func (a *Account) active() (sum units.Energy) {
	for i := range a.amounts {
		sum = units.AddSaturating(sum, a.amounts[i].Energy)
	}
	return sum
}

// recent returns the active energy of all kinds in the current collection, at most the largest
// Energy.
func (a *Account) recent() (sum units.Energy) {
	for i := range a.amounts {
		sum = units.AddSaturating(sum, a.amounts[i].Recent)
	}
	return sum
}

func (a *Account) empty() bool {
	for i := range a.amounts {
		if m := &a.amounts[i]; m.Energy > 0 || m.Idle > 0 {
			return false
		}
	}
	return a.CPU == 0
}

// grow makes room for the first kinds.
func (a *Account) grow(kinds int) {
	if n := len(a.amounts); n < kinds {
		a.amounts = slices.Grow(a.amounts, kinds-n)[:kinds]
		clear(a.amounts[n:])
	}
}

// addIdle adds idle energy. idle[i] belongs to the kind first+i.
func (a *Account) addIdle(first int, idle ...attribution.Share) {
	a.grow(first + len(idle))
	for i, s := range idle {
		m := &a.amounts[first+i]
		m.Idle += s.Energy
		m.RecentIdle += s.Recent
	}
}

// addShares adds CPU time and active energy by kind.
func (a *Account) addShares(cpu units.CPUTime, active []attribution.Share) {
	a.grow(len(active))
	for kind, s := range active {
		m := &a.amounts[kind]
		m.Energy += s.Energy
		m.Recent += s.Recent
	}
	a.CPU += cpu
}

func (a *Account) merge(o *Account) {
	a.grow(len(o.amounts))
	for kind := range o.amounts {
		m, of := &a.amounts[kind], &o.amounts[kind]
		m.Energy += of.Energy
		m.Recent += of.Recent
		m.Idle += of.Idle
		m.RecentIdle += of.RecentIdle
	}
	a.CPU += o.CPU
}

func (a *Account) reset() {
	clear(a.amounts)
	a.CPU = 0
}

// unset is the value of an index that is not set.
const unset = -1
