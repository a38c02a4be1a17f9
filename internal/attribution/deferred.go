// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Deferred claims keep claimants that ended for so long and up to so many. Beyond that their claims
// go to the other processes, so that a zone that fails for good does not keep ended series.
const (
	maxDeferral       = 5 * time.Minute
	maxDeferredClaims = 16384
)

// A reading usually ends inside a slice, which is then split in proportion to time. Recent slices
// are therefore kept short: those of the last maxAges times the age of the last reading are merged
// only up to a slicesPerAge-th of the age. A deferral has up to maxSliceClaims claims in all slices.
const (
	maxAges        = 2
	slicesPerAge   = 16
	maxSliceClaims = 4 * maxDeferredClaims
)

// maxSkew is the maximum difference between the ages of readings that are attributed together.
// Static power models are trained only on the energy of all zones of a kind, so zones that are
// sampled one after the other, or polled separately, must end at the same moment.
const maxSkew = time.Second

// deferral holds a zone's deferred energy and its domain's usage since the last attributed moment.
// While a zone is absent only the amount of usage is kept, not its claims.
type deferral struct {
	energy     units.Energy
	unmeasured time.Duration // time of the energy in which the meter measured nothing
	elapsed    time.Duration // of all slices
	slices     []*slice      // the oldest first; the last one ends with the interval
}

// remove removes the slices from i to before j, which were dropped or taken.
func (g *deferral) remove(i, j int) {
	n := copy(g.slices[i:], g.slices[j:])
	clear(g.slices[i+n:])
	g.slices = g.slices[:i+n]
}

// newDeferral returns an empty deferral, with the memory of one that was dropped.
func (e *Engine) newDeferral() *deferral {
	if n := len(e.spare); n > 0 {
		g := e.spare[n-1]
		e.spare = e.spare[:n-1]
		return g
	}
	return new(deferral)
}

// drop makes the memory of a deferral available, whose slices were dropped or taken.
func (e *Engine) drop(g *deferral) {
	*g = deferral{slices: g.slices[:0]}
	e.spare = append(e.spare, g)
}

// postpone adds an interval to the deferral of a zone.
func (e *Engine) postpone(z *Zone, energy units.Energy, u *Usage, elapsed time.Duration) {
	g := e.deferralOf(z)
	g.energy += energy
	g.elapsed += elapsed
	n := len(g.slices)
	if n == 0 || g.slices[n-1].unknown > 0 || g.slices[n-1].elapsed+elapsed > z.age/slicesPerAge {
		g.slices = append(g.slices, e.newSlice())
		n++
	}
	e.addInterval(g.slices[n-1], u, elapsed)
	e.shorten(g, maxAges*z.age)
}

// deferralOf returns the deferral of a zone, which is empty if there was none.
func (e *Engine) deferralOf(z *Zone) *deferral {
	if z.deferred == nil {
		z.deferred = e.newDeferral()
	}
	return z.deferred
}

// shorten merges slices older than keep. If the claims exceed maxSliceClaims, it also merges newer
// ones. It leaves out a first slice whose usage is not known.
func (e *Engine) shorten(g *deferral, keep time.Duration) {
	claims, i := 0, 0
	for _, s := range g.slices {
		claims += len(s.usage.Claims)
	}
	kept := g.elapsed
	if g.slices[0].unknown > 0 && len(g.slices) > 1 {
		kept -= g.slices[0].elapsed
		i = 1
	}
	for len(g.slices) > i+1 {
		first, second := g.slices[i], g.slices[i+1]
		if kept-first.elapsed-second.elapsed < keep && claims <= maxSliceClaims {
			break
		}
		claims -= len(first.usage.Claims) + len(second.usage.Claims)
		e.merge(first, second)
		claims += len(first.usage.Claims)
		g.remove(i+1, i+2)
	}
	if s := g.slices[i]; len(s.usage.Claims) > maxDeferredClaims || g.elapsed > maxDeferral {
		e.forgetEnded(s)
	}
}

