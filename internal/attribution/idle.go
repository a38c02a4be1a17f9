// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"cmp"
	"iter"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// carriesIdle reports whether a claimant carries idle energy under an allocation that does not go
// by use.
func (e *Engine) carriesIdle(c *claimant) bool {
	switch e.cfg.Rules.Idle {
	case IdleEqual:
		return c.pid != 0 // else it stands for processes that are gone
	case IdleEqualContainers, IdleRequested:
		return idleHolder(&c.accounts) != none
	default:
		return false
	}
}

// joinIdle adds a claimant, which has no account of its own yet, to its idle-allocation group.
func (e *Engine) joinIdle(id Claimant) {
	c := e.claimants[id]
	c.idleGroup, c.idleIndex = none, none
	if !e.carriesIdle(c) {
		return
	}
	key := c.accounts
	key[identity.ProcessEntity], key[identity.ProgramEntity] = none, none
	i, ok := e.idle.index[key]
	if !ok {
		i = e.idle.newGroup(key)
	}
	c.idleGroup, e.idle.stale = i, true
	e.idle.groups[i].count++
	e.idle.groups[i].countUnnamed(e.restOf(id), 1)
	if holder := idleHolder(&c.accounts); holder != none {
		e.ledger.accounts[holder].idleMembers++
	}
}

// leaveIdle removes a claimant from its idle-allocation group.
func (e *Engine) leaveIdle(id Claimant) {
	c := e.claimants[id]
	if c.idleGroup == none {
		return
	}
	idle := &e.idle
	group := &idle.groups[c.idleGroup]
	e.unnameIdleMember(id)
	group.countUnnamed(e.restOf(id), -1)
	if holder := idleHolder(&c.accounts); holder != none {
		e.ledger.accounts[holder].idleMembers--
	}
	if group.count--; group.count == 0 {
		delete(idle.index, group.accounts)
		group.weight = 0
		idle.unused = append(idle.unused, c.idleGroup)
	}
	c.idleGroup, idle.stale = none, true
}

// nameIdleMember has a claimant carry idle energy in its own account, which it has now.
func (e *Engine) nameIdleMember(id Claimant) {
	c := e.claimants[id]
	if account := c.accounts[identity.ProcessEntity]; c.idleGroup != none && account != none {
		group := &e.idle.groups[c.idleGroup]
		c.idleIndex = int32(len(group.named))
		group.named = append(group.named, idleMember{id, account})
		group.countUnnamed(e.restOf(id), -1)
	}
}

// unnameIdleMember moves a claimant's idle energy back to the account of its program, or of the
// other processes.
func (e *Engine) unnameIdleMember(id Claimant) {
	c := e.claimants[id]
	if c.idleIndex == none {
		return
	}
	group := &e.idle.groups[c.idleGroup]
	last := len(group.named) - 1
	group.named[c.idleIndex] = group.named[last]
	e.claimants[group.named[c.idleIndex].claimant].idleIndex = c.idleIndex
	group.named, c.idleIndex = group.named[:last], none
	group.countUnnamed(e.restOf(id), 1)
}

// shareIdle shares the idle energy of a portion. Deferred energy is carried by the processes that run
// now. Of the time before a restart it is not known which processes ran, and that may be long.
func (e *Engine) shareIdle(p Portion, idle units.Energy, u *Usage) {
	switch {
	case e.cfg.Rules.Idle == IdleNone:
	case e.cfg.Rules.Idle == IdleUsed:
		e.shareIdleByUse(p, idle, u)
	case p.restored:
		e.ledger.Kinds[p.Kind].UnattributedIdle += idle
	case u.IdleAmongClaims:
		e.shareIdleAmongClaims(p, idle, u)
	default:
		e.shareIdleAmongGroups(p, idle)
	}
}

// shareIdleByUse shares idle energy like active energy.
func (e *Engine) shareIdleByUse(p Portion, idle units.Energy, u *Usage) {
	k := &e.ledger.Kinds[p.Kind]
	b := e.basis(p.Kind, u)
	s := e.newShares(idle, u.Claims, &b)
	if s.Total == 0 {
		k.UnattributedIdle += idle
		return
	}
	for i := range u.Claims {
		claim := &u.Claims[i]
		e.addClaimIdle(p, claim, units.Energy(s.next(e.weight(b.key, claim))))
	}
	k.UnattributedIdle += units.Energy(s.next(b.unattributed))
}

