// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// touch returns a claimant that gets something in the current interval.
func (e *Engine) touch(id Claimant) *claimant {
	c := e.claimants[id]
	if c.touched == none {
		c.touched = int32(len(e.touched))
		e.touched = append(e.touched, id)
		n := len(e.gains)
		e.gains = slices.Grow(e.gains, e.kinds)[:n+e.kinds]
		clear(e.gains[n:])
		e.parts.grow(e.kinds)
	}
	return c
}

// partGains has the gains of the current interval in each of the domains after the node's, for
// GainedFunc: as many for each touched claimant as there are domains.
type partGains struct {
	domains int
	cpu     []units.CPUTime
	energy  []units.Energy // by kind
	scratch []Gain
}

// grow adds a touched claimant.
func (p *partGains) grow(kinds int) {
	if p.domains == 0 {
		return
	}
	n, m := len(p.cpu), len(p.energy)
	p.cpu = slices.Grow(p.cpu, p.domains)[:n+p.domains]
	p.energy = slices.Grow(p.energy, p.domains*kinds)[:m+p.domains*kinds]
	clear(p.cpu[n:])
	clear(p.energy[m:])
}

// has reports whether the gains in a domain are kept.
func (p *partGains) has(domain int) bool { return domain > 0 && domain <= p.domains }

// addCPU adds the CPU time of the interval in each domain.
func (p *partGains) addCPU(e *Engine, iv *Interval) {
	for domain := 1; domain <= p.domains; domain++ {
		claims := iv.usage(domain).Claims
		for i := range claims {
			if claims[i].ShortLived {
				continue
			}
			if c := e.claimants[claims[i].Claimant]; c.touched != none { // the node's claims have touched it
				p.cpu[int(c.touched)*p.domains+domain-1] += claims[i].CPU
			}
		}
	}
}

// addEnergy adds energy of a kind in a domain.
func (p *partGains) addEnergy(c *claimant, domain, kind, kinds int, energy units.Energy) {
	p.energy[(int(c.touched)*p.domains+domain-1)*kinds+kind] += energy
}

// of returns the gains of a claimant in each domain.
func (p *partGains) of(c *claimant, kinds int) []Gain {
	p.scratch = p.scratch[:0]
	for i := range p.domains {
		at := int(c.touched)*p.domains + i
		p.scratch = append(p.scratch, Gain{p.cpu[at], p.energy[at*kinds : (at+1)*kinds]})
	}
	return p.scratch
}

// gainsOf returns what the current interval brings a claimant until settle, by kind.
func (e *Engine) gainsOf(c *claimant) []gain {
	if c.touched == none {
		return nil
	}
	i := int(c.touched) * e.kinds
	return e.gains[i : i+e.kinds]
}

// recentOf returns the sum of what the current interval brings a claimant, at most the largest
// Energy.
func (e *Engine) recentOf(c *claimant) (sum units.Energy) {
	for _, g := range e.gainsOf(c) {
		sum = units.AddSaturating(sum, g.recent)
	}
	return sum
}

// eachGroup calls yield for the accounts of what a claimant is part of.
func (e *Engine) eachGroup(id Claimant, yield func(*Account)) {
	if id == NoClaimant {
		return
	}
	for _, account := range e.claimants[id].accounts[identity.ContainerEntity:] {
		if account != none {
			yield(&e.ledger.accounts[account])
		}
	}
}
