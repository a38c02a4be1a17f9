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

// carriesIdle reports whether a claimant carries idle energy under an allocation that does not go
// by use.
func (e *Ledger) carriesIdle(c *claimant) bool {
	switch e.cfg.Rules.Idle {
	case attribution.IdleEqual:
		return c.pid != 0 // else it stands for processes that are gone
	case attribution.IdleEqualContainers, attribution.IdleRequested:
		return idleHolder(&c.accounts) != none
	default:
		return false
	}
}

// joinIdle adds a claimant, which has no account of its own yet, to its idle-allocation group.
func (e *Ledger) joinIdle(id attribution.Claimant) {
	c, idle := e.claimants[id], &e.idle
	if !e.carriesIdle(c) {
		return
	}
	for len(idle.places) <= int(id) {
		idle.places = append(idle.places, idlePlace{none, none})
	}
	key := c.accounts
	key[identity.ProcessEntity], key[identity.ProgramEntity] = none, none
	i, ok := idle.index[key]
	if !ok {
		i = idle.newGroup(key)
	}
	idle.places[id].group, idle.stale = i, true
	idle.groups[i].count++
	idle.groups[i].countUnnamed(e.restOf(id), 1)
	if holder := idleHolder(&c.accounts); holder != none {
		e.ledger.accounts[holder].idleMembers++
	}
}

// leaveIdle removes a claimant from its idle-allocation group.
func (e *Ledger) leaveIdle(id attribution.Claimant) {
	c, idle := e.claimants[id], &e.idle
	i := idle.placeOf(id).group
	if i == none {
		return
	}
	group := &idle.groups[i]
	e.unnameIdleMember(id)
	group.countUnnamed(e.restOf(id), -1)
	if holder := idleHolder(&c.accounts); holder != none {
		e.ledger.accounts[holder].idleMembers--
	}
	if group.count--; group.count == 0 {
		delete(idle.index, group.accounts)
		group.weight = 0
		idle.unused = append(idle.unused, i)
	}
	idle.places[id].group, idle.stale = none, true
}

// nameIdleMember has a claimant carry idle energy in its own account, which it has now.
func (e *Ledger) nameIdleMember(id attribution.Claimant) {
	account, i := e.claimants[id].accounts[identity.ProcessEntity], e.idle.placeOf(id).group
	if i == none || account == none {
		return
	}
	group := &e.idle.groups[i]
	e.idle.places[id].index = int32(len(group.named))
	group.named = append(group.named, idleMember{id, account})
	group.countUnnamed(e.restOf(id), -1)
}

// unnameIdleMember moves a claimant's idle energy back to the account of its program, or of the
// other processes.
func (e *Ledger) unnameIdleMember(id attribution.Claimant) {
	place := e.idle.placeOf(id)
	if place.index == none {
		return
	}
	group := &e.idle.groups[place.group]
	last := len(group.named) - 1
	group.named[place.index] = group.named[last]
	e.idle.places[group.named[place.index].claimant].index = place.index
	group.named, e.idle.places[id].index = group.named[:last], none
	group.countUnnamed(e.restOf(id), 1)
}

// addIdle adds idle energy to the accounts of claimants and of what they are part of.
func (e *Ledger) addIdle(s *attribution.Shares) {
	for row := range s.Claimants {
		of := &s.Claimants[row]
		for kind, idle := range s.IdleByUse(row) {
			e.addClaimIdle(of.Claimant, of.ShortLived, kind, idle)
		}
	}
	for i := range s.Idle {
		if p := &s.Idle[i]; p.AmongAll {
			e.shareIdleAmongGroups(p)
		} else {
			e.shareIdleAmongClaims(p)
		}
	}
}

// addClaimIdle adds idle energy to the accounts of a claimant, or of the short-lived processes of
// one.
func (e *Ledger) addClaimIdle(id attribution.Claimant, shortLived bool, kind int, idle attribution.Share) {
	process := e.restOf(id)
	if id != attribution.NoClaimant && !shortLived && e.claimants[id].accounts[identity.ProcessEntity] != none {
		process = e.claimants[id].accounts[identity.ProcessEntity]
	}
	e.ledger.accounts[process].addIdle(kind, idle)
	e.eachGroup(id, func(a *Account) { a.addIdle(kind, idle) })
}