// addClaimIdle adds a claim's share of idle energy.
func (e *Engine) addClaimIdle(p Portion, claim *Claim, energy units.Energy) {
	recent := e.recentPart(energy, p.Elapsed)
	accounts := e.ledger.accounts
	if claim.Claimant == NoClaimant {
		accounts[othersIndex].addIdle(p.Kind, energy, recent)
		return
	}
	process := e.claimants[claim.Claimant].accounts[identity.ProcessEntity]
	if process == none || claim.ShortLived {
		process = e.restOf(claim.Claimant)
	}
	accounts[process].addIdle(p.Kind, energy, recent)
	e.eachGroup(claim.Claimant, func(a *Account) { a.addIdle(p.Kind, energy, recent) })
}

func (e *Engine) shareIdleAmongGroups(p Portion, idle units.Energy) {
	if e.idle.stale {
		e.weighGroups()
	}
	if e.idle.weight == 0 {
		e.ledger.Kinds[p.Kind].UnattributedIdle += idle
		return
	}
	s := units.Division{Amount: uint64(idle), Total: e.idle.weight}
	for i := range e.idle.groups {
		if group := &e.idle.groups[i]; group.weight > 0 {
			e.addGroupIdle(p, group, units.Energy(s.Next(group.weight)))
		}
	}
}

// weighGroups computes the weights of the groups anew. Hardly anything that they depend on changes
// between two intervals.
func (e *Engine) weighGroups() {
	idle := &e.idle
	idle.weight, idle.stale = 0, false
	for i := range idle.groups {
		if group := &idle.groups[i]; group.count > 0 {
			group.weight = e.groupWeight(group)
			idle.weight += group.weight
		}
	}
}

func (e *Engine) groupWeight(group *idleGroup) uint64 {
	if e.cfg.Rules.Idle == IdleEqual {
		return uint64(group.count)
	}
	holder, request := &e.ledger.accounts[idleHolder(&group.accounts)], uint64(1)
	if e.cfg.Rules.Idle == IdleRequested {
		request = holder.request
	}
	return units.MulDiv(request*requestUnit, uint64(group.count), uint64(holder.idleMembers))
}

// addGroupIdle adds a group's share of idle energy to the accounts of its members and of what they
// are part of.
func (e *Engine) addGroupIdle(p Portion, group *idleGroup, energy units.Energy) {
	accounts := e.ledger.accounts
	add := func(account int32, energy units.Energy) {
		if account != none {
			accounts[account].addIdle(p.Kind, energy, e.recentPart(energy, p.Elapsed))
		}
	}
	for _, account := range group.accounts[identity.ContainerEntity:] {
		add(account, energy)
	}
	s := units.Division{Amount: uint64(energy), Total: uint64(group.count)}
	for _, n := range group.named {
		add(n.account, units.Energy(s.Next(1)))
	}
	for _, r := range group.unnamed {
		add(r.account, units.Energy(s.Next(uint64(r.count))))
	}
}

// idleClaim is a claimant that carries idle energy of a domain in which it has a claim, and the
// account of the container that the energy is given to. All have the same one where energy is not
// shared by container.
type idleClaim struct {
	holder   int32
	claimant Claimant
}

// shareIdleAmongClaims shares idle energy as among all claimants, but only among those that have a
// claim.
func (e *Engine) shareIdleAmongClaims(p Portion, idle units.Energy, u *Usage) {
	carriers := e.idleClaims(u)
	s := units.Division{Amount: uint64(idle)}
	for members := range byHolder(carriers) {
		s.Total += e.holderWeight(members)
	}
	if s.Total == 0 {
		e.ledger.Kinds[p.Kind].UnattributedIdle += idle
		return
	}
	for members := range byHolder(carriers) {
		weight := e.holderWeight(members)
		if weight == 0 {
			continue
		}
		of := units.Division{Amount: s.Next(weight), Total: uint64(len(members))}
		for _, c := range members {
			e.addClaimIdle(p, &Claim{Claimant: c.claimant}, units.Energy(of.Next(1)))
		}
	}
}

// idleClaims returns the claimants of a domain that carry idle energy, each once, by container.
func (e *Engine) idleClaims(u *Usage) []idleClaim {
	e.idle.claims = e.idle.claims[:0]
	for i := range u.Claims {
		id := u.Claims[i].Claimant
		if id == NoClaimant || e.claimants[id].idleGroup == none {
			continue
		}
		carrier := idleClaim{none, id}
		if e.cfg.Rules.Idle != IdleEqual {
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
func (e *Engine) holderWeight(members []idleClaim) uint64 {
	switch e.cfg.Rules.Idle {
	case IdleEqual:
		return uint64(len(members))
	case IdleRequested:
		return e.ledger.accounts[members[0].holder].request
	default:
		return 1
	}
}
