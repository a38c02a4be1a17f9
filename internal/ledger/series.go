// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// openAccount returns the account of an owner's entity, for one more claimant. It returns none if
// the owner has no such entity, or if the entity is a process and there is no room for its series.
//
// A program, container, pod or VM for whose series there is no room has an account that is a
// candidate, and so has a new program: its series begins with its first energy. A series that ended
// and was not acknowledged goes on.
func (e *Ledger) openAccount(entity identity.Entity, owner *identity.Owner, start time.Time, room bool) int32 {
	s, ok := seriesOf(entity, owner)
	if !ok {
		return none
	}
	i, known := e.series[s]
	if known && (room || !e.ledger.accounts[i].Ended()) {
		a := &e.ledger.accounts[i]
		if a.Ended() {
			if a.first == 0 {
				a.Owner.Names = owner.Names
			}
			e.reviveAccount(i)
		}
		if w := e.candidateOf(a); w != nil {
			w.contends = true
		}
		a.refs++
		e.updateCID(i, owner)
		return i
	}
	w := candidate{ended: none, contends: true}
	if known {
		w.ended = i
	} else if room || entity != identity.ProcessEntity {
		w.notBefore = e.recordBirth(entity)
	}
	begins := room && w.notBefore == 0 && entity != identity.ProgramEntity && (entity == identity.ProcessEntity || e.cfg.Limits[entity].MinEnergy == 0)
	if entity == identity.ProcessEntity && !begins {
		return none
	}
	i = e.newAccount(entity, owner, start)
	e.series[s], e.ledger.accounts[i].refs = i, 1
	if begins {
		e.live[entity]++
		return i
	}
	w.of = i
	e.enqueue(entity, w)
	return i
}

// newAccount adds an account of an entity of the owner and returns its index.
func (e *Ledger) newAccount(entity identity.Entity, owner *identity.Owner, start time.Time) int32 {
	i := e.ledger.add(Account{Entity: entity, Start: start})
	described := &e.ledger.accounts[i].Owner
	entity.Describe(&described.Workload, &owner.Workload)
	described.Process = processOf(entity, owner)
	return i
}

// updateCID sets a virtual machine's context ID, which is another one when the machine was started
// again.
func (e *Ledger) updateCID(account int32, owner *identity.Owner) {
	if a := &e.ledger.accounts[account]; a.Entity == identity.VMEntity {
		a.Owner.VM.CID = owner.VM.CID
	}
}

// reviveAccount has a series go on that ended.
func (e *Ledger) reviveAccount(account int32) {
	a := &e.ledger.accounts[account]
	if a.restored == notRestored {
		e.ended[a.Entity]--
	}
	if a.restored != wasLive {
		a.rank = rank{}
	}
	a.end, a.restored = 0, notRestored
	e.live[a.Entity]++
}

// openProcess gives a claimant's process its own account, if there is room for it or another
// claimant still has it. unsettled is recent energy that will be added to the account.
func (e *Ledger) openProcess(id attribution.Claimant, unsettled units.Energy, room bool) {
	c := e.claimants[id]
	start, owner := time.Unix(0, c.since).UTC(), e.ownerOf(c)
	if start.Before(e.at) {
		start = e.at
	}
	i := e.openAccount(identity.ProcessEntity, &owner, start, room)
	if i == none {
		return
	}
	a := &e.ledger.accounts[i]
	if w, ok := e.dequeue(identity.ProcessEntity, int32(id)); ok && a.refs == 1 {
		a.rank = w.rank
		a.rank.gained -= min(a.rank.gained, a.recent()+unsettled) // which is in the account, or will be
	}
	a.claimant, c.accounts[identity.ProcessEntity] = id, i
	e.nameIdleMember(id)
}

// endAccount marks an account as ended. It must have no claimants left.
func (e *Ledger) endAccount(account int32) {
	a := &e.ledger.accounts[account]
	a.refs = 0
	if a.candidate != none {
		e.moveToOthers(account)
		e.removeAccount(account)
		return
	}
	e.live[a.Entity]--
	e.keepEnded(account)
}

