// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// openAccount returns the account of an owner's entity, for one more claimant. It returns unset if
// the owner has no such entity, or if the entity is a process and there is no room for its series.
//
// A program, container, pod or VM without room for a series has an account that is a candidate. The
// account of a new program is always a candidate, because its series begins with its first energy.
// A series that ended and was not acknowledged continues.
func (l *Ledger) openAccount(entity identity.Entity, owner *identity.Owner, start time.Time, room bool) int32 {
	s, ok := seriesOf(entity, owner)
	if !ok {
		return unset
	}
	i, known := l.series[s]
	if known && (room || !l.accounts[i].Ended()) {
		a := &l.accounts[i]
		if a.Ended() {
			if a.first == 0 {
				a.Owner.Names = owner.Names
			}
			l.reviveAccount(i)
		}
		if w := l.candidateOf(a); w != nil {
			w.contends = true
		}
		a.refs++
		l.updateOwner(i, owner)
		return i
	}
	w := candidate{ended: unset, contends: true}
	if known {
		w.ended = i
	} else if room || entity != identity.ProcessEntity {
		w.notBefore = l.recordBirth(entity)
	}
	begins := room && w.notBefore == 0 && entity != identity.ProgramEntity && (entity == identity.ProcessEntity || l.cfg.Limits[entity].MinEnergy == 0)
	if entity == identity.ProcessEntity && !begins {
		return unset
	}
	i = l.newAccount(entity, owner, start)
	l.series[s], l.accounts[i].refs = i, 1
	if begins {
		l.live[entity]++
		return i
	}
	w.of = i
	l.enqueue(entity, w)
	return i
}

// newAccount adds an account of an entity of the owner and returns its index.
func (l *Ledger) newAccount(entity identity.Entity, owner *identity.Owner, start time.Time) int32 {
	i := l.add(Account{Entity: entity, Start: start})
	described := &l.accounts[i].Owner
	entity.Describe(&described.Workload, &owner.Workload)
	described.Process = processOf(entity, owner)
	return i
}

// updateOwner sets the fields that a later claimant of an account may change. The context ID of a
// virtual machine changes when the machine restarts. The first processes of a Slurm job run as
// root, so the user of the job is updated until the series is emitted.
func (l *Ledger) updateOwner(account int32, owner *identity.Owner) {
	a := &l.accounts[account]
	switch {
	case a.Entity == identity.VMEntity:
		a.Owner.VM.CID = owner.VM.CID
	case a.Entity == identity.SlurmStepEntity && a.first == 0 && a.Owner.Job.User == "":
		a.Owner.Job.User = owner.Job.User
	}
}

// reviveAccount continues a series that ended.
func (l *Ledger) reviveAccount(account int32) {
	a := &l.accounts[account]
	if a.restored == notRestored {
		l.ended[a.Entity]--
	}
	if a.restored != wasLive {
		a.rank = rank{}
	}
	a.end, a.restored = 0, notRestored
	l.live[a.Entity]++
}

// openProcess gives a claimant's process its own account, if there is room for it or another
// claimant still has it. unsettled is recent energy that will be added to the account.
func (l *Ledger) openProcess(id attribution.Claimant, unsettled units.Energy, room bool) {
	c := l.claimants[id]
	start, owner := time.Unix(0, c.since).UTC(), l.ownerOf(c)
	if start.Before(l.at) {
		start = l.at
	}
	i := l.openAccount(identity.ProcessEntity, &owner, start, room)
	if i == unset {
		return
	}
	a := &l.accounts[i]
	if w, ok := l.dequeue(identity.ProcessEntity, int32(id)); ok && a.refs == 1 {
		a.rank = w.rank
		a.rank.gained -= min(a.rank.gained, a.recent()+unsettled) // this energy is in the account, or will be
	}
	a.claimant, c.accounts[identity.ProcessEntity] = id, i
	l.nameIdleMember(id)
}

// endAccount marks an account as ended. It must have no claimants left.
func (l *Ledger) endAccount(account int32) {
	a := &l.accounts[account]
	a.refs = 0
	if a.candidate != unset {
		l.moveToOthers(account)
		l.removeAccount(account)
		return
	}
	l.live[a.Entity]--
	l.keepEnded(account)
}

