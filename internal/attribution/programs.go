// SPDX-License-Identifier: Apache-2.0

package attribution

import "github.com/energyreceiver/energyreceiver/internal/units"

// A program is the account of the processes that have none of their own: those of one executable, workload and user. Unlike
// a container, a program outlives its claimants, since most programs are run again. Its series ends when a larger program
// takes its place, or when its usage has faded.

const (
	// fadedUsage is the usage below which a program without claimants ends. Usage decays by a quarter in each collection: a
	// program that used 1 J lasts 24 collections, and one that used 1 kJ lasts 48.
	fadedUsage = units.Joule / 1000
	// maxCandidatePrograms is the maximum number of candidates at which a program is kept that has no claimants and no series.
	maxCandidatePrograms = 1000
)

// restOf returns the account that gets what belongs to no process's own account: that of the claimant's program, or of the
// other processes.
func (e *Engine) restOf(id Claimant) int32 {
	if id == NoClaimant {
		return othersIndex
	}
	if program := e.claimants[id].accounts[units.ProgramEntity]; program != none {
		return program
	}
	return othersIndex
}

// seriesOfProgram returns the account of a process's program if the program has a series, else that of the other processes.
func (e *Engine) seriesOfProgram(a *Account) int32 {
	if e.cfg.Processes == ByPID {
		return othersIndex
	}
	s, ok := seriesOf(units.ProgramEntity, &a.Owner)
	if !ok {
		return othersIndex
	}
	if i, known := e.series[s]; known && e.ledger.accounts[i].live() {
		return i
	}
	return othersIndex
}

// mergeIntoProgram adds the energy of a process that never had a value in an emission to its program. A program that had none
// either then starts with the earlier of both.
func (e *Engine) mergeIntoProgram(program int32, a *Account) {
	p := &e.ledger.accounts[program]
	p.merge(a)
	if !p.Reported && a.Start.Before(p.Start) {
		p.Start = a.Start
	}
}

// leaveProgram removes the last claimant of a program.
func (e *Engine) leaveProgram(account int32) {
	a := &e.ledger.accounts[account]
	a.refs = 0
	if a.candidate != none && len(e.candidates[units.ProgramEntity]) > maxCandidatePrograms {
		e.endAccount(account)
	}
}

// endFadedPrograms ends the programs that have no claimants and have hardly used anything lately. It is called at the end of
// a collection, before the contest of programs.
func (e *Engine) endFadedPrograms() {
	for i := range e.ledger.accounts {
		a := &e.ledger.accounts[i]
		if a.Entity == units.ProgramEntity && a.refs == 0 && !a.Ended && a.rank.now(a.recent()) < fadedUsage {
			e.endAccount(int32(i))
		}
	}
}
