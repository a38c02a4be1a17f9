// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"math"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Observe attributes the energy of one interval.
func (e *Engine) Observe(iv *Interval) {
	e.startInterval(iv)
	for _, r := range iv.Zones {
		e.observeZone(r, iv)
	}
	for i := range e.ledger.Zones {
		z := &e.ledger.Zones[i]
		if z.Present && !z.read {
			e.endZone(z, iv)
		}
		z.read = false
	}
	e.supersedeZones()
	for domain := range e.sums {
		e.attributeDomain(domain, iv)
	}
	e.attributeDues()
	for _, r := range iv.Zones {
		e.moveZone(r, iv)
	}
	e.settle(iv.EndsCollection)
	e.dropResolved()
	e.updateKinds()
	e.at, e.observed, e.restoring = iv.At, true, false
}

// startInterval adds an interval's CPU time.
func (e *Engine) startInterval(iv *Interval) {
	node := iv.usage(0)
	l := &e.ledger
	e.kinds = l.countKinds()
	l.Elapsed += iv.Elapsed
	l.Busy += node.Busy
	l.Total += node.Total
	l.Resolution = iv.Resolution
	l.addDomains(iv.Domains)
	for i := range node.Claims {
		e.addCPU(&node.Claims[i])
	}
	e.parts.addCPU(e, iv)
	clear(e.sums)
	for len(e.sums) < len(iv.Domains) {
		e.sums = append(e.sums, domainSums{})
	}
}

func (e *Engine) addCPU(claim *Claim) {
	if !claim.ShortLived {
		e.touch(claim.Claimant).cpu += claim.CPU
		return
	}
	e.ledger.accounts[e.restOf(claim.Claimant)].CPU += claim.CPU
	e.eachGroup(claim.Claimant, func(a *Account) { a.CPU += claim.CPU })
}

// attributeDomain attributes the energy of the zones of a domain that were read in this interval
// and in the one before.
func (e *Engine) attributeDomain(domain int, iv *Interval) {
	sums := &e.sums[domain]
	for kind, zones := range sums.zones[:e.kinds] {
		if zones == 0 {
			continue
		}
		u := iv.usage(domain)
		e.attribute(Portion{
			Domain: domain, Kind: kind, Energy: sums.energy[kind], Busy: u.Busy, Total: u.Total, Elapsed: iv.Elapsed,
			Zones: zones,
		}, u)
	}
}

// observeZone adds a reading to its zone, and its energy to what is attributed in this interval or
// to what is deferred.
func (e *Engine) observeZone(r ZoneReading, iv *Interval) {
	for len(e.ledger.Zones) <= r.Zone {
		e.ledger.Zones = append(e.ledger.Zones, Zone{})
	}
	z := &e.ledger.Zones[r.Zone]
	readAge := r.Age
	r.Age = iv.commonAge(&r)
	switch {
	case !z.Present:
		e.beginZone(z, r, iv)
	case r.Replaced:
		e.replaceZone(z, r, iv)
	default:
		if r.OK {
			z.RecentTime += max(z.readAge+z.Unread+iv.Elapsed-readAge, 0)
		}
		energy := z.advance(r, iv.At, iv.Elapsed)
		if z.kind != NotAttributed {
			e.addZoneEnergy(z, r, energy, iv)
		}
	}
	z.read = true
	if r.OK {
		z.readAge = readAge
	}
}

// beginZone takes the first good reading of a zone as its baseline.
func (e *Engine) beginZone(z *Zone, r ZoneReading, iv *Interval) {
	if !r.OK {
		return
	}
	*z = Zone{Present: true, Start: iv.At, At: iv.At, last: r.Total, domain: r.Domain, kind: r.Kind, began: true}
	e.beginKind(r.Kind, iv.At)
	e.awaitFrom(z, iv.usage(z.domain), iv.Elapsed, r.Age)
}

// supersedeZones has each zone that began in the interval take the place of one of its domain and
// kind that has ended.
func (e *Engine) supersedeZones() {
	zones := e.ledger.Zones
	for i := range zones {
		z := &zones[i]
		if !z.began {
			continue
		}
		z.began = false
		ended := slices.IndexFunc(zones, func(o Zone) bool {
			return o.Ended() && !o.superseded && o.kind == z.kind && o.domain == z.domain
		})
		if ended >= 0 {
			zones[ended].superseded = true
		}
	}
}

// beginKind marks a kind present from its first good reading.
func (e *Engine) beginKind(kind int, at time.Time) {
	if kind != NotAttributed && !e.ledger.Kinds[kind].Present {
		e.ledger.Kinds[kind] = KindTotals{Present: true, Start: at}
	}
}

