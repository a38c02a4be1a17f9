// SPDX-License-Identifier: Apache-2.0

package attribution

import "github.com/energyreceiver/energyreceiver/internal/identity"

// contest holds the counts and lists that decide which accounts have a series.
type contest struct {
	live        [identity.NumEntities]int     // series that go on, without the overflow series
	ended       [identity.NumEntities]int     // series that ended and were not acknowledged yet
	others      [identity.NumEntities]int32   // overflow accounts, or none
	waiting     []candidate                   // processes that have no series
	candidates  [identity.NumEntities][]int32 // accounts of other entities that have no series
	births      [identity.NumEntities]births  // of accounts that claimants opened
	groupBirths [identity.NumEntities]births
}

// awardSeries gives the series of an entity to those that use the most. It is called at the end of
// a collection, after what the last interval brought was added to the accounts, and before that of
// candidates goes to the others.
func (e *Engine) awardSeries(entity identity.Entity) {
	if len(e.candidates[entity]) == 0 && (entity != identity.ProcessEntity || len(e.waiting) == 0) {
		return
	}
	leaving := e.findIncumbents(entity)
	e.incumbents.heapify()
	room := e.cfg.Limits[entity].live() - e.live[entity] + leaving
	if room <= 0 && len(e.incumbents) == 0 {
		return
	}
	e.findNewcomers(entity, room > 0)
	e.newcomers.heapify()
	for ; len(e.newcomers) > 0 && (entity != identity.ProcessEntity || e.allowsBirth(entity)); room-- {
		newcomer, displaced := e.newcomers.pop(), int32(none)
		if room <= 0 {
			if len(e.incumbents) == 0 || ^newcomer.key <= e.incumbents[0].key {
				return
			}
			displaced = e.incumbents.pop().index
		}
		if entity == identity.ProcessEntity {
			e.openProcess(Claimant(newcomer.index), true)
		} else {
			e.beginSeries(newcomer.index)
		}
		if displaced != none {
			e.displace(displaced)
		}
	}
}

// findNewcomers lists the candidates that have earned a series, the complement of their keys so
// that the largest is first. Unless there is room, only those that are larger than the smallest
// incumbent.
func (e *Engine) findNewcomers(entity identity.Entity, room bool) {
	e.newcomers = e.newcomers[:0]
	enough := func(key uint64) bool { return room || key > e.incumbents[0].key }
	add := func(key uint64, i int32) {
		if enough(key) {
			e.newcomers = append(e.newcomers, contender{^key, i})
		}
	}
	if entity == identity.ProcessEntity {
		for i := range e.waiting {
			// The key is at most the usage, and takes a division.
			if w := &e.waiting[i]; w.running && enough(uint64(w.rank.now(0))) && e.hasEarned(&w.standing) {
				add(w.rank.newcomerKey(0), int32(w.claimant))
			}
		}
		return
	}
	for _, i := range e.candidates[entity] {
		if key, ok := e.newcomerKey(entity, i); ok {
			add(key, i)
		}
	}
}

// newcomerKey returns the key of an account that is a candidate; ok is false where it has not
// earned a series yet.
func (e *Engine) newcomerKey(entity identity.Entity, i int32) (key uint64, ok bool) {
	a := &e.ledger.accounts[i]
	if a.notBefore.After(e.at) || !a.notBefore.IsZero() && a.refs == 0 {
		return 0, false
	}
	earned := a.earned + a.active()
	return a.rank.newcomerKey(a.recent()), earned > 0 && earned >= e.cfg.Limits[entity].MinEnergy
}

// findIncumbents lists the series that can be displaced. leaving is how many others end before the
// ledger is emitted.
func (e *Engine) findIncumbents(entity identity.Entity) (leaving int) {
	e.incumbents = e.incumbents[:0]
	for i := range e.ledger.accounts {
		a := &e.ledger.accounts[i]
		if a.Entity != entity || !a.live() {
			continue
		}
		if entity == identity.ProcessEntity {
			if a.claimant == none || a.refs > 1 {
				continue // it passes from one claimant to another
			}
			if c := e.claimants[a.claimant]; !c.running && c.deferred == 0 {
				leaving++
				continue
			}
		}
		e.incumbents = append(e.incumbents, contender{a.rank.incumbentKey(a.recent(), a.Reported()), int32(i)})
	}
	return leaving
}

// displace takes a series from its owner. It ends with what it has.
func (e *Engine) displace(account int32) {
	a := &e.ledger.accounts[account]
	if a.Reported() {
		a.rank.lost = min(a.rank.lost+1, maxLost)
	}
	if a.Entity == identity.ProcessEntity {
		e.displaceProcess(account)
	} else {
		e.displaceGroup(account)
	}
}

