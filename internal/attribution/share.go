// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"math/bits"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// attribute divides a portion into active and idle energy, and shares both among the users of its
// domain. Portion.Of and Portion.OfAll are filled in here.
func (e *Engine) attribute(p Portion, u *Usage) {
	p.Of, p.OfAll = e.countZones(p.Domain, p.Kind)
	p.restored = p.restored || e.restoring
	p.deficit = e.deficitOf(&p)
	p.Partial = p.Partial || u.Assumed || p.restored
	if e.excludes {
		busy := p.Busy
		p.Busy = units.Advance(e.excludedCPU(u, busy), busy)
		p.Excluded = busy - p.Busy
	}
	active := e.activePart(p)
	idle := p.Energy - active
	k := &e.ledger.Kinds[p.Kind]
	k.Active += active
	k.Idle += idle
	k.RecentActive += e.recentPart(active, p.Elapsed)
	k.RecentIdle += e.recentPart(idle, p.Elapsed)
	k.covered, k.changed = max(k.covered, p.Elapsed), true
	e.shareIdle(p, idle, u)
	e.shareActive(p, active, u)
}

// activePart returns the active part of a portion under the model of its kind.
func (e *Engine) activePart(p Portion) units.Energy {
	if model := e.cfg.Rules.Models[p.Kind]; model != nil {
		return min(model.Active(p), p.Energy)
	}
	return ByUtilization(p)
}

// shareActive shares active energy in proportion to the allocation key.
func (e *Engine) shareActive(p Portion, active units.Energy, u *Usage) {
	k := &e.ledger.Kinds[p.Kind]
	b := e.basis(p.Kind, u)
	s := e.newShares(active, u.Claims, &b)
	if s.Total == 0 {
		k.Unattributed += active
		return
	}
	for i := range u.Claims {
		claim := &u.Claims[i]
		share := units.Energy(s.next(e.weight(b.key, claim)))
		recent := e.recentPart(share, p.Elapsed)
		if claim.ShortLived {
			e.ledger.accounts[e.restOf(claim.Claimant)].add(p.Kind, share, recent)
			e.eachGroup(claim.Claimant, func(a *Account) { a.add(p.Kind, share, recent) })
			continue
		}
		c := e.touch(claim.Claimant)
		g := &e.gainsOf(c)[p.Kind]
		g.energy += share
		g.recent += recent
		if e.parts.has(p.Domain) {
			e.parts.addEnergy(c, p.Domain, p.Kind, e.kinds, share)
		}
	}
	k.Unattributed += units.Energy(s.next(b.unattributed))
}

// countZones returns how many zones of a kind were ever read in a domain, and in all domains,
// without those that others have taken the place of.
func (e *Engine) countZones(domain, kind int) (of, ofAll int) {
	for i := range e.ledger.Zones {
		if z := &e.ledger.Zones[i]; z.Present && !z.superseded && z.kind == kind {
			ofAll++
			if z.domain == domain {
				of++
			}
		}
	}
	return of, ofAll
}

// basis holds the weight in effect and the weight of unattributed time.
type basis struct {
	key          AllocationKey
	unattributed uint64 // weight that has no owner
}

// basis returns the allocation key in effect for a kind, and the unattributed share of its total
// weight.
func (e *Engine) basis(kind int, u *Usage) basis {
	key, unattributed := e.cfg.Rules.Keys[kind], uint64(u.Unattributed)
	if key == ByCPUTime || u.Unweighed[key-ByFirstWeight] {
		return basis{ByCPUTime, unattributed}
	}
	var sum, cpu uint64
	for i := range u.Claims {
		sum = units.AddSaturating(sum, e.weight(key, &u.Claims[i]))
		cpu = units.AddSaturating(cpu, e.weight(ByCPUTime, &u.Claims[i]))
	}
	weighs := uint64(units.Advance(u.Weightless[key-ByFirstWeight], u.Unattributed))
	if a := u.Averages[key-ByFirstWeight]; a.CPU > 0 && sum > 0 {
		return basis{key, units.MulDiv(weighs, a.Weight, uint64(a.CPU))}
	}
	if sum == 0 || cpu == 0 && weighs > 0 {
		return basis{ByCPUTime, unattributed}
	}
	return basis{key, units.MulDiv(weighs, sum, cpu)}
}

// weight returns a claim's weight under an allocation key, 0 for a claimant that is excluded.
func (e *Engine) weight(key AllocationKey, claim *Claim) uint64 {
	if e.isExcluded(claim) {
		return 0
	}
	return claim.weight(key)
}

func (e *Engine) isExcluded(claim *Claim) bool {
	return e.excludes && claim.Claimant != NoClaimant && e.claimants[claim.Claimant].excluded
}

// excludedCPU returns the part of a domain's busy time that excluded claimants used. Where claims
// are of more than that time, as where several engines of a GPU work at once, each counts for as
// much less.
func (e *Engine) excludedCPU(u *Usage, busy units.CPUTime) units.CPUTime {
	all, excluded := u.Unattributed, units.CPUTime(0)
	for i := range u.Claims {
		claim := &u.Claims[i]
		all = units.AddSaturating(all, claim.CPU)
		if e.isExcluded(claim) {
			excluded = units.AddSaturating(excluded, claim.CPU)
		}
	}
	if u.IdleAmongClaims && all > busy {
		return units.CPUTime(units.MulDiv(uint64(excluded), uint64(busy), uint64(all)))
	}
	return excluded
}

// recentPart returns how much of the energy that was used over elapsed belongs to the current
// collection.
func (e *Engine) recentPart(energy units.Energy, elapsed time.Duration) units.Energy {
	if elapsed <= e.ledger.Elapsed {
		return energy
	}
	return units.Energy(units.MulDiv(uint64(energy), uint64(e.ledger.Elapsed), uint64(elapsed)))
}

// shares divides an amount in proportion to weights.
type shares struct {
	units.Division
	shift uint // scales weights down, as Total already is
}

// newShares prepares to share an amount among claims. Where the sum of the weights does not fit
// into 64 bits, all of them are scaled down alike: a kernel or a file may report centuries of CPU
// time.
func (e *Engine) newShares(amount units.Energy, claims []Claim, b *basis) shares {
	for shift := uint(0); ; shift += 16 {
		total, overflow := b.unattributed>>shift, uint64(0)
		for i := range claims {
			var carry uint64
			total, carry = bits.Add64(total, e.weight(b.key, &claims[i])>>shift, 0)
			overflow |= carry
		}
		if overflow == 0 {
			return shares{units.Division{Amount: uint64(amount), Total: total}, shift}
		}
	}
}

// next returns the share of the next weight.
func (s *shares) next(weight uint64) uint64 { return s.Next(weight >> s.shift) }

// deficitOf returns the deficit of a portion's domain and kind, nil if the portion has none (see
// Portion.Above).
func (e *Engine) deficitOf(p *Portion) *units.Energy {
	if !p.late || p.Partial || p.restored || p.Elapsed <= 0 {
		return nil
	}
	for len(e.deficits) <= p.Domain {
		e.deficits = append(e.deficits, deficits{})
	}
	d := &e.deficits[p.Domain][p.Kind]
	if p.Elapsed > maxCarried {
		*d = 0
		return nil
	}
	return d
}
