// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"math/bits"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// attribute divides a portion into active and idle energy, and shares both among the users of its
// domain. Portion.Of and Portion.OfAll are filled in here.
func (s *Sharer) attribute(p Portion, u *Usage) {
	p.Of, p.OfAll = s.countZones(p.Domain, p.Kind)
	p.restored = p.restored || s.restoring
	p.deficit = s.deficitOf(&p)
	p.Partial = p.Partial || u.Assumed || p.restored
	if s.excludes {
		busy := p.Busy
		p.Busy = units.Advance(s.excludedCPU(u, busy), busy)
		p.Excluded = busy - p.Busy
	}
	active := s.activePart(p)
	idle := p.Energy - active
	k := &s.shares.Kinds[p.Kind]
	k.Active.add(ShareOf(active, p.Elapsed, s.collected))
	k.Idle.add(ShareOf(idle, p.Elapsed, s.collected))
	k.Covered, k.Changed = max(k.Covered, p.Elapsed), true
	s.shareIdle(p, idle, u)
	s.shareActive(p, active, u)
}

// activePart returns the active part of a portion under the model of its kind.
func (s *Sharer) activePart(p Portion) units.Energy {
	if model := s.rules.Models[p.Kind]; model != nil {
		return min(model.Active(p), p.Energy)
	}
	return ByUtilization(p)
}

// shareActive shares active energy in proportion to the attribution weight.
func (s *Sharer) shareActive(p Portion, active units.Energy, u *Usage) {
	t := &s.shares.table
	s.shares.Kinds[p.Kind].Unattributed += s.shareByUse(p, active, u, &t.active, p.Domain > 0 && p.Domain <= t.parts)
}

// shareIdle shares the idle energy of a portion. Idle energy that was deferred is carried by the
// processes that run now. If idle energy is not shared by use, the idle energy of the time before a
// restart is unattributed, because this time may be long and its processes are not recorded.
func (s *Sharer) shareIdle(p Portion, idle units.Energy, u *Usage) {
	sh := &s.shares
	switch {
	case s.rules.Idle == IdleNone:
	case s.rules.Idle == IdleUsed:
		sh.Kinds[p.Kind].UnattributedIdle += s.shareByUse(p, idle, u, &sh.table.idle, false)
	case p.restored:
		sh.Kinds[p.Kind].UnattributedIdle += idle
	default:
		portion := IdlePortion{Kind: p.Kind, Energy: idle, Elapsed: p.Elapsed, AmongAll: !u.IdleAmongClaims}
		if u.IdleAmongClaims {
			portion.Among = sh.claimantsOf(u.Claims)
		}
		sh.Idle = append(sh.Idle, portion)
	}
}

// shareByUse shares energy of a portion among the claims of its domain in proportion to the
// attribution weight, and returns the energy that belongs to no claimant. The shares are added to
// the rows in to, and to the parts of the domain if hasPart is set.
func (s *Sharer) shareByUse(p Portion, energy units.Energy, u *Usage, to *[]Share, hasPart bool) units.Energy {
	b := s.basis(p.Kind, u)
	d := s.newShares(energy, u.Claims, &b)
	if d.Total == 0 {
		return energy
	}
	t := &s.shares.table
	for i := range u.Claims {
		claim := &u.Claims[i]
		share, row := units.Energy(d.next(s.weight(b.key, claim))), s.shares.row(claim)
		(*to)[row*t.kinds+p.Kind].add(ShareOf(share, p.Elapsed, s.collected))
		if hasPart {
			t.partActive[(row*t.parts+p.Domain-1)*t.kinds+p.Kind] += share
		}
	}
	return units.Energy(d.next(b.unattributed))
}

