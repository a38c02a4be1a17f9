package attribution

import "github.com/energyreceiver/energyreceiver/internal/units"

const (
	// maxSize bounds the size of a container, so that no sum of sizes overflows, of a quarter of a million.
	maxSize = 1 << 20
	// sizeUnit is the weight of a size of 1, which a container's processes share, rounded down: so large that it does
	// not show of thousands of them.
	sizeUnit = 1 << 26
)

// holder is the account of the container that a claimant has its part of idle energy from: of its container, virtual
// machine or pod, the first that it has.
func (c *claimant) holder() int32 {
	for _, entity := range [...]Entity{Container, VM, Pod} {
		if account := c.accounts[entity]; account != none {
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

// idleWeight is what a carrier's part of idle energy is in proportion to.
func (e *Engine) idleWeight(c *claimant) uint64 {
	if c.excluded {
		return 0
	}
	size := uint64(1)
	switch e.cfg.Rules.Idle {
	case IdleEqual:
		return 1
	case IdleRequested:
		size = c.size
	}
	return size * sizeUnit / uint64(e.ledger.accounts[c.holder()].running)
}

// shareIdle gives those their part of a portion's idle energy who carry it. Of what a zone was late with they are those
// who run now.
func (e *Engine) shareIdle(p Portion, idle units.Energy, claims []Claim, of *span) {
	k := &e.ledger.Kinds[p.Kind]
	switch e.cfg.Rules.Idle {
	case IdleNobody:
		return
	case IdleUsed:
		b := e.basisOf(p.Kind, claims, of)
		s := e.sharesOf(idle, claims, &b)
		if s.total == 0 {
			k.UnattributedIdle += idle
			return
		}
		for i := range claims {
			e.addIdle(p, claims[i], units.Energy(s.next(e.weight(b.key, &claims[i]))))
		}
		k.UnattributedIdle += units.Energy(s.next(b.unowned))
		return
	}
	total := e.weighCarriers()
	if total == 0 {
		k.UnattributedIdle += idle
		return
	}
	s := shares{amount: uint64(idle), total: total}
	for _, id := range e.carriers {
		if weight := e.claimants[id].weight; weight > 0 {
			e.addIdle(p, Claim{Claimant: id}, units.Energy(s.next(weight)))
		}
	}
}

// weighCarriers returns what the parts of idle energy add up to, as a weight. Hardly anything that it depends on changes
// from one interval to the next.
func (e *Engine) weighCarriers() uint64 {
	if e.reweigh {
		e.carried, e.reweigh = 0, false
		for _, id := range e.carriers {
			c := &e.claimants[id]
			c.weight = e.idleWeight(c)
			e.carried += c.weight
		}
	}
	return e.carried
}

// addIdle books a part of idle energy.
func (e *Engine) addIdle(p Portion, claim Claim, energy units.Energy) {
	recent := e.recentPart(energy, p.Elapsed)
	accounts := e.ledger.accounts
	if claim.Claimant == Nobody {
		accounts[othersIndex].addIdle(p.Kind, energy, recent)
		return
	}
	c := &e.claimants[claim.Claimant]
	for entity, account := range c.accounts {
		if Entity(entity) == Process && (account == none || claim.Unseen) {
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
