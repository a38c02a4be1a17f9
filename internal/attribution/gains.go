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
	}
	return c
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
