// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// The limits of deferred claims by closed claimants. Claims beyond the limits become claims of
// NoClaimant. Otherwise a zone that fails permanently would keep the series of exited processes.
const (
	maxDeferral       = 5 * time.Minute
	maxDeferredClaims = 16384
)

// The time of a reading usually ends inside a slice, which is then split in proportion to time.
// Recent slices are therefore short: in the last maxAges times the age of the last reading, a slice
// is at most 1/slicesPerAge of this age, or one interval. All slices of a deferral together have at
// most maxSliceClaims claims.
const (
	maxAges        = 2
	slicesPerAge   = 16
	maxSliceClaims = 4 * maxDeferredClaims
)

// maxSkew is the maximum difference between the ages of readings that are attributed together.
// Static power models are trained only on the energy of all zones of a kind. Zones that are sampled
// one after the other, or polled separately, must therefore end at the same moment.
const maxSkew = time.Second

// deferral holds a zone's deferred energy and its domain's usage since the last attributed moment.
// While a zone is absent only the amount of usage is kept, not its claims.
type deferral struct {
	energy     units.Energy
	unmeasured time.Duration // part of the energy's time that the meter did not measure
	elapsed    time.Duration // of all slices
	slices     []*slice      // oldest first; the last slice ends with the interval
}

// remove removes the slices from i to before j, which were dropped or taken.
func (g *deferral) remove(i, j int) {
	n := copy(g.slices[i:], g.slices[j:])
	clear(g.slices[i+n:])
	g.slices = g.slices[:i+n]
}

// newDeferral returns an empty deferral, with the memory of a dropped one.
func (s *Sharer) newDeferral() *deferral {
	if n := len(s.spare); n > 0 {
		g := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return g
	}
	return new(deferral)
}

// drop makes the memory of a deferral available for reuse. All its slices were dropped or taken.
func (s *Sharer) drop(g *deferral) {
	*g = deferral{slices: g.slices[:0]}
	s.spare = append(s.spare, g)
}

// postpone adds an interval to the deferral of a zone.
func (s *Sharer) postpone(z *zone, energy units.Energy, u *Usage, elapsed time.Duration) {
	g := s.deferralOf(z)
	g.energy += energy
	g.elapsed += elapsed
	n := len(g.slices)
	if n == 0 || g.slices[n-1].unknown > 0 || g.slices[n-1].elapsed+elapsed > z.age/slicesPerAge {
		g.slices = append(g.slices, s.newSlice())
		n++
	}
	s.addInterval(g.slices[n-1], u, elapsed)
	s.shorten(g, maxAges*z.age)
}

// deferralOf returns the deferral of a zone, empty at first.
func (s *Sharer) deferralOf(z *zone) *deferral {
	if z.deferred == nil {
		z.deferred = s.newDeferral()
	}
	return z.deferred
}

// shorten merges slices older than keep. If the claims exceed maxSliceClaims, it also merges newer
// slices. It drops a first slice without usage.
func (s *Sharer) shorten(g *deferral, keep time.Duration) {
	claims, i := 0, 0
	for _, sl := range g.slices {
		claims += len(sl.usage.Claims)
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
		s.merge(first, second)
		claims += len(first.usage.Claims)
		g.remove(i+1, i+2)
	}
	if sl := g.slices[i]; len(sl.usage.Claims) > maxDeferredClaims || g.elapsed > maxDeferral {
		s.forgetEnded(sl)
	}
}

// take removes the usage of the first part of the time of a deferral, and returns it as one slice.
func (s *Sharer) take(g *deferral, elapsed time.Duration) *slice {
	g.elapsed -= elapsed
	var taken *slice
	n := 0
	for ; n < len(g.slices) && g.slices[n].elapsed <= elapsed; n++ {
		sl := g.slices[n]
		elapsed -= sl.elapsed
		if taken == nil {
			taken = sl
		} else {
			s.merge(taken, sl)
		}
	}
	g.remove(0, n)
	if elapsed > 0 && len(g.slices) > 0 {
		sl := s.split(g.slices[0], elapsed)
		if taken == nil {
			return sl
		}
		s.merge(taken, sl)
	}
	return taken
}

