// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// contest holds the counts and lists that decide which accounts have a series.
type contest struct {
	live        [identity.NumEntities]int   // active series, without overflow series
	ended       [identity.NumEntities]int   // series that ended and were not acknowledged yet
	others      [identity.NumEntities]int32 // overflow accounts, or unset
	candidates  [identity.NumEntities][]candidate
	births      [identity.NumEntities]births // of accounts that claimants opened
	groupBirths [identity.NumEntities]births
}

// candidate is a process, program, container, pod or VM without a series. A process becomes a
// candidate with its first energy. All processes of the node may be candidates, and each collection
// compares them, so candidates are stored contiguously.
type candidate struct {
	rank   rank
	earned units.Energy // energy since the candidate has no series
	// notBefore is the earliest start of its series, in Unix nanoseconds.
	notBefore int64
	// ended is the account of its last series. It is unset after the end was acknowledged, and only
	// then the next series can begin. It is always unset for a process, which continues its last
	// series.
	ended int32
	of    int32 // claimant of a process, otherwise index of the account
	// contends reports whether the candidate is in the contest, and has a rank. A process contends
	// from its first energy after which its series may begin, until it ends.
	contends bool
}

// awardSeries gives the series of an entity to its largest users. It is called at the end of a
// collection. The accounts must have the shares of the last interval. The shares of candidates are
// moved to other accounts afterwards.
func (l *Ledger) awardSeries(entity identity.Entity) {
	if len(l.candidates[entity]) == 0 {
		return
	}
	leaving := l.findIncumbents(entity)
	room := max(l.cfg.Limits[entity].live()-l.live[entity]+leaving, 0)
	if room == 0 && len(l.incumbents) == 0 {
		return
	}
	l.findNewcomers(entity, room > 0)
	slices.SortFunc(l.newcomers, func(a, b contender) int { return byKey(b, a) })
	if len(l.newcomers) > room {
		slices.SortFunc(l.incumbents, byKey)
	}
	for i, newcomer := range l.newcomers {
		place := i - room // among the incumbents
		if place >= 0 && (place >= len(l.incumbents) || newcomer.key <= l.incumbents[place].key) {
			return
		}
		if entity == identity.ProcessEntity && !l.allowsBirth(entity) {
			return
		}
		if entity == identity.ProcessEntity {
			id := attribution.Claimant(newcomer.index)
			l.openProcess(id, l.unsettled(id), true)
		} else {
			l.beginSeries(newcomer.index)
		}
		if place >= 0 {
			l.displace(l.incumbents[place].index)
		}
	}
}

// findNewcomers lists the candidates that have earned a series. Without room, it leaves out the
// candidates that are not larger than the smallest incumbent.
func (l *Ledger) findNewcomers(entity identity.Entity, room bool) {
	least := uint64(0)
	if !room {
		least = slices.MinFunc(l.incumbents, byKey).key + 1
	}
	l.newcomers = l.newcomers[:0]
	for i := range l.candidates[entity] {
		w := &l.candidates[entity][i]
		// The key is at most the usage. Comparing the usage first saves the division of newcomerKey.
		if _, recent := l.unmoved(entity, w); w.contends && uint64(w.rank.now(recent)) >= least && l.mayBegin(entity, w) {
			if key := w.rank.newcomerKey(recent); key >= least {
				l.newcomers = append(l.newcomers, contender{key, w.of})
			}
		}
	}
}

// mayBegin reports whether a candidate has earned a series, which may begin by now.
func (l *Ledger) mayBegin(entity identity.Entity, w *candidate) bool {
	if w.notBefore > l.at.UnixNano() || w.ended != unset {
		return false
	}
	energy, _ := l.unmoved(entity, w)
	energy += w.earned
	return energy > 0 && energy >= l.cfg.Limits[entity].MinEnergy
}

// unmoved returns the energy in the account of a candidate. It is not part of the rank yet.
func (l *Ledger) unmoved(entity identity.Entity, w *candidate) (energy, recent units.Energy) {
	if entity == identity.ProcessEntity {
		return 0, 0
	}
	a := &l.accounts[w.of]
	return a.active(), a.recent()
}

// findIncumbents lists the series that can be displaced. leaving is the number of other series that
// end before the ledger is emitted.
func (l *Ledger) findIncumbents(entity identity.Entity) (leaving int) {
	l.incumbents = l.incumbents[:0]
	for i := range l.accounts {
		a := &l.accounts[i]
		if a.Entity != entity || !a.live() {
			continue
		}
		if entity == identity.ProcessEntity {
			if a.claimant == unset || a.refs > 1 {
				continue // the series passes to another claimant
			}
			if c := l.claimants[a.claimant]; !c.running && !l.sharer.Defers(a.claimant) {
				if c.leaves {
					leaving++
				}
				continue
			}
		}
		l.incumbents = append(l.incumbents, contender{a.rank.incumbentKey(a.recent(), a.Reported()), int32(i)})
	}
	return leaving
}