// moveZone has a zone go on under another domain or kind, after its energy up to a good reading was
// attributed under the one before.
func (e *Engine) moveZone(r ZoneReading, iv *Interval) {
	z := &e.ledger.Zones[r.Zone]
	if !r.OK || r.Kind == z.kind && r.Domain == z.domain {
		return
	}
	if z.deferred != nil {
		e.abandon(z, false)
	}
	z.domain, z.kind = r.Domain, r.Kind
	e.beginKind(r.Kind, iv.At)
	e.awaitFrom(z, iv.usage(z.domain), iv.Elapsed, iv.commonAge(&r))
}

// replaceZone continues a zone with another meter, from the meter's first good reading. Until then
// the zone is absent.
func (e *Engine) replaceZone(z *Zone, r ZoneReading, iv *Interval) {
	e.endZone(z, iv)
	if !r.OK {
		return
	}
	if z.deferred != nil {
		e.abandon(z, false)
	}
	z.last, z.At, z.Unread = r.Total, iv.At, 0
	z.end, z.superseded = 0, false
	e.awaitFrom(z, iv.usage(z.domain), iv.Elapsed, r.Age)
}

// advance adds a reading and returns the energy since the reading before. A reading that is not OK
// has energy, too, if the total was brought up to date in a window whose CPU time could not be
// read, which has no interval of its own.
func (z *Zone) advance(r ZoneReading, at time.Time, elapsed time.Duration) units.Energy {
	z.end, z.superseded = 0, false
	energy := units.Advance(z.last, r.Total)
	z.last = r.Total
	z.Energy += energy
	z.Recent += energy
	if r.OK || energy > 0 {
		z.At = at
	}
	z.Unread += elapsed
	if r.OK {
		z.Unread, z.age = 0, r.Age
	}
	return energy
}

// addZoneEnergy adds the energy of a zone to the sum of its domain and kind, or postpones it.
func (e *Engine) addZoneEnergy(z *Zone, r ZoneReading, energy units.Energy, iv *Interval) {
	u := iv.usage(z.domain)
	if r.OK && u.Total > 0 && z.deferred == nil && r.Age == 0 && r.Unmeasured == 0 {
		sums := &e.sums[z.domain]
		sums.energy[z.kind] += energy
		sums.zones[z.kind]++
		return
	}
	e.postpone(z, energy, u, iv.Elapsed)
	z.deferred.unmeasured += r.Unmeasured
	if r.OK {
		e.resolve(z, r.Age)
	}
}

// updateKinds brings up to date what the ledger says of each kind beside its energy.
func (e *Engine) updateKinds() {
	l := &e.ledger
	e.endKinds()
	for kind := range l.Kinds {
		k := &l.Kinds[kind]
		k.RecentTime = min(k.RecentTime+k.covered, l.Elapsed)
		if k.changed {
			k.Windows++
		}
		k.covered, k.changed = 0, false
		k.StandardError = -1
		if model := e.trained[kind]; model != nil {
			e.assessModel(kind, model)
		}
	}
}

// assessModel sets what a kind's model knows over the domains that have zones of the kind. The
// errors of domains are independent.
func (e *Engine) assessModel(kind int, model TrainedModel) {
	k := &e.ledger.Kinds[kind]
	k.Model, k.StandardError, k.Shared = Trained, 0, false
	known := false
	for domain := range e.sums {
		of, _ := e.countZones(domain, kind)
		if of == 0 {
			continue
		}
		known = true
		k.Shared = k.Shared || of > 1
		switch {
		case model.Provisional(domain):
			k.Model = Provisional
		case !model.Trained(domain):
			k.Model = min(k.Model, Estimated)
		}
		if d := model.StandardError(domain); d < 0 || k.StandardError < 0 {
			k.StandardError = -1
		} else {
			k.StandardError = math.Hypot(k.StandardError, d)
		}
	}
	if !known {
		k.Model, k.StandardError = Provisional, -1
	}
}

// endKinds marks the kinds that have zones no longer. It must follow the attribution of an
// interval, which may set Kind.changed first.
func (e *Engine) endKinds() {
	var alive [MaxKinds]bool
	for i := range e.ledger.Zones {
		if z := &e.ledger.Zones[i]; z.Present && !z.Ended() && z.kind != NotAttributed {
			alive[z.kind] = true
		}
	}
	for kind := range e.ledger.Kinds {
		k := &e.ledger.Kinds[kind]
		ended := k.Present && !alive[kind]
		if !ended || k.changed {
			k.end = 0
		}
		if ended {
			e.ledger.end(&k.Lifetime)
		}
	}
}