// awaitFrom defers the domain's usage from age before the interval's end until the zone's next
// reading. The usage before the interval is not available.
func (s *Sharer) awaitFrom(z *zone, u *Usage, elapsed, age time.Duration) {
	if z.age = age; age == 0 || z.kind == NotAttributed {
		return
	}
	g := s.deferralOf(z)
	if before := age - elapsed; before > 0 {
		sl := s.newSlice()
		sl.elapsed, sl.unknown = before, before
		g.slices, g.elapsed = append(g.slices, sl), g.elapsed+before
	}
	s.postpone(z, 0, u, elapsed)
	if age < elapsed {
		s.resolved = append(s.resolved, s.take(g, elapsed-age))
	}
}

// commonAge returns the age that is used to attribute a reading: the highest age among the readings
// of its kind and domain that exceeds the age of the reading by at most maxSkew. For a reading of
// age 0, it is 0.
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

// resolve attributes the deferred energy of a zone by the usage of the time that the energy covers.
// This time ends age before the end of the interval. If its usage was not read yet, the energy
// stays deferred.
func (s *Sharer) resolve(z *zone, age time.Duration) {
	g := z.deferred
	covered := g.elapsed - age
	if age > 0 && covered <= 0 {
		return // the reading is not later than the previous one
	}
	sl := s.take(g, covered)
	if sl.usage.Total == 0 {
		g.elapsed += covered
		g.slices = append(g.slices, nil)
		copy(g.slices[1:], g.slices)
		g.slices[0] = sl
		return
	}
	d := s.dueOf(z, g, sl)
	d.late = age > 0
	g.energy, g.unmeasured = 0, 0
	if len(g.slices) == 0 {
		s.drop(g)
		z.deferred = nil
	}
	if age == 0 {
		s.attributeDue(&d)
		return
	}
	s.addDue(&d)
}

// due is a portion that is attributed at the end of the interval, by the usage of a slice.
type due struct {
	slice *slice
	Portion
}

// dueOf returns a zone's deferred energy as a portion of the time of a slice. The active energy of
// the part of the time without usage is unattributed.
func (s *Sharer) dueOf(z *zone, g *deferral, sl *slice) due {
	if known := sl.elapsed - sl.unknown; sl.unknown > 0 && known > 0 {
		u := &sl.usage
		weight := u.Unattributed
		for i := range u.Claims {
			if !s.isExcluded(&u.Claims[i]) {
				weight = units.AddSaturating(weight, u.Claims[i].CPU)
			}
		}
		u.Unattributed = units.AddSaturating(u.Unattributed, max(1, units.CPUTime(units.MulDiv(uint64(weight), uint64(sl.unknown), uint64(known)))))
	}
	return due{sl, Portion{
		Domain: z.domain, Kind: z.kind, Energy: g.energy, Busy: sl.usage.Busy, Total: sl.usage.Total,
		Elapsed: max(sl.elapsed-g.unmeasured, 0), Zones: 1, Partial: g.unmeasured > 0 || sl.unknown > 0, restored: sl.restored,
	}}
}

// addDue adds a portion that is due. Portions of the same kind, domain and time are added up, so
// that the energy of meters that are polled together is divided together.
func (s *Sharer) addDue(d *due) {
	for i := range s.dues {
		o := &s.dues[i]
		if o.Kind == d.Kind && o.Domain == d.Domain && o.Elapsed == d.Elapsed && o.slice.elapsed == d.slice.elapsed && o.Busy == d.Busy &&
			o.Total == d.Total && o.Partial == d.Partial && o.restored == d.restored {
			o.Energy += d.Energy
			o.Zones++
			s.resolved = append(s.resolved, d.slice)
			return
		}
	}
	s.dues = append(s.dues, *d)
}

