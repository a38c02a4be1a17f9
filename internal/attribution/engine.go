// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Config is how an engine attributes.
type Config struct {
	Rules  Rules
	Limits Limits
}

// Claimant is someone who may claim CPU time: a process while it runs one program in one place.
type Claimant int32

// NoClaimant is the claimant of unseen time that belongs to no container.
const NoClaimant Claimant = -1

type claimant struct {
	owner    Owner
	since    time.Time
	accounts [numEntities]int32 // index of its account of each entity, or none
	earned   units.Energy       // while it had no account of its own
	rank     rank               // while it has none
	queued   int32              // where it is in the queue of those that wait for one, or none
	open     bool
	running  bool
	carriers int32 // those of idle energy that it is one of, or none
	place    int32 // its place among these that have an account of their own, or none
	excluded bool  // what it uses is static
	pending  int32 // zones whose pending energy it has claims to

	// What the current interval brings it, until settle.
	touched bool
	credit  Amounts
	recent  Amounts
	cpu     units.CPUTime
}

const (
	none        = -1
	othersIndex = 0
)

// Engine attributes energy. It is used from one goroutine.
type Engine struct {
	cfg      Config
	ledger   Ledger
	baseline time.Time
	at       time.Time // end of the last interval

	index     map[series]int32 // accounts by what they are
	claimants []*claimant      // nil for one that is released
	unused    []Claimant
	idle      idleSharing
	touched   []Claimant

	live               [numEntities]int     // series that go on, without the others'
	ended              [numEntities]int     // series that wait for their delivery
	others             [numEntities]int32   // accounts of the others, or none
	waiting            [numEntities][]int32 // without a series: claimants of processes, accounts of the other entities
	newcomers, holders queue                // scratch of contest
	collections        uint64

	trained [MaxKinds]TrainedModel // those of the models that learn

	excluded bool // somebody is, or was

	unanswered bool // what was handed out may yet reach its destination

	sums     []domainSums // of the interval that is observed, by domain
	resolved []*pending   // that were attributed in it
	spare    []*pending   // that are unused
}

// New returns an engine whose totals are 0 at the baseline.
func New(cfg Config, baseline time.Time) *Engine {
	e := &Engine{
		cfg: cfg, baseline: baseline, at: baseline, index: map[series]int32{},
		idle: idleSharing{index: map[[numEntities]int32]int32{}},
	}
	e.others = [numEntities]int32{Container: none, Pod: none, VM: none}
	for kind, model := range cfg.Rules.Models {
		e.trained[kind], _ = model.(TrainedModel)
	}
	e.others[Process] = e.ledger.add(Account{Entity: Process, Other: true, Start: baseline, refs: 1})
	return e
}

// Open returns a new claimant. Its series start at since, which is not before the baseline.
func (e *Engine) Open(owner Owner, since time.Time) Claimant {
	var id Claimant
	if n := len(e.unused); n > 0 {
		id, e.unused = e.unused[n-1], e.unused[:n-1]
	} else {
		id = Claimant(len(e.claimants))
		e.claimants = append(e.claimants, nil)
	}
	e.claimants[id] = &claimant{owner: owner, since: since, open: true, queued: none}
	c := e.claimants[id]
	for entity := range numEntities {
		c.accounts[entity] = none
		if entity != Process {
			c.accounts[entity] = e.account(entity, &c.owner, since, e.hasPlace(entity))
		}
	}
	c.running = true
	e.startCarrying(c)
	e.admit(id, e.cfg.Limits[Process].MinEnergy == 0 && e.hasPlace(Process))
	return id
}

// Stop says that a claimant has ended: it may still claim the CPU time of its last slice, and has no part of the
// idle energy.
func (e *Engine) Stop(id Claimant) {
	if c := e.claimants[id]; c.running {
		c.running = false
		e.stopCarrying(id)
	}
}

// Exclude makes what a claimant uses static from now on: its CPU time is not busy time, and it has no share.
func (e *Engine) Exclude(id Claimant) {
	e.stopCarrying(id)
	e.claimants[id].excluded, e.excluded = true, true
}

// SetRequest says how much CPU time the container of a claimant requests, in any unit. 0 has no part.
func (e *Engine) SetRequest(id Claimant, size uint64) {
	holder := e.claimants[id].holder()
	if holder == none {
		return
	}
	if a := &e.ledger.accounts[holder]; a.size != min(size, maxSize) {
		a.size, e.idle.reweigh = min(size, maxSize), true
	}
}

// Close ends a claimant. What a lagging zone owes it still reaches it.
func (e *Engine) Close(id Claimant) {
	e.Stop(id)
	c := e.claimants[id]
	c.open = false
	e.releaseIfDone(id)
}

func (e *Engine) releaseIfDone(id Claimant) {
	c := e.claimants[id]
	if c.open || c.pending > 0 {
		return
	}
	for _, account := range c.accounts {
		if account == none {
			continue
		}
		a := &e.ledger.accounts[account]
		if a.refs == 1 {
			e.end(account)
			continue
		}
		if a.refs--; a.claimant == id {
			a.claimant = none
		}
	}
	e.dequeue(Process, int32(id))
	e.claimants[id] = nil
	e.unused = append(e.unused, id)
}

