// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"math"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Share divides the energy of one interval and shares it among claimants.
func (s *Sharer) Share(iv *Interval) *Shares {
	s.beginInterval(iv)
	for _, r := range iv.Zones {
		s.observeZone(r, iv)
	}
	for i := range s.zones {
		if z := &s.zones[i]; z.Present && !z.read {
			s.endZone(z, iv)
		}
	}
	s.supersedeZones()
	for domain := range s.sums {
		s.attributeDomain(domain, iv)
	}
	s.attributeDues()
	for _, r := range iv.Zones {
		s.moveZone(r, iv)
	}
	s.dropResolved()
	s.endInterval()
	return &s.shares
}

// beginInterval begins the shares of an interval with its CPU time.
func (s *Sharer) beginInterval(iv *Interval) {
	s.collected += iv.Elapsed
	kinds := 0
	for i := range s.zones {
		z := &s.zones[i]
		z.Began, z.Energy, z.Time, z.Counted, z.read = false, 0, 0, false, false
		kinds = max(kinds, z.kind+1)
	}
	sh := &s.shares
	sh.begin(iv, s.collected)
	sh.table.begin(kinds, s.Parts, s.rules.Idle == IdleUsed)
	node := iv.usage(0)
	for i := range node.Claims {
		claim := &node.Claims[i]
		sh.Claimants[sh.row(claim)].CPU += claim.CPU
	}
	for domain := 1; domain <= s.Parts; domain++ {
		sh.addPartCPU(domain, iv.usage(domain).Claims)
	}
	clear(s.sums)
	for len(s.sums) < len(iv.Domains) {
		s.sums = append(s.sums, domainSums{})
	}
}

// attributeDomain attributes the energy of the zones of a domain that were read in this interval
// and in the interval before it.
func (s *Sharer) attributeDomain(domain int, iv *Interval) {
	sums := &s.sums[domain]
	for kind, zones := range sums.zones {
		if zones == 0 {
			continue
		}
		u := iv.usage(domain)
		s.attribute(Portion{
			Domain: domain, Kind: kind, Energy: sums.energy[kind], Busy: u.Busy, Total: u.Total, Elapsed: iv.Elapsed,
			Zones: zones,
		}, u)
	}
}

// zone is the state of one zone.
type zone struct {
	ZoneShares

	domain   int
	kind     int
	last     units.Energy
	age      time.Duration // commonAge of the last good reading
	readAge  time.Duration // Age of the last good reading
	deferred *deferral     // nil while the zone is read and attributed each interval
	read     bool          // it is among the readings of the current interval
	// superseded reports whether another zone of the same domain and kind began after this zone
	// ended, for example because a preferred meter now reads the same hardware.
	superseded bool
}

// observeZone adds a reading to its zone, and attributes its energy in this interval or defers it.
func (s *Sharer) observeZone(r ZoneReading, iv *Interval) {
	for len(s.zones) <= r.Zone {
		s.zones = append(s.zones, zone{kind: NotAttributed})
	}
	z := &s.zones[r.Zone]
	readAge := r.Age
	r.Age = iv.commonAge(&r)
	switch {
	case !z.Present:
		s.beginZone(z, r, iv)
	case r.Replaced:
		s.replaceZone(z, r, iv)
	default:
		if r.OK {
			z.Time += max(z.readAge+z.Unread+iv.Elapsed-readAge, 0)
		}
		energy := z.advance(r, iv.Elapsed)
		if z.kind != NotAttributed {
			s.addZoneEnergy(z, r, energy, iv)
		}
	}
	z.read = true
	if r.OK {
		z.readAge = readAge
	}
}

// beginZone takes the first good reading of a zone as its baseline.
func (s *Sharer) beginZone(z *zone, r ZoneReading, iv *Interval) {
	if !r.OK {
		return
	}
	*z = zone{ZoneShares: ZoneShares{Present: true, Began: true}, last: r.Total, domain: r.Domain, kind: r.Kind}
	s.awaitFrom(z, iv.usage(z.domain), iv.Elapsed, r.Age)
}