func (e *Engine) displaceProcess(account int32) {
	a := &e.ledger.accounts[account]
	id := a.claimant
	c := e.claimants[id]
	c.waits = standing{rank: a.rank}
	c.waits.rank.gained += a.recent()
	e.unnameIdleMember(id)
	c.accounts[identity.ProcessEntity] = none
	if c.running {
		e.enqueueProcess(id)
	}
	if a.Reported() {
		e.endAccount(account)
		return
	}
	e.live[identity.ProcessEntity]--
	if program := c.accounts[identity.ProgramEntity]; program == none {
		e.moveToOthers(account)
	} else {
		e.mergeIntoProgram(program, a)
	}
	e.removeAccount(account)
}

// displaceGroup makes the account of a program, container, pod or VM a candidate. Its series goes
// to an account of its own.
func (e *Engine) displaceGroup(account int32) {
	a := &e.ledger.accounts[account]
	entity := a.Entity
	e.live[entity]--
	a.earned = 0
	if a.Reported() {
		ended := *a
		ended.refs, ended.idleMembers, ended.request = 0, 0, 0
		i := e.ledger.add(ended)
		a = &e.ledger.accounts[account]
		a.rank.gained += a.recent()
		a.reset()
		a.Lifetime = Lifetime{}
		a.twin, e.ledger.accounts[i].twin = i, account
		e.keepEnded(i)
	}
	e.enqueue(entity, account)
}

// beginSeries gives a candidate's account a series, with what the current interval brought. A
// series that ended and was not acknowledged goes on.
func (e *Engine) beginSeries(account int32) {
	a := &e.ledger.accounts[account]
	e.dequeue(a.Entity, account)
	e.live[a.Entity]++
	earliest := e.at
	if a.Entity == identity.ProgramEntity { // it may have the energy of a process that lost its series
		earliest = e.emittedAt
	}
	if a.Start.Before(earliest) {
		a.Start = earliest
	}
	if a.twin != none {
		ended := &e.ledger.accounts[a.twin]
		a.merge(ended)
		a.Start, a.first = ended.Start, ended.first
		for kind := range ended.amounts {
			a.amounts[kind].first = ended.amounts[kind].first
		}
		a.Owner.Names = ended.Owner.Names
		a.rank.gained -= min(a.rank.gained, ended.recent()) // it is in Recent again
		e.removeAccount(a.twin)
	}
}

// standingOf returns the standing of a claimant's process. It is valid until a process becomes a
// candidate, or is none any more.
func (e *Engine) standingOf(c *claimant) *standing {
	if c.candidate == none {
		return &c.waits
	}
	return &e.waiting[c.candidate].standing
}

// isOldEnough reports whether a claimant's process has the age that a series takes.
func (e *Engine) isOldEnough(id Claimant) bool {
	c := e.claimants[id]
	return c.early || max(e.at.UnixNano()-c.since, 0) >= int64(e.cfg.Limits[identity.ProcessEntity].MinAge)
}

// hasEarned reports whether a process has used enough to have a series.
func (e *Engine) hasEarned(w *standing) bool {
	return w.earned > 0 && w.earned >= e.cfg.Limits[identity.ProcessEntity].MinEnergy
}

// enqueueProcess makes a claimant's process a candidate.
func (e *Engine) enqueueProcess(id Claimant) {
	c := e.claimants[id]
	c.candidate = int32(len(e.waiting))
	e.waiting = append(e.waiting, candidate{c.waits, id, c.running})
}

func (e *Engine) dequeueProcess(c *claimant) {
	if c.candidate == none {
		return
	}
	last := len(e.waiting) - 1
	c.waits = e.waiting[c.candidate].standing
	e.waiting[c.candidate] = e.waiting[last]
	e.claimants[e.waiting[c.candidate].claimant].candidate = c.candidate
	e.waiting, c.candidate = e.waiting[:last], none
}

// enqueue makes an account of another entity than a process a candidate.
func (e *Engine) enqueue(entity identity.Entity, i int32) {
	e.ledger.accounts[i].candidate = int32(len(e.candidates[entity]))
	e.candidates[entity] = append(e.candidates[entity], i)
}

func (e *Engine) dequeue(entity identity.Entity, i int32) {
	a := &e.ledger.accounts[i]
	if a.candidate == none {
		return
	}
	q := e.candidates[entity]
	last := len(q) - 1
	q[a.candidate] = q[last]
	e.ledger.accounts[q[last]].candidate = a.candidate
	e.candidates[entity], a.candidate = q[:last], none
}
