// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// settle adds the shares of claimants to their accounts.
func (l *Ledger) settle(s *attribution.Shares) {
	l.undecided = l.undecided[:0]
	for row := range s.Claimants {
		if of := &s.Claimants[row]; !of.ShortLived {
			l.settleClaimant(of, s.Active(row), int32(row), s.EndsCollection)
		}
	}
	if s.EndsCollection {
		l.awardSeries(identity.ProcessEntity)
		for _, row := range l.undecided {
			of := &s.Claimants[row]
			l.settleProcess(of, s.Active(int(row)))
		}
		l.endFaded()
		for entity := identity.ProgramEntity; entity < identity.NumEntities; entity++ {
			l.awardSeries(entity)
		}
	}
	for entity := identity.ProgramEntity; entity < identity.NumEntities; entity++ {
		l.settleCandidates(entity)
	}
}

// settleClaimant adds the shares of a claimant to its accounts. At the end of a collection it
// leaves out the account of a process that is a candidate, until series are awarded.
func (l *Ledger) settleClaimant(of *attribution.ClaimantShares, active []attribution.Share, row int32, endsCollection bool) {
	id := of.Claimant
	c := l.claimants[id]
	l.eachGroup(id, func(a *Account) { a.addShares(of.CPU, active) })
	if c.accounts[identity.ProcessEntity] == unset {
		l.qualify(id, sumOf(active), endsCollection)
	}
	if endsCollection && c.candidate != unset {
		l.undecided = append(l.undecided, row)
		return
	}
	l.settleProcess(of, active)
}

// qualify makes a claimant's process a candidate and gives it its own account if it has earned one
// by now. At the end of a collection the remaining room is given out among all candidates at once.
func (l *Ledger) qualify(id attribution.Claimant, active attribution.Share, endsCollection bool) {
	c := l.claimants[id]
	if l.cfg.Processes == ByProgram || c.pid == 0 || c.candidate == unset && active.Energy == 0 {
		return
	}
	w := l.processCandidate(id)
	w.earned = units.AddSaturating(w.earned, active.Energy)
	mayBegin := l.mayBegin(identity.ProcessEntity, w)
	if w.contends = w.contends || mayBegin && c.running; w.contends {
		w.rank.gained += active.Recent
	}
	if mayBegin && l.hasRoom(identity.ProcessEntity) && (!endsCollection || !c.running) {
		l.openProcess(id, active.Recent, true)
	}
}

// settleProcess adds the shares of a claimant to the account of the process, otherwise to the
// account of its program, otherwise to the account of the other processes.
func (l *Ledger) settleProcess(of *attribution.ClaimantShares, active []attribution.Share) {
	c := l.claimants[of.Claimant]
	process := c.accounts[identity.ProcessEntity]
	if process == unset {
		process = l.restOf(of.Claimant)
	}
	l.accounts[process].addShares(of.CPU, active)
}

// settleCandidates begins the series of the programs, containers, pods or VMs that have earned one,
// up to the limit. The shares of the other candidates move to the accounts that have a series.
func (l *Ledger) settleCandidates(entity identity.Entity) {
	for n := len(l.candidates[entity]) - 1; n >= 0; n-- {
		w := &l.candidates[entity][n]
		if w.contends && l.mayBegin(entity, w) && l.hasRoom(entity) {
			l.beginSeries(w.of)
		} else if !l.awaitsGroup(w.of) {
			l.moveToOthers(w.of)
		}
	}
}
