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
	// quarter in each collection: a program that used 1 J lasts 24 collections, and a program that
	// used 1 kJ lasts 48.
	fadedUsage = units.Joule / 1000
	// maxCandidatePrograms is the number of candidate programs above which a program without a
	// series is removed with its last claimant.
	maxCandidatePrograms = 1000
)

// restOf returns the account for energy of a claimant without its own account: the account of the
// claimant's program, or the account of the other processes.
func (l *Ledger) restOf(id attribution.Claimant) int32 {
	if id == attribution.NoClaimant {
		return othersIndex
	}
	if program := l.claimants[id].accounts[identity.ProgramEntity]; program != unset {
		return program
	}
	return othersIndex
}

// seriesOfProgram returns the account of a process's program if the program has a series, and unset
// otherwise.
func (l *Ledger) seriesOfProgram(a *Account) int32 {
	if l.cfg.Processes == ByPID {
		return unset
	}
	s, ok := seriesOf(identity.ProgramEntity, &a.Owner)
	if !ok {
		return unset
	}
	if i, known := l.series[s]; known && l.accounts[i].live() {
		return i
	}
	return unset
}

// mergeIntoProgram adds the energy of a process that was never emitted to its program. If the
// program was never emitted either, its start becomes the earlier of both.
func (l *Ledger) mergeIntoProgram(program int32, a *Account) {
	p := &l.accounts[program]
	p.merge(a)
	if !p.Reported() && a.Start.Before(p.Start) {
		p.Start = a.Start
	}
}

// leaveProgram removes the last claimant of a program.
func (l *Ledger) leaveProgram(account int32) {
	a := &l.accounts[account]
	a.refs = 0
	switch w := l.candidateOf(a); {
	case w == nil:
	case len(l.candidates[identity.ProgramEntity]) > maxCandidatePrograms:
		l.endAccount(account)
	default:
		w.contends = w.notBefore == 0
	}
}

// endFaded ends the groups, and the programs without claimants, whose usage has decayed below
// fadedUsage. It is called at the end of a collection, before series are assigned to programs.
func (l *Ledger) endFaded() {
	for i := range l.accounts {
		a := &l.accounts[i]
		if (a.Entity != identity.ProgramEntity && !a.group) || a.refs > 0 || a.Ended() {
			continue
		}
		rank := &a.rank
		if w := l.candidateOf(a); w != nil {
			rank = &w.rank
		}
		if rank.now(a.recent()) < fadedUsage {
			l.endAccount(int32(i))
		}
	}
}