// take removes the usage of the first part of the time of a deferral, and returns it as one slice.
func (e *Engine) take(g *deferral, elapsed time.Duration) *slice {
	g.elapsed -= elapsed
	var taken *slice
	n := 0
	for ; n < len(g.slices) && g.slices[n].elapsed <= elapsed; n++ {
		s := g.slices[n]
		elapsed -= s.elapsed
		if taken == nil {
			taken = s
		} else {
			e.merge(taken, s)
		}
	}
	g.remove(0, n)
	if elapsed > 0 && len(g.slices) > 0 {
		s := e.split(g.slices[0], elapsed)
		if taken == nil {
			return s
		}
		e.merge(taken, s)
	}
	return taken
}

// awaitFrom defers the domain's usage from age before the interval's end until the zone's next
// reading. The usage before the interval is not known.
func (e *Engine) awaitFrom(z *Zone, u *Usage, elapsed, age time.Duration) {
	if z.age = age; age == 0 || z.kind == NotAttributed {
		return
	}
	g := e.deferralOf(z)
	if before := age - elapsed; before > 0 {
		s := e.newSlice()
		s.elapsed, s.unknown = before, before
		g.slices, g.elapsed = append(g.slices, s), g.elapsed+before
	}
	e.postpone(z, 0, u, elapsed)
	if age < elapsed {
		e.resolved = append(e.resolved, e.take(g, elapsed-age))
	}
}

// commonAge returns the age at which a reading is attributed: the highest of the ages of the
// readings of its kind and domain that are higher by no more than maxSkew.
func (iv *Interval) commonAge(r *ZoneReading) time.Duration {
	age := r.Age
	if age == 0 {
		return 0
	}
	for i := range iv.Zones {
		if o := &iv.Zones[i]; o.OK && o.Kind == r.Kind && o.Domain == r.Domain && o.Age <= r.Age+maxSkew {
			age = max(age, o.Age)
		}
	}
	return age
}

// resolve attributes the deferred energy of a zone by the usage of the time that the energy is of,
// which ends age before the end of the interval. It does nothing if no usage of that time is known
// yet.
func (e *Engine) resolve(z *Zone, age time.Duration) {
	g := z.deferred
	covered := g.elapsed - age
	if age > 0 && covered <= 0 {
		return // the reading is of no later time than the one before
	}
	s := e.take(g, covered)
	if s.usage.Total == 0 {
		g.elapsed += covered
		g.slices = append(g.slices, nil)
		copy(g.slices[1:], g.slices)
		g.slices[0] = s
		return
	}
	d := e.dueOf(z, g, s)
	d.late = age > 0
	g.energy, g.unmeasured = 0, 0
	if len(g.slices) == 0 {
		e.drop(g)
		z.deferred = nil
	}
	if age == 0 {
		e.attributeDue(&d)
		return
	}
	e.addDue(&d)
}

// due is a portion that is attributed at the end of the interval, by the usage of a slice.
type due struct {
	slice *slice
	Portion
}

// dueOf returns a zone's deferred energy as a portion of the time of a slice. The active energy of
// the part of the time whose usage is not known is unattributed.
func (e *Engine) dueOf(z *Zone, g *deferral, s *slice) due {
	if known := s.elapsed - s.unknown; s.unknown > 0 && known > 0 {
		u := &s.usage
		weight := u.Unattributed
		for i := range u.Claims {
			if !e.isExcluded(&u.Claims[i]) {
				weight = units.AddSaturating(weight, u.Claims[i].CPU)
			}
		}
		u.Unattributed = units.AddSaturating(u.Unattributed, max(1, units.CPUTime(units.MulDiv(uint64(weight), uint64(s.unknown), uint64(known)))))
	}
	return due{s, Portion{
		Domain: z.domain, Kind: z.kind, Energy: g.energy, Busy: s.usage.Busy, Total: s.usage.Total,
		Elapsed: max(s.elapsed-g.unmeasured, 0), Zones: 1, Partial: g.unmeasured > 0 || s.unknown > 0, restored: s.restored,
	}}
}

