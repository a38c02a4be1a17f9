// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"iter"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// idleRule is the rule of an idle allocation that does not share by use.
type idleRule struct {
	// carries reports whether a claimant carries idle energy. It is nil in allocations without a
	// rule.
	carries func(*claimant) bool
	// weight returns the weight of a container. It is nil if all claimants have the same weight.
	weight func(container *Account) uint64
}

// idleRules are the rules by allocation.
var idleRules = [...]idleRule{
	attribution.IdleEqual:           {carries: isProcess},
	attribution.IdleEqualContainers: {hasIdleHolder, func(*Account) uint64 { return 1 }},
	attribution.IdleRequested:       {hasIdleHolder, func(container *Account) uint64 { return container.request }},
	attribution.IdleUsed:            {},
}

// isProcess reports whether a claimant is one process. Other claimants represent exited processes.
func isProcess(c *claimant) bool { return c.pid != 0 }

func hasIdleHolder(c *claimant) bool { return idleHolder(&c.accounts) != unset }

// joinIdle adds a claimant, which has no account of its own yet, to its idle-allocation group.
func (l *Ledger) joinIdle(id attribution.Claimant) {
	c, idle := l.claimants[id], &l.idle
	if carries := l.idleRule().carries; carries == nil || !carries(c) {
		return
	}
	for len(idle.places) <= int(id) {
		idle.places = append(idle.places, idlePlace{unset, unset})
	}
	key := c.accounts
	key[identity.ProcessEntity], key[identity.ProgramEntity] = unset, unset
	i, ok := idle.index[key]
	if !ok {
		i = idle.newGroup(key)
	}
	idle.places[id].group, idle.stale = i, true
	idle.groups[i].count++
	idle.groups[i].countUnnamed(l.restOf(id), 1)
	if holder := idleHolder(&c.accounts); holder != unset {
		l.accounts[holder].idleMembers++
	}
}

// leaveIdle removes a claimant from its idle-allocation group.
func (l *Ledger) leaveIdle(id attribution.Claimant) {
	c, idle := l.claimants[id], &l.idle
	i := idle.placeOf(id).group
	if i == unset {
		return
	}
	group := &idle.groups[i]
	l.unnameIdleMember(id)
	group.countUnnamed(l.restOf(id), -1)
	if holder := idleHolder(&c.accounts); holder != unset {
		l.accounts[holder].idleMembers--
	}
	if group.count--; group.count == 0 {
		delete(idle.index, group.accounts)
		group.weight = 0
		idle.unused = append(idle.unused, i)
	}
	idle.places[id].group, idle.stale = unset, true
}

// nameIdleMember makes a claimant carry idle energy in the account of its process, if it has one.
func (l *Ledger) nameIdleMember(id attribution.Claimant) {
	account, i := l.claimants[id].accounts[identity.ProcessEntity], l.idle.placeOf(id).group
	if i == unset || account == unset {
		return
	}
	group := &l.idle.groups[i]
	l.idle.places[id].index = int32(len(group.named))
	group.named = append(group.named, idleMember{id, account})
	group.countUnnamed(l.restOf(id), -1)
}

// unnameIdleMember moves a claimant's idle energy back to the account of its program, or of the
// other processes.
func (l *Ledger) unnameIdleMember(id attribution.Claimant) {
	place := l.idle.placeOf(id)
	if place.index == unset {
		return
	}
	group := &l.idle.groups[place.group]
	last := len(group.named) - 1
	group.named[place.index] = group.named[last]
	l.idle.places[group.named[place.index].claimant].index = place.index
	group.named, l.idle.places[id].index = group.named[:last], unset
	group.countUnnamed(l.restOf(id), 1)
}

// addIdle adds idle energy to the accounts of claimants and of their workloads.
func (l *Ledger) addIdle(s *attribution.Shares) {
	for row := range s.Claimants {
		of, idle := &s.Claimants[row], s.IdleByUse(row)
		if idle == nil {
			break
		}
		l.addClaimIdle(of.Claimant, of.ShortLived, 0, idle)
	}
	for i := range s.Idle {
		if p := &s.Idle[i]; p.AmongAll {
			l.shareIdleAmongGroups(p)
		} else {
			l.shareIdleAmongClaims(p)
		}
	}
}

// addClaimIdle adds idle energy to the accounts of a claimant, or of its short-lived processes.
// idle[i] belongs to the kind first+i.
func (l *Ledger) addClaimIdle(id attribution.Claimant, shortLived bool, first int, idle []attribution.Share) {
	process := l.restOf(id)
	if id != attribution.NoClaimant && !shortLived && l.claimants[id].accounts[identity.ProcessEntity] != unset {
		process = l.claimants[id].accounts[identity.ProcessEntity]
	}
	l.accounts[process].addIdle(first, idle...)
	l.eachGroup(id, func(a *Account) { a.addIdle(first, idle...) })
}

// partOf returns energy of an idle portion as a Share, which also contains the part of the energy
// that belongs to the current collection.
func (l *Ledger) partOf(p *attribution.IdlePortion, energy uint64) attribution.Share {
	return attribution.ShareOf(units.Energy(energy), p.Elapsed, l.Elapsed)
}