// end ends an account that nobody adds to any more.
func (e *Engine) end(account int32) {
	a := &e.ledger.accounts[account]
	a.refs = 0
	if a.queued != none {
		e.toOthers(account)
		e.dequeue(a.Entity, account)
		e.remove(account)
		return
	}
	e.live[a.Entity]--
	e.keepEnded(account)
}

// keepEnded keeps a series that ended until it was acknowledged, unless there are too many.
func (e *Engine) keepEnded(account int32) {
	a := &e.ledger.accounts[account]
	a.Ended = true
	e.ended[a.Entity]++
	limit, ended := &e.cfg.Limits[a.Entity], e.ended[a.Entity]
	known := a.acknowledged || e.unanswered && a.Reported
	if ended > limit.ended() && !known || ended > limit.ended()+limit.live() {
		e.toOthers(account)
		e.remove(account)
		e.ledger.Dropped++
	}
}

// account returns the account of an owner's entity, for one more claimant. It is none if the owner has no such entity,
// or if it is a process and there is no place for its series. The account of another entity then waits for one. A
// series that ended and was not yet acknowledged goes on.
func (e *Engine) account(entity Entity, owner *Owner, start time.Time, place bool) int32 {
	s, described, ok := owner.seriesOf(entity)
	if !ok {
		return none
	}
	i, known := e.index[s]
	if known && !e.ledger.accounts[i].Ended {
		e.ledger.accounts[i].refs++
		return i
	}
	if !known && entity != Process && e.cfg.Limits[entity].MinEnergy > 0 {
		place = false
	}
	switch {
	case !place && entity == Process:
		return none
	case !place:
		twin := int32(none)
		if known {
			twin = i
		}
		i = e.ledger.add(Account{Entity: entity, Owner: described, Start: start})
		if e.ledger.accounts[i].twin = twin; known {
			e.ledger.accounts[twin].twin = i
		}
		e.enqueue(entity, i)
	case !known:
		i = e.ledger.add(Account{Entity: entity, Owner: described, Start: start})
		e.live[entity]++
	default:
		a := &e.ledger.accounts[i]
		a.Reported = a.Reported || a.EndSent
		a.Ended, a.EndSent, a.rank = false, false, rank{}
		e.ended[entity]--
		e.live[entity]++
	}
	e.index[s] = i
	e.ledger.accounts[i].refs = 1
	return i
}

// admit gives a claimant's process its own account if there is a place for it, or another claimant has it still.
func (e *Engine) admit(id Claimant, place bool) {
	c := e.claimants[id]
	start := c.since
	if start.Before(e.at) {
		start = e.at
	}
	i := e.account(Process, &c.owner, start, place)
	if i == none {
		return
	}
	a := &e.ledger.accounts[i]
	if a.refs == 1 {
		a.rank = c.rank
		a.rank.gained -= min(a.rank.gained, sum(&a.Recent)+sum(&c.recent)) // which are in the account, or will be
	}
	a.claimant, c.accounts[Process] = id, i
	e.dequeue(Process, int32(id))
	e.carryByName(id)
}

// eachGroup calls yield for the accounts of what a claimant is part of.
func (e *Engine) eachGroup(id Claimant, yield func(*Account)) {
	if id == NoClaimant {
		return
	}
	for entity, account := range e.claimants[id].accounts {
		if Entity(entity) != Process && account != none {
			yield(&e.ledger.accounts[account])
		}
	}
}

func (a *Account) add(kind int, energy, recent units.Energy) {
	a.Energy[kind] += energy
	a.Recent[kind] += recent
}

func (e *Engine) touch(id Claimant) *claimant {
	c := e.claimants[id]
	if !c.touched {
		c.touched = true
		e.touched = append(e.touched, id)
	}
	return c
}

// settle adds what the interval brought each claimant to its accounts.
func (e *Engine) settle(endsCollection bool) {
	undecided := e.touched[:0]
	for _, id := range e.touched {
		c := e.claimants[id]
		e.eachGroup(id, c.settleInto)
		if c.accounts[Process] == none {
			e.qualify(id, endsCollection)
		}
		if endsCollection && c.queued != none {
			undecided = append(undecided, id)
			continue
		}
		e.settleProcess(c)
	}
	if endsCollection {
		for entity := range numEntities {
			e.contest(entity)
		}
		for _, id := range undecided {
			e.settleProcess(e.claimants[id])
		}
	}
	for entity := Container; entity < numEntities; entity++ {
		e.settleWaiting(entity)
	}
	e.touched = e.touched[:0]
}

