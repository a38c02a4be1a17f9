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

// newSlice returns an empty slice, with the memory of one that was dropped.
func (e *Engine) newSlice() *slice {
	if n := len(e.spareSlices); n > 0 {
		s := e.spareSlices[n-1]
		e.spareSlices = e.spareSlices[:n-1]
		return s
	}
	return new(slice)
}

// dropSlice makes the memory of a slice available, whose claims were released.
func (e *Engine) dropSlice(s *slice) {
	*s = slice{usage: Usage{Claims: s.usage.Claims[:0]}}
	e.spareSlices = append(e.spareSlices, s)
}

// addClaim adds a claim to the slice that is indexed, and reports whether the claimant had no claim
// of this sort yet.
func (e *Engine) addClaim(s *slice, claim *Claim) bool {
	i := &e.index[keyOf(claim)]
	if int(*i) < len(s.usage.Claims) {
		if o := &s.usage.Claims[*i]; o.Claimant == claim.Claimant && o.ShortLived == claim.ShortLived {
			o.add(claim)
			return false
		}
	}
	*i = int32(len(s.usage.Claims))
	s.usage.Claims = append(s.usage.Claims, *claim)
	return true
}

// indexClaims makes the index that of a slice.
func (e *Engine) indexClaims(s *slice) {
	if n := 2 * (len(e.claimants) + 1); len(e.index) < n {
		e.index = append(e.index, make(claimIndex, n-len(e.index))...)
	}
	for i := range s.usage.Claims {
		e.index[keyOf(&s.usage.Claims[i])] = int32(i)
	}
}

// addInterval adds an interval to a slice. Each of its claims holds its claimant until
// Engine.releaseClaims.
func (e *Engine) addInterval(s *slice, u *Usage, elapsed time.Duration) {
	first := s.elapsed == 0 && len(s.usage.Claims) == 0
	if first {
		s.closed = e.closed
	}
	s.addAmounts(u, elapsed)
	s.restored = s.restored || e.restoring
	if !first {
		e.indexClaims(s)
	}
	for i := range u.Claims {
		claim := &u.Claims[i]
		if claim.empty() && !u.IdleAmongClaims {
			continue
		}
		if first {
			s.usage.Claims = append(s.usage.Claims, *claim)
		} else if !e.addClaim(s, claim) {
			continue
		}
		e.hold(claim.Claimant)
	}
}

// hold keeps a claimant until releaseDeferred.
func (e *Engine) hold(id Claimant) {
	if id != NoClaimant {
		e.claimants[id].deferred++
	}
}

// merge adds a slice to the one before it, and drops it.
func (e *Engine) merge(into, from *slice) {
	into.addAmounts(&from.usage, from.elapsed)
	into.unknown += from.unknown
	into.closed = min(into.closed, from.closed)
	into.restored = into.restored || from.restored
	e.indexClaims(into)
	for i := range from.usage.Claims {
		claim := &from.usage.Claims[i]
		if !e.addClaim(into, claim) && claim.Claimant != NoClaimant {
			e.claimants[claim.Claimant].deferred-- // the other claim holds the claimant
		}
	}
	e.dropSlice(from)
}

// split removes the first part of a slice, of the given length, and returns it.
func (e *Engine) split(s *slice, elapsed time.Duration) *slice {
	first := e.newSlice()
	first.elapsed, first.restored, first.closed = elapsed, s.restored, s.closed
	whole := s.elapsed
	s.elapsed -= elapsed
	part := func(amount *uint64) uint64 {
		p := units.MulDiv(*amount, uint64(elapsed), uint64(whole))
		*amount -= p
		return p
	}
	of := func(t *units.CPUTime) units.CPUTime { return units.CPUTime(part((*uint64)(t))) }
	unknown := uint64(s.unknown)
	first.unknown = time.Duration(part(&unknown))
	s.unknown = time.Duration(unknown)
	from, to := &s.usage, &first.usage
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
		e.hold(p.Claimant)
	}
	return first
}
