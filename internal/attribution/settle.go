// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// settle adds what the interval brought each claimant to its accounts.
func (e *Engine) settle(endsCollection bool) {
	undecided := e.touched[:0]
	for _, id := range e.touched {
		c := e.claimants[id]
		if e.gained != nil {
			e.reportGain(id, c)
		}
		e.eachGroup(id, func(a *Account) { e.settleInto(c, a) })
		if c.accounts[identity.ProcessEntity] == none {
			e.qualify(id, endsCollection)
		}
		if endsCollection && c.candidate != none {
			undecided = append(undecided, id)
			continue
		}
		e.settleProcess(id)
	}
	if endsCollection {
		e.awardSeries(identity.ProcessEntity)
		for _, id := range undecided {
			e.settleProcess(id)
		}
		e.endFaded()
		for entity := identity.ProgramEntity; entity < identity.NumEntities; entity++ {
			e.awardSeries(entity)
		}
	}
	for entity := identity.ProgramEntity; entity < identity.NumEntities; entity++ {
		e.settleCandidates(entity)
	}
	e.touched, e.gains, e.parts.cpu, e.parts.energy = e.touched[:0], e.gains[:0], e.parts.cpu[:0], e.parts.energy[:0]
}

// reportGain passes what the interval brought a claimant to the function of OnGain.
func (e *Engine) reportGain(id Claimant, c *claimant) {
	e.gainedEnergy = e.gainedEnergy[:0]
	for _, g := range e.gainsOf(c) {
		e.gainedEnergy = append(e.gainedEnergy, g.energy)
	}
	e.gained(id, Gain{c.cpu, e.gainedEnergy}, e.parts.of(c, e.kinds))
}

// qualify makes a claimant's process a candidate and gives it its own account if it has earned one by
// now. At the end of a collection the remaining room is given out among all candidates at
// once.
func (e *Engine) qualify(id Claimant, endsCollection bool) {
	c := e.claimants[id]
	if e.cfg.Processes == ByProgram || c.pid == 0 {
		return
	}
	w := e.processCandidate(id)
	for _, g := range e.gainsOf(c) {
		w.earned = units.AddSaturating(w.earned, g.energy)
	}
	mayBegin := e.mayBegin(identity.ProcessEntity, w)
	if w.contends = w.contends || mayBegin && c.running; w.contends {
		w.rank.gained += e.recentOf(c)
	}
	if mayBegin && e.hasRoom(identity.ProcessEntity) && (!endsCollection || !c.running) {
		e.openProcess(id, true)
	}
}

// settleProcess adds the usage of the interval to the account of the process, else to that of its
// program, else to that of the other processes.
func (e *Engine) settleProcess(id Claimant) {
	c := e.claimants[id]
	process := c.accounts[identity.ProcessEntity]
	if process == none {
		process = e.restOf(id)
	}
	e.settleInto(c, &e.ledger.accounts[process])
	c.touched, c.cpu = none, 0
}

func (e *Engine) settleInto(c *claimant, a *Account) {
	gains := e.gainsOf(c)
	a.grow(len(gains))
	for kind, g := range gains {
		m := &a.amounts[kind]
		m.Energy += g.energy
		m.Recent += g.recent
	}
	a.CPU += c.cpu
}

// settleCandidates gives series to the programs, containers, pods or VMs that qualify for one, up
// to the limit, and moves what the interval brought the others of the candidates.
func (e *Engine) settleCandidates(entity identity.Entity) {
	for n := len(e.candidates[entity]) - 1; n >= 0; n-- {
		w := &e.candidates[entity][n]
		if w.contends && e.mayBegin(entity, w) && e.hasRoom(entity) {
			e.beginSeries(w.of)
		} else if !e.awaitsGroup(w.of) {
			e.moveToOthers(w.of)
		}
	}
}
