// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// A program is the account of the processes of one executable, workload and user that have no
// account of their own. Unlike a container, a program outlives its claimants, since most programs
// run again. Its series ends when a larger program takes its place or when its usage has decayed.

const (
	// fadedUsage is the usage below which a program without claimants ends. Usage decays by a
	// quarter in each collection: a program that used 1 J lasts 24 collections, and one that used 1
	// kJ lasts 48.
	fadedUsage = units.Joule / 1000
	// maxCandidatePrograms is the maximum number of candidates at which a program without claimants
	// and without a series is kept.
	maxCandidatePrograms = 1000
)

// restOf returns the account for energy of a claimant without its own account: the account of the
// claimant's program, or the account of the other processes.
func (e *Ledger) restOf(id attribution.Claimant) int32 {
	if id == attribution.NoClaimant {
		return othersIndex
	}
	if program := e.claimants[id].accounts[identity.ProgramEntity]; program != none {
		return program
	}
	return othersIndex
}

// seriesOfProgram returns the account of a process's program if the program has a series, else
// none.
func (e *Ledger) seriesOfProgram(a *Account) int32 {
	if e.cfg.Processes == ByPID {
		return none
	}
	s, ok := seriesOf(identity.ProgramEntity, &a.Owner)
	if !ok {
		return none
	}
	if i, known := e.series[s]; known && e.ledger.accounts[i].live() {
		return i
	}
	return none
}

// mergeIntoProgram adds the energy of a process that was never emitted to its program. If the
// program was never emitted either, its start becomes the earlier of both.
func (e *Ledger) mergeIntoProgram(program int32, a *Account) {
	p := &e.ledger.accounts[program]
	p.merge(a)
	if !p.Reported() && a.Start.Before(p.Start) {
		p.Start = a.Start
	}
}

// leaveProgram removes the last claimant of a program.
func (e *Ledger) leaveProgram(account int32) {
	a := &e.ledger.accounts[account]
	a.refs = 0
	switch w := e.candidateOf(a); {
	case w == nil:
	case len(e.candidates[identity.ProgramEntity]) > maxCandidatePrograms:
		e.endAccount(account)
	default:
		w.contends = w.notBefore == 0
	}
}

// endFaded ends the groups, and the programs without claimants, whose usage has decayed below
// fadedUsage. It is called at the end of a collection, before series are assigned to programs.
func (e *Ledger) endFaded() {
	for i := range e.ledger.accounts {
		a := &e.ledger.accounts[i]
		if (a.Entity != identity.ProgramEntity && !a.group) || a.refs > 0 || a.Ended() {
			continue
		}
		rank := &a.rank
		if w := e.candidateOf(a); w != nil {
			rank = &w.rank
		}
		if rank.now(a.recent()) < fadedUsage {
			e.endAccount(int32(i))
		}
	}
}