// keepEnded keeps a series that ended until its end is acknowledged. Where there are too many of
// them, the energy of one that the next consumer cannot know goes to the others.
func (e *Ledger) keepEnded(account int32) {
	a := &e.ledger.accounts[account]
	e.ledger.end(&a.Lifetime)
	a.Owner.VM.CID = 0 // another machine may get the CID
	a.Owner.Names = a.Owner.Names.Settled()
	e.ended[a.Entity]++
	limit, ended := &e.cfg.Limits[a.Entity], e.ended[a.Entity]
	known := a.first != 0 && (a.first <= e.ledger.taken || e.inFlight)
	if ended > limit.ended() && !known || ended > limit.ended()+limit.live() {
		e.moveToOthers(account)
		e.removeAccount(account)
		e.ledger.Dropped++
	}
}

// removeAccount removes an account that ended or never had a series.
func (e *Ledger) removeAccount(account int32) {
	a := &e.ledger.accounts[account]
	if a.Ended() && a.restored == notRestored {
		e.ended[a.Entity]--
	}
	s, ended := a.series(), int32(none)
	if a.candidate != none {
		w, _ := e.dequeue(a.Entity, account)
		ended = w.ended
	}
	if i := e.series[s]; i != account { // that of a candidate that waited for this end
		if w := e.candidateOf(&e.ledger.accounts[i]); w != nil {
			w.ended = none
		}
	} else if ended != none {
		e.series[s] = ended
	} else {
		delete(e.series, s)
	}
	e.ledger.remove(account)
}

// moveToOthers moves the energy of an account without a series to the account that has it instead.
func (e *Ledger) moveToOthers(account int32) {
	if e.ledger.accounts[account].empty() {
		return
	}
	instead := e.accountInstead(account)
	into, a := &e.ledger.accounts[instead], &e.ledger.accounts[account]
	into.merge(a)
	if w := e.candidateOf(a); w != nil {
		w.earned = units.AddSaturating(w.earned, a.active())
		w.rank.gained = units.AddSaturating(w.rank.gained, a.recent())
	}
	a.reset()
	if into.candidate != none {
		e.moveToOthers(instead)
	}
}

// accountInstead returns the account that takes the energy of an account without a series: the
// program of a process if that has a series, else the group, else the account of the entity's
// others.
func (e *Ledger) accountInstead(account int32) int32 {
	a := &e.ledger.accounts[account]
	if a.Entity == identity.ProcessEntity {
		if program := e.seriesOfProgram(a); program != none {
			return program
		}
	}
	if group := e.openGroup(a); group != none {
		return group
	}
	entity := e.ledger.accounts[account].Entity
	if e.others[entity] == none {
		e.others[entity] = e.ledger.add(Account{Entity: entity, Other: true, Start: e.baseline, refs: 1})
	}
	return e.others[entity]
}

// hasRoom reports whether one more series of an entity may begin.
func (e *Ledger) hasRoom(entity identity.Entity) bool {
	return e.mayContinue(entity) && (entity != identity.ProcessEntity || e.allowsBirth(entity))
}

// mayContinue reports whether one more series of an entity may live. One that began before the
// engine was restored is no birth.
func (e *Ledger) mayContinue(entity identity.Entity) bool {
	return e.live[entity] < e.cfg.Limits[entity].live()
}

// allowsBirth reports whether an account that begins now may have a series from the start. Before the
// first interval all may, and none counts.
func (e *Ledger) allowsBirth(entity identity.Entity) bool {
	limit := e.cfg.Limits[entity].Births
	return limit == 0 || !e.observed || e.births[entity].hasRoom(e.at, limit)
}

// recordBirth counts an account that begins and returns the earliest time of its series, 0 if it may
// have one from the start.
func (e *Ledger) recordBirth(entity identity.Entity) (notBefore int64) {
	if !e.allowsBirth(entity) {
		notBefore = e.at.Add(lateAge).UnixNano()
	}
	if limit := e.cfg.Limits[entity].Births; limit > 0 && e.observed {
		e.births[entity].add(e.at, limit)
	}
	return notBefore
}