// supersedeZones marks an ended zone as superseded for each zone of the same domain and kind that
// began in the interval.
func (s *Sharer) supersedeZones() {
	for i := range s.zones {
		z := &s.zones[i]
		if !z.Began {
			continue
		}
		ended := slices.IndexFunc(s.zones, func(o zone) bool {
			return o.Ended && !o.superseded && o.kind == z.kind && o.domain == z.domain
		})
		if ended >= 0 {
			s.zones[ended].superseded = true
		}
	}
}

// moveZone continues a zone under another domain or kind. The energy up to a good reading was
// attributed under the former domain and kind.
func (s *Sharer) moveZone(r ZoneReading, iv *Interval) {
	z := &s.zones[r.Zone]
	if !r.OK || r.Kind == z.kind && r.Domain == z.domain {
		return
	}
	if z.deferred != nil {
		s.abandon(z, false)
	}
	z.domain, z.kind = r.Domain, r.Kind
	s.awaitFrom(z, iv.usage(z.domain), iv.Elapsed, iv.commonAge(&r))
}

// replaceZone continues a zone with another meter, from the meter's first good reading. Until then
// the zone is absent.
func (s *Sharer) replaceZone(z *zone, r ZoneReading, iv *Interval) {
	s.endZone(z, iv)
	if !r.OK {
		return
	}
	if z.deferred != nil {
		s.abandon(z, false)
	}
	z.last, z.Counted, z.Unread = r.Total, true, 0
	z.Ended, z.superseded = false, false
	s.awaitFrom(z, iv.usage(z.domain), iv.Elapsed, r.Age)
}

// advance adds a reading, and returns the energy since the previous reading. A reading that is not
// OK may also have energy (see ZoneReading.OK).
func (z *zone) advance(r ZoneReading, elapsed time.Duration) units.Energy {
	z.Ended, z.superseded = false, false
	energy := units.Advance(z.last, r.Total)
	z.last = r.Total
	z.Energy += energy
	z.Counted = r.OK || energy > 0
	z.Unread += elapsed
	if r.OK {
		z.Unread, z.age = 0, r.Age
	}
	return energy
}

// addZoneEnergy adds the energy of a zone to the sum of its domain and kind, or postpones it.
func (s *Sharer) addZoneEnergy(z *zone, r ZoneReading, energy units.Energy, iv *Interval) {
	u := iv.usage(z.domain)
	if r.OK && u.Total > 0 && z.deferred == nil && r.Age == 0 && r.Unmeasured == 0 {
		sums := &s.sums[z.domain]
		sums.energy[z.kind] += energy
		sums.zones[z.kind]++
		return
	}
	s.postpone(z, energy, u, iv.Elapsed)
	z.deferred.unmeasured += r.Unmeasured
	if r.OK {
		s.resolve(z, r.Age)
	}
}

// endInterval sets the state of zones and kinds after the interval.
func (s *Sharer) endInterval() {
	kinds := &s.shares.Kinds
	for i := range s.zones {
		z := &s.zones[i]
		s.shares.Zones = append(s.shares.Zones, z.ZoneShares)
		if z.kind == NotAttributed || !z.Present {
			continue
		}
		if k := &kinds[z.kind]; !z.Ended {
			k.Zones++
		}
		if z.deferred != nil {
			kinds[z.kind].Deferred += z.deferred.energy
		}
	}
	for kind := range kinds {
		kinds[kind].StandardError = -1
		if model := s.trained[kind]; model != nil {
			s.assessModel(kind, model)
		}
	}
	s.restoring = false
}

// assessModel sets the state of a kind's model over the domains that have zones of the kind. The
// errors of domains are independent.
func (s *Sharer) assessModel(kind int, model TrainedModel) {
	k := &s.shares.Kinds[kind]
	k.Model, k.StandardError = Trained, 0
	known := false
	for domain := range s.sums {
		of, _ := s.countZones(domain, kind)
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
