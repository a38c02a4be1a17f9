// SPDX-License-Identifier: Apache-2.0

package attribution

import "github.com/energyreceiver/energyreceiver/internal/units"

const (
	// maxSize bounds the size of a container, so that no sum of sizes overflows, of a quarter of a million.
	maxSize = 1 << 20
	// sizeUnit is the weight of a size of 1, which the processes of a container share, rounded down where not all of
	// them are in the same virtual machine: so large that it does not show.
	sizeUnit = 1 << 26
)

// idleSharing is who carries idle energy under a rule that does not go by use.
type idleSharing struct {
	sets    []carriers
	index   map[[numEntities]int32]int32 // sets by their accounts
	unused  []int32                      // sets that are empty
	weight  uint64                       // of all sets
	reweigh bool                         // something that weights depend on has changed
}

// carriers are processes that are part of the same container, pod and virtual machine. Each carries the same.
type carriers struct {
	accounts [numEntities]int32 // of what they are part of; none of a process
	count    int32
	named    []namedCarrier // those that have an account of their own
	weight   uint64         // what they carry together is in proportion to
}

type namedCarrier struct {
	claimant Claimant
	account  int32
}

// holder is the account of the container that a claimant has its part of idle energy from: of its container, virtual
// machine or pod, the first that it has.
func (c *claimant) holder() int32 { return holderOf(&c.accounts) }

func holderOf(accounts *[numEntities]int32) int32 {
	for _, entity := range [...]Entity{Container, VM, Pod} {
		if account := accounts[entity]; account != none {
			return account
		}
	}
	return none
}

// carries says whether a claimant may carry idle energy under a rule that does not go by use.
func (e *Engine) carries(c *claimant) bool {
	switch e.cfg.Rules.Idle {
	case IdleEqual:
		return c.owner.Process.PID != 0 // else it stands for processes that are gone
	case IdleEqualContainers, IdleRequested:
		return c.holder() != none
	default:
		return false
	}
}

// startCarrying has a claimant carry idle energy if the rule says so.
func (e *Engine) startCarrying(c *claimant) {
	c.carriers, c.place = none, none
	if !e.carries(c) {
		return
	}
	idle, key := &e.idle, c.accounts
	key[Process] = none
	i, ok := idle.index[key]
	if !ok {
		if n := len(idle.unused); n > 0 {
			i, idle.unused = idle.unused[n-1], idle.unused[:n-1]
		} else {
			i = int32(len(idle.sets))
			idle.sets = append(idle.sets, carriers{})
		}
		idle.sets[i].accounts, idle.index[key] = key, i
	}
	c.carriers, idle.reweigh = i, true
	idle.sets[i].count++
	if holder := c.holder(); holder != none {
		e.ledger.accounts[holder].carriers++
	}
}

// carryByName has a claimant carry its part in its own account, which it has now.
func (e *Engine) carryByName(id Claimant) {
	c := e.claimants[id]
	if account := c.accounts[Process]; c.carriers != none && account != none {
		set := &e.idle.sets[c.carriers]
		c.place = int32(len(set.named))
		set.named = append(set.named, namedCarrier{id, account})
	}
}

// carryUnnamed has a claimant carry its part in the account of the others again.
func (e *Engine) carryUnnamed(c *claimant) {
	if c.place == none {
		return
	}
	set := &e.idle.sets[c.carriers]
	last := len(set.named) - 1
	set.named[c.place] = set.named[last]
	e.claimants[set.named[c.place].claimant].place = c.place
	set.named, c.place = set.named[:last], none
}

// stopCarrying leaves a claimant's part of idle energy to the others.
func (e *Engine) stopCarrying(id Claimant) {
	c := e.claimants[id]
	if c.carriers == none {
		return
	}
	idle := &e.idle
	set := &idle.sets[c.carriers]
	e.carryUnnamed(c)
	if holder := c.holder(); holder != none {
		e.ledger.accounts[holder].carriers--
	}
	if set.count--; set.count == 0 {
		delete(idle.index, set.accounts)
		set.weight = 0
		idle.unused = append(idle.unused, c.carriers)
	}
	c.carriers, idle.reweigh = none, true
}

