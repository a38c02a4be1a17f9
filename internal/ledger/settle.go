// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// settle adds the shares of claimants to their accounts.
func (e *Ledger) settle(s *attribution.Shares) {
	e.undecided = e.undecided[:0]
	for row := range s.Claimants {
		if of := &s.Claimants[row]; !of.ShortLived {
			e.settleClaimant(of, s.Active(row), int32(row), s.EndsCollection)
		}
	}
	if s.EndsCollection {
		e.awardSeries(identity.ProcessEntity)
		for _, row := range e.undecided {
			of := &s.Claimants[row]
			e.settleProcess(of, s.Active(int(row)))
		}
		e.endFaded()
		for entity := identity.ProgramEntity; entity < identity.NumEntities; entity++ {
			e.awardSeries(entity)
		}
	}
	for entity := identity.ProgramEntity; entity < identity.NumEntities; entity++ {
		e.settleCandidates(entity)
	}
}

// settleClaimant adds the shares of a claimant to its accounts. At the end of a collection it leaves
// out the account of a process that is a candidate, until series are awarded.
func (e *Ledger) settleClaimant(of *attribution.ClaimantShares, active []attribution.Share, row int32, endsCollection bool) {
	id := of.Claimant
	c := e.claimants[id]
	e.eachGroup(id, func(a *Account) { a.addShares(of.CPU, active) })
	if c.accounts[identity.ProcessEntity] == none {
		e.qualify(id, sumOf(active), endsCollection)
	}
	if endsCollection && c.candidate != none {
		e.undecided = append(e.undecided, row)
		return
	}
	e.settleProcess(of, active)
}

// qualify makes a claimant's process a candidate and gives it its own account if it has earned one by
// now. At the end of a collection the remaining room is given out among all candidates at
// once.
func (e *Ledger) qualify(id attribution.Claimant, active attribution.Share, endsCollection bool) {
	c := e.claimants[id]
	if e.cfg.Processes == ByProgram || c.pid == 0 {
		return
	}
	w := e.processCandidate(id)
	w.earned = units.AddSaturating(w.earned, active.Energy)
	mayBegin := e.mayBegin(identity.ProcessEntity, w)
	if w.contends = w.contends || mayBegin && c.running; w.contends {
		w.rank.gained += active.Recent
	}
	if mayBegin && e.hasRoom(identity.ProcessEntity) && (!endsCollection || !c.running) {
		e.openProcess(id, active.Recent, true)
	}
}

// settleProcess adds the shares of a claimant to the account of the process, else to that of its
// program, else to that of the other processes.
func (e *Ledger) settleProcess(of *attribution.ClaimantShares, active []attribution.Share) {
	c := e.claimants[of.Claimant]
	process := c.accounts[identity.ProcessEntity]
	if process == none {
		process = e.restOf(of.Claimant)
	}
	e.ledger.accounts[process].addShares(of.CPU, active)
}

// settleCandidates gives series to the programs, containers, pods or VMs that qualify for one, up
// to the limit, and moves what the interval brought the others of the candidates.
func (e *Ledger) settleCandidates(entity identity.Entity) {
	for n := len(e.candidates[entity]) - 1; n >= 0; n-- {
		w := &e.candidates[entity][n]
		if w.contends && e.mayBegin(entity, w) && e.hasRoom(entity) {
			e.beginSeries(w.of)
		} else if !e.awaitsGroup(w.of) {
			e.moveToOthers(w.of)
		}
	}
}