// displace takes a series from its owner, which becomes a candidate. A series that was reported
// ends with its current totals.
func (l *Ledger) displace(account int32) {
	a := &l.accounts[account]
	if a.Reported() {
		a.rank.lost = min(a.rank.lost+1, maxLost)
	}
	if a.Entity == identity.ProcessEntity {
		l.displaceProcess(account)
	} else {
		l.displaceGroup(account)
	}
}

func (l *Ledger) displaceProcess(account int32) {
	a := &l.accounts[account]
	id := a.claimant
	c := l.claimants[id]
	w := candidate{rank: a.rank, ended: unset, of: int32(id), contends: c.running}
	w.rank.gained += a.recent()
	l.enqueue(identity.ProcessEntity, w)
	l.unnameIdleMember(id)
	c.accounts[identity.ProcessEntity] = unset
	if a.Reported() {
		l.endAccount(account)
		return
	}
	l.live[identity.ProcessEntity]--
	if program := c.accounts[identity.ProgramEntity]; program == unset {
		l.moveToOthers(account)
	} else {
		l.mergeIntoProgram(program, a)
	}
	l.removeAccount(account)
}

// displaceGroup makes the account of a program, container, pod or VM a candidate. If the series was
// reported, its totals move to a new account, which ends.
func (l *Ledger) displaceGroup(account int32) {
	a := &l.accounts[account]
	entity := a.Entity
	l.live[entity]--
	w := candidate{rank: a.rank, ended: unset, of: account, contends: true}
	if !a.Reported() {
		l.enqueue(entity, w)
		return
	}
	ended := *a
	ended.refs, ended.idleMembers, ended.request = 0, 0, 0
	w.rank.gained += a.recent()
	w.ended = l.add(ended)
	a = &l.accounts[account]
	a.reset()
	a.Lifetime = Lifetime{}
	l.enqueue(entity, w)
	l.keepEnded(w.ended)
}

// beginSeries gives a candidate's account a series, with the shares of the current interval.
func (l *Ledger) beginSeries(account int32) {
	a := &l.accounts[account]
	w, _ := l.dequeue(a.Entity, account)
	a.rank = w.rank
	l.live[a.Entity]++
	earliest := l.at
	if a.Entity == identity.ProgramEntity { // it may have the energy of a process that lost its series
		earliest = l.emittedAt
	}
	if a.Start.Before(earliest) {
		a.Start = earliest
	}
}

// notBefore returns the earliest start of the series of a claimant's process, in Unix nanoseconds.
func (l *Ledger) notBefore(c *claimant) int64 {
	age := l.cfg.Limits[identity.ProcessEntity].MinAge
	if c.early || age == 0 {
		return 0
	}
	return c.since + int64(age)
}

// processCandidate returns the candidate of a claimant's process, and adds it at the first call. It
// is valid until a candidate is added or removed.
func (l *Ledger) processCandidate(id attribution.Claimant) *candidate {
	c := l.claimants[id]
	if c.candidate == unset {
		l.enqueue(identity.ProcessEntity, candidate{ended: unset, of: int32(id), notBefore: l.notBefore(c)})
	}
	return &l.candidates[identity.ProcessEntity][c.candidate]
}

// candidateOf returns the candidate of an account, or nil if the account has or had a series.
func (l *Ledger) candidateOf(a *Account) *candidate {
	if a.candidate == unset {
		return nil
	}
	return &l.candidates[a.Entity][a.candidate]
}

// enqueue adds a candidate.
func (l *Ledger) enqueue(entity identity.Entity, w candidate) {
	*l.candidateIndex(entity, w.of) = int32(len(l.candidates[entity]))
	l.candidates[entity] = append(l.candidates[entity], w)
}

// dequeue removes the candidate of a claimant or an account. ok is false if there is no candidate.
func (l *Ledger) dequeue(entity identity.Entity, of int32) (w candidate, ok bool) {
	i := l.candidateIndex(entity, of)
	if *i == unset {
		return candidate{}, false
	}
	all := l.candidates[entity]
	w, last := all[*i], len(all)-1
	all[*i] = all[last]
	*l.candidateIndex(entity, all[last].of) = *i
	l.candidates[entity], *i = all[:last], unset
	return w, true
}

// candidateIndex returns the field with the index of the candidate of a claimant or an account.
func (l *Ledger) candidateIndex(entity identity.Entity, of int32) *int32 {
	if entity == identity.ProcessEntity {
		return &l.claimants[of].candidate
	}
	return &l.accounts[of].candidate
}