// keepEnded keeps a series that ended until its end is acknowledged. If too many have ended, the
// series is removed instead, and its energy moves to the account that replaces it. The limit is
// higher for a series if the next consumer may have points of it.
func (l *Ledger) keepEnded(account int32) {
	a := &l.accounts[account]
	l.end(&a.Lifetime)
	a.Owner.VM.CID = 0 // another machine may get the CID
	a.Owner.Names = a.Owner.Names.Settled()
	l.ended[a.Entity]++
	limit, ended := &l.cfg.Limits[a.Entity], l.ended[a.Entity]
	known := a.first != 0 && (a.first <= l.taken || l.inFlight)
	if ended > limit.ended() && !known || ended > limit.ended()+limit.live() {
		l.moveToOthers(account)
		l.removeAccount(account)
		l.Dropped++
	}
}

// removeAccount removes an account that ended or never had a series.
func (l *Ledger) removeAccount(account int32) {
	a := &l.accounts[account]
	if a.Ended() && a.restored == notRestored {
		l.ended[a.Entity]--
	}
	s, ended := a.series(), int32(unset)
	if a.candidate != unset {
		w, _ := l.dequeue(a.Entity, account)
		ended = w.ended
	}
	if i := l.series[s]; i != account { // the series already belongs to a candidate that waited for this end
		if w := l.candidateOf(&l.accounts[i]); w != nil {
			w.ended = unset
		}
	} else if ended != unset {
		l.series[s] = ended
	} else {
		delete(l.series, s)
	}
	l.remove(account)
}

// moveToOthers moves the energy of an account without a series to accountInstead.
func (l *Ledger) moveToOthers(account int32) {
	if l.accounts[account].empty() {
		return
	}
	instead := l.accountInstead(account)
	into, a := &l.accounts[instead], &l.accounts[account]
	into.merge(a)
	if w := l.candidateOf(a); w != nil {
		w.earned = units.AddSaturating(w.earned, a.active())
		w.rank.gained = units.AddSaturating(w.rank.gained, a.recent())
	}
	a.reset()
	if into.candidate != unset {
		l.moveToOthers(instead)
	}
}

// accountInstead returns the account that receives the energy of an account without a series. It is
// the program of a process if the program has a series. Otherwise it is the group, or without a
// group the overflow account of the entity.
func (l *Ledger) accountInstead(account int32) int32 {
	a := &l.accounts[account]
	if a.Entity == identity.ProcessEntity {
		if program := l.seriesOfProgram(a); program != unset {
			return program
		}
	}
	if group := l.openGroup(a); group != unset {
		return group
	}
	entity := l.accounts[account].Entity
	if l.others[entity] == unset {
		l.others[entity] = l.add(Account{Entity: entity, Other: true, Start: l.baseline, refs: 1})
	}
	return l.others[entity]
}

// hasRoom reports whether one more series of an entity may begin.
func (l *Ledger) hasRoom(entity identity.Entity) bool {
	return l.mayContinue(entity) && (entity != identity.ProcessEntity || l.allowsBirth(entity))
}

// mayContinue reports whether there is room for one more live series of an entity. Unlike hasRoom,
// it ignores Limit.Births, because a series that continues after a restore is not a birth.
func (l *Ledger) mayContinue(entity identity.Entity) bool {
	return l.live[entity] < l.cfg.Limits[entity].live()
}

// allowsBirth reports whether an account that begins now may have a series from the start. Before
// the first interval, births are not limited.
func (l *Ledger) allowsBirth(entity identity.Entity) bool {
	limit := l.cfg.Limits[entity].Births
	return limit == 0 || !l.observed || l.births[entity].hasRoom(l.at, limit)
}

// recordBirth counts an account that begins after the first interval, and returns the earliest
// start of its series, or 0 if it may have a series from the start.
func (l *Ledger) recordBirth(entity identity.Entity) (notBefore int64) {
	if !l.allowsBirth(entity) {
		notBefore = l.at.Add(lateAge).UnixNano()
	}
	if limit := l.cfg.Limits[entity].Births; limit > 0 && l.observed {
		l.births[entity].add(l.at, limit)
	}
	return notBefore
}
