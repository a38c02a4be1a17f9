// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Entity is what an account belongs to.
type Entity uint8

// The entities that have accounts.
const (
	Process Entity = iota
	Container
	Pod
	VM
	numEntities
)

// Amounts are energies by zone kind.
type Amounts [MaxKinds]units.Energy

// Account is the ledger of one series of a process, container, pod or VM.
type Account struct {
	Entity Entity
	// Owner describes it; only the parts that its entity has are set.
	Owner Owner
	// Other marks the account of all of an entity that have no series of their own. Those of containers, pods and VMs
	// exist once there is anything in them.
	Other bool
	// Start is when the totals were 0.
	Start time.Time
	// Energy is the total since Start.
	Energy Amounts
	// Recent is the energy within the current collection, for the average power over it.
	Recent Amounts
	// Idle is what idle energy it carries beside that, since Start, and RecentIdle within the current collection.
	Idle, RecentIdle Amounts
	// CPU is the CPU time since Start.
	CPU units.CPUTime
	// Ended says that nothing will be added any more.
	Ended bool
	// Reported marks an account that was in an earlier collection before it ended.
	Reported bool
	// EndSent says that the end was in an earlier collection, which was not accepted.
	EndSent bool

	refs     int32  // claimants that may still add to it
	carriers int32  // claimants that share its idle energy
	size     uint64 // what SetRequest said

	rank         rank
	earned       units.Energy // while it had no series
	claimant     Claimant     // of a process: who adds to it, the last one if there are several, none if that is released
	queued       int32        // where it is in the queue of those without a series, or none
	twin         int32        // the other account of the same series, one that ended and one without a series, or none
	acknowledged bool         // a collection that it was reported in was
}

// Zone is the ledger of one hardware zone.
type Zone struct {
	Present bool
	Start   time.Time // when Energy was 0
	At      time.Time // when Energy was last known, not before Start
	Energy  units.Energy
	// Recent is the energy of the good readings of the current collection and RecentTime the time that it
	// covers; both are 0 when there was none.
	Recent     units.Energy
	RecentTime time.Duration

	// Unread is the time since the last good reading, 0 while the zone can be read.
	Unread time.Duration
	// Ended marks a zone that is no longer among the readings, and Delivered one whose end was acknowledged.
	Ended, Delivered bool

	endSent bool // the end was in an earlier collection
	kind    int
	last    units.Energy
	domain  int
	pending *pending // nil while it is read and attributed each interval
	read    bool     // it is among the readings of the current interval, good or not
}

// Kind is the ledger of all zones of one kind together.
type Kind struct {
	Present bool
	Start   time.Time // when the totals were 0
	Active  units.Energy
	Idle    units.Energy
	// Unattributed is the part of Active that has no owner, and UnattributedIdle that of Idle where a rule shares it.
	Unattributed     units.Energy
	UnattributedIdle units.Energy
	// Ended marks a kind whose zones have all ended or are of another kind now, and Delivered one whose end was
	// acknowledged. Its totals continue if a zone returns.
	Ended, Delivered bool
	// Model is the state of the kind's static power model, over all domains: Trained once each of them is. Spread is the
	// standard deviation of the kind's power from what was learned, in watts, negative where that is not known.
	Model  ModelState
	Spread float64

	// RecentActive and RecentIdle are what was attributed in the current collection and RecentTime is the
	// time that it covers, all 0 when nothing was. The recent energy of accounts covers the same time.
	RecentActive units.Energy
	RecentIdle   units.Energy
	RecentTime   time.Duration

	covered time.Duration // the longest portion of the current interval
	changed bool          // there was one
	endSent bool          // the end was in an earlier collection
}

// ModelState is whether a static power model has learned.
type ModelState uint8

// The states of a static power model.
const (
	// NoModel is the state of a kind whose model has nothing to learn.
	NoModel ModelState = iota
	// Training means that CPU utilization takes the model's place.
	Training
	// Trained means that the model is applied.
	Trained
)

// Ledger is everything that was attributed. It is the engine's own: valid until the next call to it.
type Ledger struct {
	Zones []Zone
	Kinds [MaxKinds]Kind
	// Elapsed is how long the current collection was; Busy and Total are the node's CPU time in it.
	Elapsed     time.Duration
	Busy, Total units.CPUTime
	// Dropped counts the series that ended and whose energy went to the others before any of it was acknowledged,
	// because too many waited for that.
	Dropped uint64

	accounts []Account
	unused   []int32 // indices of accounts that were removed
	removed  []bool
}

// Waiting returns the energy of a kind that was read and is not attributed yet, because its zone or the CPU
// time of the same intervals could not be read: what a kind's zones used is Active, Idle and this.
func (l *Ledger) Pending(kind int) (sum units.Energy) {
	for i := range l.Zones {
		if z := &l.Zones[i]; z.kind == kind && z.pending != nil {
			sum += z.pending.energy
		}
	}
	return sum
}

// Accounts calls yield for each account that lives, or has ended and was not yet delivered.
func (l *Ledger) Accounts(yield func(*Account) bool) {
	for i := range l.accounts {
		if !l.removed[i] && l.accounts[i].queued == none && !yield(&l.accounts[i]) {
			return
		}
	}
}

func (l *Ledger) add(a Account) int32 {
	a.queued, a.twin = none, none
	if n := len(l.unused); n > 0 {
		i := l.unused[n-1]
		l.unused = l.unused[:n-1]
		l.accounts[i], l.removed[i] = a, false
		return i
	}
	l.accounts = append(l.accounts, a)
	l.removed = append(l.removed, false)
	return int32(len(l.accounts) - 1)
}

func (l *Ledger) remove(i int32) {
	l.accounts[i], l.removed[i] = Account{}, true
	l.unused = append(l.unused, i)
}
