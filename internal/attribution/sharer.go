// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Sharer divides the energy of zones into active and idle energy, and shares it among claimants.
//
// The caller opens a claimant before its first claim, passes the intervals to Share, and closes the
// claimant after its last claim. In every interval and for each kind, the energy of the claimants
// and the unattributed energy add up to the active energy. Active, idle and deferred energy add up
// to the energy of the zones.
//
// The zero Sharer is not usable; call NewSharer. A Sharer is not safe for concurrent use.
type Sharer struct {
	// Parts is the number of domains, beginning with index 1, whose shares Shares.Part returns.
	Parts int

	rules     Rules
	trained   [MaxKinds]TrainedModel // the models that are trained
	users     []user                 // by claimant
	unused    []Claimant
	closed    uint64 // total number of claimants that were closed
	excludes  bool   // set once any claimant was excluded
	zones     []zone
	deficits  []deficits    // by domain
	collected time.Duration // length of the current collection
	restoring bool          // the next interval is the time since the restored state
	shares    Shares
	scratch
}

// scratch holds what Share uses in one interval, to allocate it once.
type scratch struct {
	sums        []domainSums // by domain
	index       claimIndex
	dues        []due       // of zones whose readings have an age
	resolved    []*slice    // whose energy was attributed in the interval
	spare       []*deferral // that are unused
	spareSlices []*slice    // likewise
}

// domainSums is the energy of an interval that can be attributed at once, of the zones of one
// domain.
type domainSums struct {
	energy [MaxKinds]units.Energy
	zones  [MaxKinds]int // in each sum
}

// user is the state of a claimant.
type user struct {
	deferred       int32 // slices that have claims of the claimant
	open, excluded bool
}

// NewSharer returns a Sharer that divides energy by the rules.
func NewSharer(rules Rules) *Sharer {
	s := &Sharer{rules: rules}
	for kind, model := range rules.Models {
		s.trained[kind], _ = model.(TrainedModel)
	}
	return s
}

// BeginCollection begins the collection that the next intervals belong to.
func (s *Sharer) BeginCollection() { s.collected = 0 }

// Open returns a new claimant.
func (s *Sharer) Open() Claimant {
	if n := len(s.unused); n > 0 {
		id := s.unused[n-1]
		s.unused = s.unused[:n-1]
		s.users[id] = user{open: true}
		return id
	}
	s.users = append(s.users, user{open: true})
	return Claimant(len(s.users) - 1)
}

// Exclude makes the usage of a claimant static from now on: its CPU time is not busy time, and it
// has no share of any energy.
func (s *Sharer) Exclude(id Claimant) { s.users[id].excluded, s.excludes = true, true }

// Excluded reports whether a claimant is excluded.
func (s *Sharer) Excluded(id Claimant) bool { return s.users[id].excluded }

// Defers reports whether energy is deferred for claims of a claimant.
func (s *Sharer) Defers(id Claimant) bool { return s.users[id].deferred > 0 }

// Close ends a claimant, and reports whether it is released at once. A claimant with deferred
// claims still gets the energy of these claims, and is in Shares.Released afterwards.
func (s *Sharer) Close(id Claimant) (released bool) {
	s.closed++
	s.users[id].open = false
	return s.release(id)
}

// release releases the number of a claimant that is closed and has no deferred claims.
func (s *Sharer) release(id Claimant) bool {
	if s.users[id].open || s.users[id].deferred > 0 {
		return false
	}
	s.unused = append(s.unused, id)
	return true
}

// Shrink releases the memory of removed claimants. It must not be called between Share and the use
// of its result.
func (s *Sharer) Shrink() {
	s.users, s.unused = units.ShrunkTable(s.users, s.unused, func(i int) bool { return !s.users[i].open && s.users[i].deferred == 0 })
	s.shares, s.scratch = Shares{}, scratch{}
}
