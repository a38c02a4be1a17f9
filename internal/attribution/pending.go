// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// pending is what a zone waits with until a good reading: its energy so far, and the usage of its domain in the same
// intervals. While a zone is absent only the amount of usage is kept, not who used it.
type pending struct {
	usage    Usage
	elapsed  time.Duration
	energy   units.Energy
	restored bool               // some of it is of the time before Engine.Restore
	index    map[pendingKey]int // of usage.Claims
}

type pendingKey struct {
	claimant   Claimant
	shortLived bool
}

// Pending claims keep claimants that ended for so long and up to so many. Beyond that their claims go to the other
// processes, so that a zone that fails for good does not keep ended series.
const (
	maxPending       = 5 * time.Minute
	maxPendingClaims = 16384
)

// newPending returns an empty pending, with the memory of one that was dropped.
func (e *Engine) newPending() *pending {
	if n := len(e.spare); n > 0 {
		g := e.spare[n-1]
		e.spare = e.spare[:n-1]
		return g
	}
	return &pending{index: map[pendingKey]int{}}
}

// drop makes the memory of a pending available.
func (e *Engine) drop(g *pending) {
	clear(g.index)
	*g = pending{usage: Usage{Claims: g.usage.Claims[:0]}, index: g.index}
	e.spare = append(e.spare, g)
}

// addAmounts adds an interval, without who used the domain.
func (g *pending) addAmounts(u *Usage, elapsed time.Duration) {
	g.elapsed += elapsed
	g.usage.Busy += u.Busy
	g.usage.Total += u.Total
	g.usage.Unattributed = units.AddSaturating(g.usage.Unattributed, u.Unattributed)
	for i, weightless := range u.Weightless {
		g.usage.Weightless[i] = units.AddSaturating(g.usage.Weightless[i], weightless)
	}
	g.usage.Assumed = g.usage.Assumed || u.Assumed
	g.usage.IdleAmongClaims = g.usage.IdleAmongClaims || u.IdleAmongClaims
	for i, a := range u.Averages {
		sum := &g.usage.Averages[i]
		sum.Weight, sum.CPU = units.AddSaturating(sum.Weight, a.Weight), units.AddSaturating(sum.CPU, a.CPU)
	}
	for i, unweighed := range u.Unweighed {
		g.usage.Unweighed[i] = g.usage.Unweighed[i] || unweighed
	}
}

// addUnattributed adds an interval whose users are not kept.
func (g *pending) addUnattributed(u *Usage, elapsed time.Duration) {
	g.addAmounts(u, elapsed)
	for i := range u.Claims {
		g.usage.Unattributed = units.AddSaturating(g.usage.Unattributed, u.Claims[i].CPU)
	}
}

// addClaim reports whether the claimant had no claim of this sort yet.
func (g *pending) addClaim(claim *Claim) bool {
	key := pendingKey{claim.Claimant, claim.ShortLived}
	if i, ok := g.index[key]; ok {
		g.usage.Claims[i].add(claim)
		return false
	}
	g.index[key] = len(g.usage.Claims)
	g.usage.Claims = append(g.usage.Claims, *claim)
	return true
}

// postpone adds an interval to what is pending for a zone.
func (e *Engine) postpone(z *Zone, energy units.Energy, u *Usage, elapsed time.Duration) {
	if z.pending == nil {
		z.pending = e.newPending()
	}
	g := z.pending
	g.energy += energy
	g.restored = g.restored || e.restoring
	g.addAmounts(u, elapsed)
	for i := range u.Claims {
		claim := &u.Claims[i]
		if claim.empty() && !u.IdleAmongClaims {
			continue
		}
		if g.addClaim(claim) && claim.Claimant != NoClaimant {
			e.claimants[claim.Claimant].pending++
		}
	}
	if len(g.usage.Claims) > maxPendingClaims || g.elapsed > maxPending {
		e.forgetEnded(g)
	}
}

// resolve attributes what is pending for a zone. partial reports whether the energy is only of a part of the time. Where
// no utilization is known, the energy is unattributed.
func (e *Engine) resolve(z *Zone, partial bool) {
	g := z.pending
	z.pending = nil
	e.resolved = append(e.resolved, g)
	switch {
	case g.usage.Total > 0:
		e.attribute(Portion{
			Domain: z.domain, Kind: z.kind, Energy: g.energy, Busy: g.usage.Busy, Total: g.usage.Total, Elapsed: g.elapsed,
			Zones: 1, Partial: partial, restored: g.restored,
		}, &g.usage)
	default:
		k := &e.ledger.Kinds[z.kind]
		k.Active += g.energy
		k.Unattributed += g.energy
		k.changed = true
	}
}

// endZone attributes what was read of a zone that is no longer among the readings. Of the time since, only the CPU time
// is kept: should the zone return, its energy meanwhile is not attributed to claimants of that interval.
func (e *Engine) endZone(z *Zone, iv *Interval) {
	z.Unread += iv.Elapsed
	z.Ended = true
	if z.kind == NotAttributed {
		return
	}
	before := z.pending
	if before != nil && before.energy > 0 {
		e.resolve(z, true)
		before = nil
	}
	if before == nil || len(before.usage.Claims) > 0 {
		z.pending = e.newPending()
	}
	if before != nil && before != z.pending {
		z.pending.addUnattributed(&before.usage, before.elapsed)
		e.resolved = append(e.resolved, before)
	}
	z.pending.addUnattributed(iv.usage(z.domain), iv.Elapsed)
}

// forgetEnded gives the pending claims of claimants that ended to the other processes.
func (e *Engine) forgetEnded(g *pending) {
	claims := g.usage.Claims
	g.usage.Claims = make([]Claim, 0, len(claims))
	clear(g.index)
	for _, claim := range claims {
		if claim.Claimant != NoClaimant && !e.claimants[claim.Claimant].open {
			e.releasePending(claim.Claimant)
			claim.Claimant, claim.ShortLived = NoClaimant, true
		}
		g.addClaim(&claim)
	}
}

// dropResolved forgets the claims that were attributed in this interval. It must follow settle: a claimant that ended
// must have its last energy before it is released.
func (e *Engine) dropResolved() {
	for _, g := range e.resolved {
		for i := range g.usage.Claims {
			if id := g.usage.Claims[i].Claimant; id != NoClaimant {
				e.releasePending(id)
			}
		}
		e.drop(g)
	}
	e.resolved = e.resolved[:0]
}

func (e *Engine) releasePending(id Claimant) {
	e.claimants[id].pending--
	e.releaseIfDone(id)
}
