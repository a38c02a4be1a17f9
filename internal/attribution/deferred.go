// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// pending holds a zone's deferred energy and its domain's usage since the last attributed moment.
// While a zone is absent only the amount of usage is kept, not its claims.
type pending struct {
	energy     units.Energy
	unmeasured time.Duration // time of the energy in which the meter measured nothing
	elapsed    time.Duration // of all slices
	slices     []*slice      // the oldest first; the last one ends with the interval
}

// slice is the usage of a domain in consecutive intervals, or in a part of one.
type slice struct {
	usage    Usage
	elapsed  time.Duration
	unknown  time.Duration // the part of elapsed whose usage is not known
	closed   uint64        // Engine.closed when all claimants of the claims were open
	restored bool          // some of it is of the time before Engine.Restore
}

// claimIndex finds the claims of one slice at a time, for merging. It has the index of the claim of
// each claimant, first for its own usage and then for short-lived processes. An index is valid only
// if the slice has that claim there, so that the claims of another slice need not be removed.
type claimIndex []int32

// keyOf returns the position of a claim's index.
func keyOf(claim *Claim) int {
	key := 2 * int(claim.Claimant-NoClaimant)
	if claim.ShortLived {
		key++
	}
	return key
}

// due is a portion that is attributed at the end of the interval, by the usage of a slice.
type due struct {
	slice *slice
	Portion
}

// remove removes the slices from i to before j, which were dropped or taken.
func (g *pending) remove(i, j int) {
	n := copy(g.slices[i:], g.slices[j:])
	clear(g.slices[i+n:])
	g.slices = g.slices[:i+n]
}

// addAmounts adds the usage of a time, without its claims.
func (s *slice) addAmounts(u *Usage, elapsed time.Duration) {
	s.elapsed += elapsed
	to := &s.usage
	to.Busy += u.Busy
	to.Total += u.Total
	to.Unattributed = units.AddSaturating(to.Unattributed, u.Unattributed)
	for i, weightless := range u.Weightless {
		to.Weightless[i] = units.AddSaturating(to.Weightless[i], weightless)
	}
	for i, a := range u.Averages {
		sum := &to.Averages[i]
		sum.Weight, sum.CPU = units.AddSaturating(sum.Weight, a.Weight), units.AddSaturating(sum.CPU, a.CPU)
	}
	to.addFlags(u)
}

func (u *Usage) addFlags(o *Usage) {
	u.Assumed = u.Assumed || o.Assumed
	u.IdleAmongClaims = u.IdleAmongClaims || o.IdleAmongClaims
	for i, unweighed := range o.Unweighed {
		u.Unweighed[i] = u.Unweighed[i] || unweighed
	}
}

// addUnattributed adds the usage of a time whose users are not kept.
func (s *slice) addUnattributed(u *Usage, elapsed time.Duration) {
	s.addAmounts(u, elapsed)
	for i := range u.Claims {
		s.usage.Unattributed = units.AddSaturating(s.usage.Unattributed, u.Claims[i].CPU)
	}
}