// addDue notes a portion, or adds it to one of the same kind, domain and time: meters that are
// polled together are divided together.
func (e *Engine) addDue(d *due) {
	for i := range e.dues {
		o := &e.dues[i]
		if o.Kind == d.Kind && o.Domain == d.Domain && o.Elapsed == d.Elapsed && o.slice.elapsed == d.slice.elapsed && o.Busy == d.Busy &&
			o.Total == d.Total && o.Partial == d.Partial && o.restored == d.restored {
			o.Energy += d.Energy
			o.Zones++
			e.resolved = append(e.resolved, d.slice)
			return
		}
	}
	e.dues = append(e.dues, *d)
}

func (e *Engine) attributeDues() {
	for i := range e.dues {
		e.attributeDue(&e.dues[i])
	}
	clear(e.dues)
	e.dues = e.dues[:0]
}

func (e *Engine) attributeDue(d *due) {
	e.resolved = append(e.resolved, d.slice)
	e.attribute(d.Portion, &d.slice.usage)
}

// abandon attributes all that is deferred for a zone. partial reports whether the energy is only of
// a part of the time. If no utilization is known, the energy is unattributed.
func (e *Engine) abandon(z *Zone, partial bool) {
	g := z.deferred
	z.deferred = nil
	s := e.take(g, g.elapsed)
	switch {
	case g.energy == 0:
		e.resolved = append(e.resolved, s)
	case s.usage.Total > 0:
		d := e.dueOf(z, g, s)
		d.Partial = d.Partial || partial
		e.attributeDue(&d)
	default:
		e.resolved = append(e.resolved, s)
		k := &e.ledger.Kinds[z.kind]
		k.Active += g.energy
		k.Unattributed += g.energy
		k.changed = true
	}
	e.drop(g)
}

// endZone attributes what was read of a zone that is no longer among the readings. Of the time
// since, only the CPU time is kept: should the zone return, its energy meanwhile is not attributed
// to claimants of that interval.
func (e *Engine) endZone(z *Zone, iv *Interval) {
	z.Unread += iv.Elapsed
	e.ledger.end(&z.Lifetime)
	if z.kind == NotAttributed {
		return
	}
	if z.deferred != nil && z.deferred.energy > 0 {
		e.abandon(z, true)
	}
	g := e.deferralOf(z)
	if len(g.slices) == 0 {
		g.slices = append(g.slices, e.newSlice())
	}
	if len(g.slices) > 1 || len(g.slices[0].usage.Claims) > 0 {
		before := e.take(g, g.elapsed)
		s := e.newSlice()
		s.addUnattributed(&before.usage, before.elapsed)
		s.restored, s.unknown = before.restored, before.unknown
		e.resolved = append(e.resolved, before)
		g.slices, g.elapsed = append(g.slices, s), s.elapsed
	}
	g.slices[0].addUnattributed(iv.usage(z.domain), iv.Elapsed)
	g.elapsed += iv.Elapsed
}

// forgetEnded gives the deferred claims of claimants that ended to the other processes.
func (e *Engine) forgetEnded(s *slice) {
	if s.closed == e.closed {
		return
	}
	s.closed = e.closed
	claims := s.usage.Claims
	s.usage.Claims = claims[:0]
	e.indexClaims(s)
	for _, claim := range claims {
		if claim.Claimant != NoClaimant && !e.claimants[claim.Claimant].open {
			e.releaseDeferred(claim.Claimant)
			claim.Claimant, claim.ShortLived = NoClaimant, true
		}
		if !e.addClaim(s, &claim) && claim.Claimant != NoClaimant {
			e.claimants[claim.Claimant].deferred--
		}
	}
}

// dropResolved forgets the claims that were attributed in this interval. It must follow settle: a
// claimant that ended must have its last energy before it is released.
func (e *Engine) dropResolved() {
	for _, s := range e.resolved {
		for i := range s.usage.Claims {
			if id := s.usage.Claims[i].Claimant; id != NoClaimant {
				e.releaseDeferred(id)
			}
		}
		e.dropSlice(s)
	}
	clear(e.resolved)
	e.resolved = e.resolved[:0]
}

func (e *Engine) releaseDeferred(id Claimant) {
	e.claimants[id].deferred--
	e.releaseIfDone(id)
}
