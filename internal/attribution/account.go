// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Amounts are energies by kind.
type Amounts [MaxKinds]units.Energy

// sum returns the energy of all kinds, at most the largest Energy.
func sum(amounts *Amounts) (total units.Energy) {
	for _, energy := range amounts {
		total = units.AddSaturating(total, energy)
	}
	return total
}

// Account is the totals of one process or of what processes are part of, or of all others of an entity together.
//
// Totals never decrease while the account is in the ledger. An account that ended stays until its end is acknowledged,
// and continues if its owner returns before that.
type Account struct {
	Entity units.Entity
	// Owner describes the owner. Only the parts that belong to the entity are set; none in an account of others.
	Owner units.Owner
	// Other marks the account of all of an entity that have no series of their own. Those of other entities than
	// processes exist once there is anything in them.
	Other bool
	// Start is when the totals were 0.
	Start time.Time
	// Energy is the active energy since Start, and Recent that of the current collection. Divided by Kind.RecentTime,
	// Recent is the average power.
	Energy, Recent Amounts
	// Idle is the idle energy that the account carries beside Energy, and RecentIdle that of the current collection.
	Idle, RecentIdle Amounts
	// CPU is the CPU time since Start, of the node's CPUs.
	CPU units.CPUTime
	// Ended marks an account to which nothing is added any more.
	Ended bool
	// Reported marks an account that was in an earlier emission before it ended.
	Reported bool
	// EndSent marks an account whose end was in an earlier emission, which was not acknowledged.
	EndSent bool

	refs         int32    // claimants that may still add to it
	claimant     Claimant // of a process: the last that adds to it, or none
	acknowledged bool     // an emission with a value of it was acknowledged

	rank      rank
	earned    units.Energy // while it had no series
	candidate int32        // index in Engine.candidates, or none
	twin      int32        // the other account of the same series, one that ended and one without a series, or none

	idleMembers int32  // claimants that share its idle energy
	request     uint64 // as SetRequest says
}

// live reports whether the account is a series that goes on.
func (a *Account) live() bool { return a.candidate == none && !a.Ended && !a.Other }

func (a *Account) empty() bool {
	var zero Amounts
	return a.CPU == 0 && a.Energy == zero && a.Idle == zero
}

func (a *Account) add(kind int, energy, recent units.Energy) {
	a.Energy[kind] += energy
	a.Recent[kind] += recent
}

func (a *Account) addIdle(kind int, energy, recent units.Energy) {
	a.Idle[kind] += energy
	a.RecentIdle[kind] += recent
}

func (a *Account) merge(o *Account) {
	for kind := range a.Energy {
		a.add(kind, o.Energy[kind], o.Recent[kind])
		a.addIdle(kind, o.Idle[kind], o.RecentIdle[kind])
	}
	a.CPU += o.CPU
}

func (a *Account) reset() {
	a.Energy, a.Recent, a.Idle, a.RecentIdle, a.CPU = Amounts{}, Amounts{}, Amounts{}, Amounts{}, 0
}

// forgo resets an account whose energy went to the others, and keeps what it counts for in its rank.
func (a *Account) forgo() {
	a.earned = units.AddSaturating(a.earned, sum(&a.Energy))
	a.rank.gained = units.AddSaturating(a.rank.gained, sum(&a.Recent))
	a.reset()
}
