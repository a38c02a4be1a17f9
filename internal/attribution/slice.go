// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// slice is the usage of a domain in consecutive intervals, or in a part of one.
type slice struct {
	usage    Usage
	elapsed  time.Duration
	unknown  time.Duration // the part of elapsed whose usage was not read
	closed   uint64        // Sharer.closed when all claimants of the claims were open
	restored bool          // some of it belongs to the time before Sharer.Restore
}

// claimIndex finds the claims of a claimant in one slice at a time, for merging. For each claimant,
// it has the index of the claim for its own usage and of the claim for short-lived processes. An
// index of another slice may remain in it, so an index is valid only if the slice has the claim at
// this index.
type claimIndex []int32

// keyOf returns the position of a claim's index.
func keyOf(claim *Claim) int {
	key := 2 * int(claim.Claimant-NoClaimant)
	if claim.ShortLived {
		key++
	}
	return key
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

// newSlice returns an empty slice, with the memory of a dropped one.
func (s *Sharer) newSlice() *slice {
	if n := len(s.spareSlices); n > 0 {
		sl := s.spareSlices[n-1]
		s.spareSlices = s.spareSlices[:n-1]
		return sl
	}
	return new(slice)
}

// dropSlice makes the memory of a slice available for reuse. All its claims were released.
func (s *Sharer) dropSlice(sl *slice) {
	*sl = slice{usage: Usage{Claims: sl.usage.Claims[:0]}}
	s.spareSlices = append(s.spareSlices, sl)
}

// addClaim adds a claim to the indexed slice, and reports whether the claimant had no such claim
// yet.
func (s *Sharer) addClaim(sl *slice, claim *Claim) bool {
	i := &s.index[keyOf(claim)]
	if int(*i) < len(sl.usage.Claims) {
		if o := &sl.usage.Claims[*i]; o.Claimant == claim.Claimant && o.ShortLived == claim.ShortLived {
			o.add(claim)
			return false
		}
	}
	*i = int32(len(sl.usage.Claims))
	sl.usage.Claims = append(sl.usage.Claims, *claim)
	return true
}

// indexClaims indexes the claims of a slice.
func (s *Sharer) indexClaims(sl *slice) {
	if n := 2 * (len(s.users) + 1); len(s.index) < n {
		s.index = append(s.index, make(claimIndex, n-len(s.index))...)
	}
	for i := range sl.usage.Claims {
		s.index[keyOf(&sl.usage.Claims[i])] = int32(i)
	}
}

// addInterval adds an interval to a slice. Each of its claims holds its claimant until
// Sharer.releaseDeferred.
func (s *Sharer) addInterval(sl *slice, u *Usage, elapsed time.Duration) {
	first := sl.elapsed == 0 && len(sl.usage.Claims) == 0
	if first {
		sl.closed = s.closed
	}
	sl.addAmounts(u, elapsed)
	sl.restored = sl.restored || s.restoring
	if !first {
		s.indexClaims(sl)
	}
	for i := range u.Claims {
		claim := &u.Claims[i]
		if claim.empty() && !u.IdleAmongClaims {
			continue
		}
		if first {
			sl.usage.Claims = append(sl.usage.Claims, *claim)
		} else if !s.addClaim(sl, claim) {
			continue
		}
		s.hold(claim.Claimant)
	}
}

// hold keeps a claimant until releaseDeferred.
func (s *Sharer) hold(id Claimant) {
	if id != NoClaimant {
		s.users[id].deferred++
	}
}

// merge adds the slice from to the previous slice into, and drops from.
func (s *Sharer) merge(into, from *slice) {
	into.addAmounts(&from.usage, from.elapsed)
	into.unknown += from.unknown
	into.closed = min(into.closed, from.closed)
	into.restored = into.restored || from.restored
	s.indexClaims(into)
	for i := range from.usage.Claims {
		claim := &from.usage.Claims[i]
		if !s.addClaim(into, claim) && claim.Claimant != NoClaimant {
			s.users[claim.Claimant].deferred-- // the other claim holds the claimant
		}
	}
	s.dropSlice(from)
}

// split removes the first part of a slice, of the given length, and returns it.
func (s *Sharer) split(sl *slice, elapsed time.Duration) *slice {
	first := s.newSlice()
	first.elapsed, first.restored, first.closed = elapsed, sl.restored, sl.closed
	whole := sl.elapsed
	sl.elapsed -= elapsed
	part := func(amount *uint64) uint64 {
		p := units.MulDiv(*amount, uint64(elapsed), uint64(whole))
		*amount -= p
		return p
	}
	of := func(t *units.CPUTime) units.CPUTime { return units.CPUTime(part((*uint64)(t))) }
	unknown := uint64(sl.unknown)
	first.unknown = time.Duration(part(&unknown))
	sl.unknown = time.Duration(unknown)
	from, to := &sl.usage, &first.usage
	to.Busy, to.Total, to.Unattributed = of(&from.Busy), of(&from.Total), of(&from.Unattributed)
	for i := range from.Weightless {
		to.Weightless[i] = of(&from.Weightless[i])
	}
	for i := range from.Averages {
		to.Averages[i] = Average{Weight: part(&from.Averages[i].Weight), CPU: of(&from.Averages[i].CPU)}
	}
	to.addFlags(from)
	for i := range from.Claims {
		claim := &from.Claims[i]
		p := Claim{Claimant: claim.Claimant, ShortLived: claim.ShortLived, CPU: of(&claim.CPU)}
		for k := range claim.Weights {
			p.Weights[k] = part(&claim.Weights[k])
		}
		to.Claims = append(to.Claims, p)
		s.hold(p.Claimant)
	}
	return first
}
