// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// span is the node's CPU time over some intervals, without those who used it.
type span struct {
	busy    units.CPUTime
	total   units.CPUTime
	unowned units.CPUTime
	elapsed time.Duration
	// unweighed are the weights of which nothing is known in some of the intervals.
	unweighed [Weights]bool
}

func (s *span) add(o span) {
	s.busy += o.busy
	s.total += o.total
	s.unowned = units.AddSaturating(s.unowned, o.unowned)
	s.elapsed += o.elapsed
	for i, unweighed := range o.unweighed {
		s.unweighed[i] = s.unweighed[i] || unweighed
	}
}

// addUnnamed adds a span with its claims, of which nobody will be known.
func (s *span) addUnnamed(o span, claims []Claim) {
	s.add(o)
	for _, claim := range claims {
		s.unowned = units.AddSaturating(s.unowned, claim.CPU)
	}
}

// span is the CPU time of the interval, of which its claims are not a part.
func (iv *Interval) span() span {
	return span{iv.Busy, iv.Total, iv.Unowned, iv.Elapsed, iv.Unweighed}
}

// lag is what a zone that could not be read or split has coming: its energy, and the CPU time by which it
// will be shared, of the same intervals.
type lag struct {
	span
	energy  units.Energy
	claims  []Claim
	index   map[lagKey]int // of claims
	settled bool
}

type lagKey struct {
	claimant Claimant
	unseen   bool
}

// A lag remembers those who ended for so long and up to so many: beyond that, what they would have earned
// goes to the others, so that a zone that fails for good keeps no dead series alive.
const (
	maxLag       = 5 * time.Minute
	maxLagClaims = 16384
)

// portionOf is what a zone has coming.
func (e *Engine) portionOf(z *Zone, g *lag) Portion {
	return Portion{
		Kind: z.kind, Energy: g.energy, Busy: g.busy, Total: g.total, Elapsed: g.elapsed, Zones: 1, Of: e.zonesOf(z.kind),
	}
}

// wait adds an interval to what the zone has coming.
func (e *Engine) wait(z *Zone, energy units.Energy, iv *Interval) {
	if z.lag == nil {
		z.lag = &lag{span: z.absence, index: map[lagKey]int{}}
		z.absence = span{}
	}
	g := z.lag
	g.energy += energy
	g.span.add(iv.span())
	for _, claim := range iv.Claims {
		if claim.nothing() {
			continue
		}
		if g.add(claim) && claim.Claimant != Nobody {
			e.claimants[claim.Claimant].holds++
		}
	}
	if len(g.claims) > maxLagClaims || g.elapsed > maxLag {
		e.forgetEnded(g)
	}
}

// giveUp settles what a zone has coming that is no longer among the readings: what was read of its energy
// is shared by what is known. Of the time that nothing was read of, only the CPU time is remembered: should
// the zone return, its energy meanwhile is not billed to those who run then.
func (e *Engine) giveUp(z *Zone, iv *Interval) {
	z.Unread += iv.Elapsed
	z.Ended = true
	if z.kind == NotAttributed {
		return
	}
	z.absence.addUnnamed(iv.span(), iv.Claims)
	g := z.lag
	if g == nil {
		return
	}
	g.settled = true
	if g.energy == 0 {
		z.absence.addUnnamed(g.span, g.claims)
		return
	}
	if g.total > 0 {
		p := e.portionOf(z, g)
		p.Partial = true
		e.attribute(p, g.claims, &g.span)
		return
	}
	k := &e.ledger.Kinds[z.kind]
	k.Active += g.energy
	k.Unattributed += g.energy
}

// add merges a claim; fresh says that the lag had none of this claimant yet.
func (g *lag) add(claim Claim) (fresh bool) {
	key := lagKey{claim.Claimant, claim.Unseen}
	if i, ok := g.index[key]; ok {
		g.claims[i].merge(&claim)
		return false
	}
	g.index[key] = len(g.claims)
	g.claims = append(g.claims, claim)
	return true
}

// forgetEnded makes the claims of those who ended nobody's.
func (e *Engine) forgetEnded(g *lag) {
	claims := g.claims
	g.claims = make([]Claim, 0, len(claims))
	clear(g.index)
	for _, claim := range claims {
		if claim.Claimant != Nobody && !e.claimants[claim.Claimant].open {
			e.letGo(claim.Claimant)
			claim.Claimant, claim.Unseen = Nobody, true
		}
		g.add(claim)
	}
}

// dropSettledLag forgets a lag whose energy was attributed in this interval. It must follow settle: a
// claimant that ended is only released with its last credit booked.
func (e *Engine) dropSettledLag(z *Zone) {
	if z.lag == nil || !z.lag.settled {
		return
	}
	for _, claim := range z.lag.claims {
		if claim.Claimant != Nobody {
			e.letGo(claim.Claimant)
		}
	}
	z.lag = nil
}

func (e *Engine) letGo(id Claimant) {
	e.claimants[id].holds--
	e.releaseIfDone(id)
}