// shareIdleAmongGroups shares idle energy among all groups of claimants.
func (l *Ledger) shareIdleAmongGroups(p *attribution.IdlePortion) {
	if l.idle.stale {
		l.weighGroups()
	}
	if l.idle.weight == 0 {
		l.Kinds[p.Kind].UnattributedIdle += p.Energy
		return
	}
	s := units.Division{Amount: uint64(p.Energy), Total: l.idle.weight}
	for i := range l.idle.groups {
		if group := &l.idle.groups[i]; group.weight > 0 {
			l.addGroupIdle(p, group, s.Next(group.weight))
		}
	}
}

// weighGroups computes the weights of the groups again. It is called only after changes, because
// the weights rarely change between two intervals.
func (l *Ledger) weighGroups() {
	idle := &l.idle
	idle.weight, idle.stale = 0, false
	for i := range idle.groups {
		if group := &idle.groups[i]; group.count > 0 {
			group.weight = l.groupWeight(group)
			idle.weight += group.weight
		}
	}
}

// idleRule returns the rule in effect.
func (l *Ledger) idleRule() *idleRule { return &idleRules[l.cfg.Rules.Idle] }

// groupWeight returns the weight of the members of a group together. The groups of a container
// share the weight of the container.
func (l *Ledger) groupWeight(group *idleGroup) uint64 {
	weight := l.idleRule().weight
	if weight == nil {
		return uint64(group.count)
	}
	container := &l.accounts[idleHolder(&group.accounts)]
	return units.MulDiv(weight(container)*requestUnit, uint64(group.count), uint64(container.idleMembers))
}

// addGroupIdle adds a group's share of idle energy to the accounts of its members and of the
// entities that contain them.
func (l *Ledger) addGroupIdle(p *attribution.IdlePortion, group *idleGroup, energy uint64) {
	accounts := l.accounts
	add := func(account int32, energy uint64) {
		if account != unset {
			accounts[account].addIdle(p.Kind, l.partOf(p, energy))
		}
	}
	for _, account := range group.accounts[identity.ContainerEntity:] {
		add(account, energy)
	}
	s := units.Division{Amount: energy, Total: uint64(group.count)}
	for _, n := range group.named {
		add(n.account, s.Next(1))
	}
	for _, r := range group.unnamed {
		add(r.account, s.Next(uint64(r.count)))
	}
}

// idleClaim is a claimant that carries idle energy of a domain because it has a claim there, and
// the account of the container that receives the energy. All idleClaims have the same account if
// energy is not shared by container.
type idleClaim struct {
	holder   int32
	claimant attribution.Claimant
}

// shareIdleAmongClaims shares idle energy among the claimants of a portion, by the same rule as
// among all claimants.
func (l *Ledger) shareIdleAmongClaims(p *attribution.IdlePortion) {
	carriers := l.idleClaims(p.Among)
	s := units.Division{Amount: uint64(p.Energy)}
	for members := range byHolder(carriers) {
		s.Total += l.holderWeight(members)
	}
	if s.Total == 0 {
		l.Kinds[p.Kind].UnattributedIdle += p.Energy
		return
	}
	for members := range byHolder(carriers) {
		weight := l.holderWeight(members)
		if weight == 0 {
			continue
		}
		of := units.Division{Amount: s.Next(weight), Total: uint64(len(members))}
		for _, c := range members {
			l.addClaimIdle(c.claimant, false, p.Kind, []attribution.Share{l.partOf(p, of.Next(1))})
		}
	}
}

// idleClaims returns the given claimants that carry idle energy, each once, sorted by container.
func (l *Ledger) idleClaims(among []attribution.Claimant) []idleClaim {
	l.idle.claims = l.idle.claims[:0]
	for _, id := range among {
		if l.idle.placeOf(id).group == unset {
			continue
		}
		carrier := idleClaim{unset, id}
		if l.idleRule().weight != nil {
			carrier.holder = idleHolder(&l.claimants[id].accounts)
		}
		l.idle.claims = append(l.idle.claims, carrier)
	}
	slices.SortFunc(l.idle.claims, func(a, b idleClaim) int {
		return cmp.Or(cmp.Compare(a.holder, b.holder), cmp.Compare(a.claimant, b.claimant))
	})
	return slices.Compact(l.idle.claims)
}

// byHolder calls yield with the claimants of each container.
func byHolder(claims []idleClaim) iter.Seq[[]idleClaim] {
	return func(yield func([]idleClaim) bool) {
		for len(claims) > 0 {
			n := 1
			for n < len(claims) && claims[n].holder == claims[0].holder {
				n++
			}
			if !yield(claims[:n]) {
				return
			}
			claims = claims[n:]
		}
	}
}

// holderWeight returns the weight of the claimants of a container together.
func (l *Ledger) holderWeight(members []idleClaim) uint64 {
	weight := l.idleRule().weight
	if weight == nil {
		return uint64(len(members))
	}
	return weight(&l.accounts[members[0].holder])
}