// partOf returns a part of an idle portion, with the part of it that belongs to the current
// collection.
func (e *Ledger) partOf(p *attribution.IdlePortion, energy uint64) attribution.Share {
	return attribution.ShareOf(units.Energy(energy), p.Elapsed, e.ledger.Elapsed)
}

// shareIdleAmongGroups shares idle energy among all groups of claimants.
func (e *Ledger) shareIdleAmongGroups(p *attribution.IdlePortion) {
	if e.idle.stale {
		e.weighGroups()
	}
	if e.idle.weight == 0 {
		e.ledger.Kinds[p.Kind].UnattributedIdle += p.Energy
		return
	}
	s := units.Division{Amount: uint64(p.Energy), Total: e.idle.weight}
	for i := range e.idle.groups {
		if group := &e.idle.groups[i]; group.weight > 0 {
			e.addGroupIdle(p, group, s.Next(group.weight))
		}
	}
}

// weighGroups computes the weights of the groups anew. Hardly anything that they depend on changes
// between two intervals.
func (e *Ledger) weighGroups() {
	idle := &e.idle
	idle.weight, idle.stale = 0, false
	for i := range idle.groups {
		if group := &idle.groups[i]; group.count > 0 {
			group.weight = e.groupWeight(group)
			idle.weight += group.weight
		}
	}
}

func (e *Ledger) groupWeight(group *idleGroup) uint64 {
	if e.cfg.Rules.Idle == attribution.IdleEqual {
		return uint64(group.count)
	}
	holder, request := &e.ledger.accounts[idleHolder(&group.accounts)], uint64(1)
	if e.cfg.Rules.Idle == attribution.IdleRequested {
		request = holder.request
	}
	return units.MulDiv(request*requestUnit, uint64(group.count), uint64(holder.idleMembers))
}

// addGroupIdle adds a group's share of idle energy to the accounts of its members and of what they
// are part of.
func (e *Ledger) addGroupIdle(p *attribution.IdlePortion, group *idleGroup, energy uint64) {
	accounts := e.ledger.accounts
	add := func(account int32, energy uint64) {
		if account != none {
			accounts[account].addIdle(p.Kind, e.partOf(p, energy))
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

// idleClaim is a claimant that carries idle energy of a domain in which it has a claim, and the
// account of the container that the energy is given to. All have the same one where energy is not
// shared by container.
type idleClaim struct {
	holder   int32
	claimant attribution.Claimant
}

// shareIdleAmongClaims shares idle energy as among all claimants, but only among those that have a
// claim.
func (e *Ledger) shareIdleAmongClaims(p *attribution.IdlePortion) {
	carriers := e.idleClaims(p.Among)
	s := units.Division{Amount: uint64(p.Energy)}
	for members := range byHolder(carriers) {
		s.Total += e.holderWeight(members)
	}
	if s.Total == 0 {
		e.ledger.Kinds[p.Kind].UnattributedIdle += p.Energy
		return
	}
	for members := range byHolder(carriers) {
		weight := e.holderWeight(members)
		if weight == 0 {
			continue
		}
		of := units.Division{Amount: s.Next(weight), Total: uint64(len(members))}
		for _, c := range members {
			e.addClaimIdle(c.claimant, false, p.Kind, e.partOf(p, of.Next(1)))
		}
	}
}

// idleClaims returns the claimants among some that carry idle energy, each once, by container.
func (e *Ledger) idleClaims(among []attribution.Claimant) []idleClaim {
	e.idle.claims = e.idle.claims[:0]
	for _, id := range among {
		if e.idle.placeOf(id).group == none {
			continue
		}
		carrier := idleClaim{none, id}
		if e.cfg.Rules.Idle != attribution.IdleEqual {
			carrier.holder = idleHolder(&e.claimants[id].accounts)
		}
		e.idle.claims = append(e.idle.claims, carrier)
	}
	slices.SortFunc(e.idle.claims, func(a, b idleClaim) int {
		return cmp.Or(cmp.Compare(a.holder, b.holder), cmp.Compare(a.claimant, b.claimant))
	})
	return slices.Compact(e.idle.claims)
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

// holderWeight returns what the claimants of a container weigh together.
func (e *Ledger) holderWeight(members []idleClaim) uint64 {
	switch e.cfg.Rules.Idle {
	case attribution.IdleEqual:
		return uint64(len(members))
	case attribution.IdleRequested:
		return e.ledger.accounts[members[0].holder].request
	default:
		return 1
	}
}