// countZones returns the number of zones of a kind that were ever read in a domain, and in all
// domains, without superseded zones.
func (s *Sharer) countZones(domain, kind int) (of, ofAll int) {
	for i := range s.zones {
		if z := &s.zones[i]; z.Present && !z.superseded && z.kind == kind {
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
	key          Weight
	unattributed uint64 // weight that has no owner
}

// basis returns the attribution weight in effect for a kind, and the unattributed share of its
// total weight.
func (s *Sharer) basis(kind int, u *Usage) basis {
	key, unattributed := s.rules.Keys[kind], uint64(u.Unattributed)
	if key == ByCPUTime || u.Unweighed[key-ByFirstWeight] {
		return basis{ByCPUTime, unattributed}
	}
	var sum, cpu uint64
	for i := range u.Claims {
		sum = units.AddSaturating(sum, s.weight(key, &u.Claims[i]))
		cpu = units.AddSaturating(cpu, s.weight(ByCPUTime, &u.Claims[i]))
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

// weight returns an attribution weight of a claim, 0 for a claimant that is excluded.
func (s *Sharer) weight(key Weight, claim *Claim) uint64 {
	if s.isExcluded(claim) {
		return 0
	}
	return claim.weight(key)
}

func (s *Sharer) isExcluded(claim *Claim) bool {
	return s.excludes && claim.Claimant != NoClaimant && s.users[claim.Claimant].excluded
}

// excludedCPU returns the part of a domain's busy time that excluded claimants used. The claims on
// a GPU may add up to more than its busy time, because several engines work at once. They are then
// scaled down.
func (s *Sharer) excludedCPU(u *Usage, busy units.CPUTime) units.CPUTime {
	all, excluded := u.Unattributed, units.CPUTime(0)
	for i := range u.Claims {
		claim := &u.Claims[i]
		all = units.AddSaturating(all, claim.CPU)
		if s.isExcluded(claim) {
			excluded = units.AddSaturating(excluded, claim.CPU)
		}
	}
	if u.IdleAmongClaims && all > busy {
		return units.CPUTime(units.MulDiv(uint64(excluded), uint64(busy), uint64(all)))
	}
	return excluded
}

// ShareOf returns energy that was used over elapsed. Its recent part belongs to a collection, which
// is the last part of the time.
func ShareOf(energy units.Energy, elapsed, collection time.Duration) Share {
	if elapsed <= collection {
		return Share{energy, energy}
	}
	return Share{energy, units.Energy(units.MulDiv(uint64(energy), uint64(collection), uint64(elapsed)))}
}

// weighted divides an amount in proportion to weights.
type weighted struct {
	units.Division
	shift uint // scales weights down, as Total already is
}

// newShares prepares to share an amount among claims. If the sum of the weights does not fit into
// 64 bits, all weights are scaled down by the same factor. For example, a kernel may report
// centuries of CPU time.
func (s *Sharer) newShares(amount units.Energy, claims []Claim, b *basis) weighted {
	for shift := uint(0); ; shift += 16 {
		total, overflow := b.unattributed>>shift, uint64(0)
		for i := range claims {
			var carry uint64
			total, carry = bits.Add64(total, s.weight(b.key, &claims[i])>>shift, 0)
			overflow |= carry
		}
		if overflow == 0 {
			return weighted{units.Division{Amount: uint64(amount), Total: total}, shift}
		}
	}
}

// next returns the share of the next weight.
func (s *weighted) next(weight uint64) uint64 { return s.Next(weight >> s.shift) }

// deficitOf returns the deficit of a portion's domain and kind, or nil if the portion neither
// causes nor pays a deficit (see Portion.Above).
func (s *Sharer) deficitOf(p *Portion) *units.Energy {
	if !p.late || p.Partial || p.restored || p.Elapsed <= 0 {
		return nil
	}
	for len(s.deficits) <= p.Domain {
		s.deficits = append(s.deficits, deficits{})
	}
	d := &s.deficits[p.Domain][p.Kind]
	if p.Elapsed > maxCarried {
		*d = 0
		return nil
	}
	return d
}