// weightOf is what a set of carriers carries together.
func (e *Engine) weightOf(set *carriers) uint64 {
	if e.cfg.Rules.Idle == IdleEqual {
		return uint64(set.count)
	}
	holder, size := &e.ledger.accounts[holderOf(&set.accounts)], uint64(1)
	if e.cfg.Rules.Idle == IdleRequested {
		size = holder.size
	}
	return units.MulDiv(size*sizeUnit, uint64(set.count), uint64(holder.carriers))
}

// shareIdle gives those their part of a portion's idle energy who carry it. Of what a zone was late with they are those
// who run now.
func (e *Engine) shareIdle(p Portion, idle units.Energy, u *Usage) {
	k := &e.ledger.Kinds[p.Kind]
	switch e.cfg.Rules.Idle {
	case IdleNone:
		return
	case IdleUsed:
		b := e.basis(p.Kind, u)
		s := e.newShares(idle, u.Claims, &b)
		if s.total == 0 {
			k.UnattributedIdle += idle
			return
		}
		for i := range u.Claims {
			claim := &u.Claims[i]
			e.addIdle(p, claim, units.Energy(s.next(e.weight(b.key, claim))))
		}
		k.UnattributedIdle += units.Energy(s.next(b.unattributed))
		return
	}
	total := e.weighCarriers()
	if total == 0 {
		k.UnattributedIdle += idle
		return
	}
	s := shares{amount: uint64(idle), total: total}
	for i := range e.idle.sets {
		if set := &e.idle.sets[i]; set.weight > 0 {
			e.carry(p, set, units.Energy(s.next(set.weight)))
		}
	}
}

// weighCarriers returns what the parts of idle energy add up to, as a weight. Hardly anything that it depends on changes
// from one interval to the next.
func (e *Engine) weighCarriers() uint64 {
	if idle := &e.idle; idle.reweigh {
		idle.weight, idle.reweigh = 0, false
		for i := range idle.sets {
			if set := &idle.sets[i]; set.count > 0 {
				set.weight = e.weightOf(set)
				idle.weight += set.weight
			}
		}
	}
	return e.idle.weight
}

// carry books the part of idle energy that a set of carriers has. Those without an account of their own, mostly nearly
// all, are booked at once.
func (e *Engine) carry(p Portion, set *carriers, energy units.Energy) {
	accounts := e.ledger.accounts
	add := func(account int32, energy units.Energy) {
		if account != none {
			accounts[account].addIdle(p.Kind, energy, e.recentPart(energy, p.Elapsed))
		}
	}
	for _, account := range set.accounts {
		add(account, energy)
	}
	s := shares{amount: uint64(energy), total: uint64(set.count)}
	for _, n := range set.named {
		add(n.account, units.Energy(s.next(1)))
	}
	add(othersIndex, units.Energy(s.next(uint64(set.count)-uint64(len(set.named)))))
}

// addIdle books a part of idle energy.
func (e *Engine) addIdle(p Portion, claim *Claim, energy units.Energy) {
	recent := e.recentPart(energy, p.Elapsed)
	accounts := e.ledger.accounts
	if claim.Claimant == NoClaimant {
		accounts[othersIndex].addIdle(p.Kind, energy, recent)
		return
	}
	c := e.claimants[claim.Claimant]
	for entity, account := range c.accounts {
		if Entity(entity) == Process && (account == none || claim.ShortLived) {
			account = othersIndex
		}
		if account != none {
			accounts[account].addIdle(p.Kind, energy, recent)
		}
	}
}

func (a *Account) addIdle(kind int, energy, recent units.Energy) {
	a.Idle[kind] += energy
	a.RecentIdle[kind] += recent
}