// qualify gives a claimant's process its account if it has earned it by now, or has it wait for one. Who gets the last
// places of a collection is decided among all at once.
func (e *Engine) qualify(id Claimant, endsCollection bool) {
	c := e.claimants[id]
	c.earned += sum(&c.credit)
	if c.queued != none {
		c.rank.gained += sum(&c.recent)
	}
	if c.earned == 0 || c.earned < e.cfg.Limits[Process].MinEnergy {
		return
	}
	if e.hasPlace(Process) && (!endsCollection || !c.running) {
		e.admit(id, true)
	}
	if c.accounts[Process] == none && c.queued == none && c.running && c.owner.Process.PID != 0 {
		c.rank.gained = sum(&c.recent)
		e.enqueue(Process, int32(id))
	}
}

// settleProcess adds it to the process's own account, or to the others'.
func (e *Engine) settleProcess(c *claimant) {
	process := c.accounts[Process]
	if process == none {
		process = othersIndex
	}
	c.settleInto(&e.ledger.accounts[process])
	c.touched, c.credit, c.recent, c.cpu = false, Amounts{}, Amounts{}, 0
}

func (c *claimant) settleInto(a *Account) {
	for kind := range c.credit {
		a.add(kind, c.credit[kind], c.recent[kind])
	}
	a.CPU += c.cpu
}

// Compact gives back the memory that was needed for more claimants and accounts than there are, between two intervals.
func (e *Engine) Compact() {
	e.claimants, e.unused = trimmed(e.claimants, e.unused, func(i int) bool { return e.claimants[i] == nil })
	l := &e.ledger
	l.accounts, l.unused = trimmed(l.accounts, l.unused, func(i int) bool { return l.removed[i] })
	l.removed = slices.Clone(l.removed[:len(l.accounts)])
	e.index, e.idle.index = units.Rebuilt(e.index), units.Rebuilt(e.idle.index)
	e.touched, e.newcomers, e.holders, e.spare = nil, nil, nil, nil
	for entity := range e.waiting {
		e.waiting[entity] = slices.Clone(e.waiting[entity])
	}
}

// trimmed returns the table without its unused end, and the indices before it that are unused.
func trimmed[T any, I ~int32](table []T, unused []I, isUnused func(int) bool) ([]T, []I) {
	n := len(table)
	for n > 0 && isUnused(n-1) {
		n--
	}
	var kept []I
	for _, i := range unused {
		if int(i) < n {
			kept = append(kept, i)
		}
	}
	return slices.Clone(table[:n]), slices.Clip(kept)
}

// Ledger returns what was attributed so far.
func (e *Engine) Ledger() *Ledger { return &e.ledger }

// Emitted says that the ledger was read out: the next collection begins.
func (e *Engine) Emitted() {
	l := &e.ledger
	for i := range l.Zones {
		z := &l.Zones[i]
		z.Recent, z.RecentTime = 0, 0
		z.endSent = z.Ended
	}
	for i := range l.Kinds {
		k := &l.Kinds[i]
		k.RecentTime, k.RecentActive, k.RecentIdle = 0, 0, 0
		k.endSent = k.Ended
	}
	e.unanswered = true
	e.collections++
	forgive := e.collections%forgiveAfter == 0
	for i := range l.accounts {
		a := &l.accounts[i]
		a.rank.next(&a.Recent, !a.Reported && a.live(), forgive)
		a.Recent, a.RecentIdle = Amounts{}, Amounts{}
		a.EndSent, a.Reported = a.Ended, a.Reported || a.live() || a.Other
	}
	for _, id := range e.waiting[Process] {
		e.claimants[id].rank.next(&Amounts{}, false, forgive)
	}
	l.Elapsed, l.Busy, l.Total = 0, 0, 0
}

// Acknowledged notes that what was last handed out has reached its destination. Accounts whose end was in it are
// removed.
func (e *Engine) Acknowledged() {
	e.unanswered = false
	for i := range e.ledger.Zones {
		z := &e.ledger.Zones[i]
		z.Delivered = z.Ended && z.endSent
	}
	for i := range e.ledger.Kinds {
		k := &e.ledger.Kinds[i]
		k.Delivered = k.Ended && k.endSent
	}
	for i := range e.ledger.accounts {
		a := &e.ledger.accounts[i]
		if a.acknowledged = a.Reported; a.Ended && a.EndSent {
			e.remove(int32(i))
		}
	}
}

// PartlyAcknowledged notes that some of what was last handed out has reached its destination. Which series is not known, so
// the destination may know each of them.
func (e *Engine) PartlyAcknowledged() {
	e.unanswered = false
	for i := range e.ledger.accounts {
		a := &e.ledger.accounts[i]
		a.acknowledged = a.acknowledged || a.Reported || a.EndSent
	}
}

// Refused notes that nothing of what was last handed out has reached its destination.
func (e *Engine) Refused() { e.unanswered = false }

// remove forgets an account that has ended or never had a series.
func (e *Engine) remove(account int32) {
	a := &e.ledger.accounts[account]
	if a.Ended {
		e.ended[a.Entity]--
	}
	s, _, _ := a.Owner.seriesOf(a.Entity)
	if a.twin != none {
		e.index[s], e.ledger.accounts[a.twin].twin = a.twin, none
	} else {
		delete(e.index, s)
	}
	e.ledger.remove(account)
}