func (s *Sharer) attributeDues() {
	for i := range s.dues {
		s.attributeDue(&s.dues[i])
	}
	clear(s.dues)
	s.dues = s.dues[:0]
}

func (s *Sharer) attributeDue(d *due) {
	s.resolved = append(s.resolved, d.slice)
	s.attribute(d.Portion, &d.slice.usage)
}

// abandon attributes all deferred energy of a zone. partial reports whether the energy covers only
// a part of the time. Without any utilization, the energy is unattributed.
func (s *Sharer) abandon(z *zone, partial bool) {
	g := z.deferred
	z.deferred = nil
	sl := s.take(g, g.elapsed)
	switch {
	case g.energy == 0:
		s.resolved = append(s.resolved, sl)
	case sl.usage.Total > 0:
		d := s.dueOf(z, g, sl)
		d.Partial = d.Partial || partial
		s.attributeDue(&d)
	default:
		s.resolved = append(s.resolved, sl)
		k := &s.shares.Kinds[z.kind]
		k.Active.Energy += g.energy
		k.Unattributed += g.energy
		k.Changed = true
	}
	s.drop(g)
}

// endZone attributes the deferred energy of a zone that is no longer among the readings. While the
// zone is absent, only the CPU time of its domain is kept, without claims. If the zone returns, the
// share of that CPU time in its energy is unattributed.
func (s *Sharer) endZone(z *zone, iv *Interval) {
	z.Unread += iv.Elapsed
	z.Ended = true
	if z.kind == NotAttributed {
		return
	}
	if z.deferred != nil && z.deferred.energy > 0 {
		s.abandon(z, true)
	}
	g := s.deferralOf(z)
	if len(g.slices) == 0 {
		g.slices = append(g.slices, s.newSlice())
	}
	if len(g.slices) > 1 || len(g.slices[0].usage.Claims) > 0 {
		before := s.take(g, g.elapsed)
		sl := s.newSlice()
		sl.addUnattributed(&before.usage, before.elapsed)
		sl.restored, sl.unknown = before.restored, before.unknown
		s.resolved = append(s.resolved, before)
		g.slices, g.elapsed = append(g.slices, sl), sl.elapsed
	}
	g.slices[0].addUnattributed(iv.usage(z.domain), iv.Elapsed)
	g.elapsed += iv.Elapsed
}

// forgetEnded moves the deferred claims of ended claimants to the claims without a claimant.
func (s *Sharer) forgetEnded(sl *slice) {
	if sl.closed == s.closed {
		return
	}
	sl.closed = s.closed
	claims := sl.usage.Claims
	sl.usage.Claims = claims[:0]
	s.indexClaims(sl)
	for _, claim := range claims {
		if claim.Claimant != NoClaimant && !s.users[claim.Claimant].open {
			s.releaseDeferred(claim.Claimant, &s.shares.Forgotten)
			claim.Claimant, claim.ShortLived = NoClaimant, true
		}
		if !s.addClaim(sl, &claim) && claim.Claimant != NoClaimant {
			s.users[claim.Claimant].deferred--
		}
	}
}

// dropResolved removes the claims that were attributed in this interval.
func (s *Sharer) dropResolved() {
	for _, sl := range s.resolved {
		for i := range sl.usage.Claims {
			if id := sl.usage.Claims[i].Claimant; id != NoClaimant {
				s.releaseDeferred(id, &s.shares.Released)
			}
		}
		s.dropSlice(sl)
	}
	clear(s.resolved)
	s.resolved = s.resolved[:0]
}

// releaseDeferred drops a deferred claim of a claimant, and adds the claimant to released if that
// was the last one.
func (s *Sharer) releaseDeferred(id Claimant, released *[]Claimant) {
	s.users[id].deferred--
	if s.release(id) {
		*released = append(*released, id)
	}
}
