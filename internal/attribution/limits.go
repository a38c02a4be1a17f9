// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"cmp"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Limit bounds the series of one entity. Whatever has no series is in the account of its entity's others.
type Limit struct {
	// MinEnergy is the active energy, over all kinds of zones, that a process, container, pod or VM must have used
	// before it gets a series.
	MinEnergy units.Energy
	// Max is how many series may be live at once, 0 for as many as memory is planned for. When a collection ends, the
	// largest users have the series.
	//
	// Series that ended are not counted, so a pipeline that refuses everything keeps no newcomer out. An ended series is
	// kept until its end is acknowledged. Those with an acknowledged value are at most Max. As many are kept without
	// one; the energy of further ones goes to the entity's other account, where it is neither lost nor counted twice,
	// because the destination does not know these series. A collection that was acknowledged in part acknowledges all
	// its series. Beyond twice Max, energy of ended series is counted twice.
	Max int
}

// Limits are those of each entity.
type Limits [numEntities]Limit

// What is planned for where there is no limit, and at most for those that ended.
const (
	maxLive  = 1 << 17
	maxEnded = 10_000
)

func (l *Limit) live() int  { return cmp.Or(l.Max, maxLive) }
func (l *Limit) ended() int { return min(l.live(), maxEnded) }

// rank is by what it is decided who has a series. It stays with a process, container, pod or VM as it gets a series
// and loses it.
type rank struct {
	// usage is the active energy of the collections before the current one. Each counts three quarters of the one
	// that follows it.
	usage units.Energy
	// gained is the active energy of the current collection that is not in the account.
	gained units.Energy
	// lost is how often it lost its series to another. Every 64 collections one is forgiven.
	lost uint8
}

// maxLost is how often a loss makes it harder to come back: after that, nine times the usage of the smallest will do.
const (
	maxLost      = 6
	forgiveAfter = 64
)

// maxUsage bounds each part of a usage, so that nothing overflows.
const maxUsage = 1 << 58

// now returns the usage with that of the current collection.
func (r *rank) now(recent *Amounts) units.Energy {
	return min(r.usage-r.usage/4, maxUsage) + min(r.gained, maxUsage) + min(sum(recent), maxUsage)
}

// next begins a collection. A series that is new counts as one that has long used as much as in its first collection, or
// a smaller one that is older would take its place.
func (r *rank) next(recent *Amounts, isNew, forgive bool) {
	usage := r.now(recent)
	if isNew {
		usage = max(usage, 4*min(sum(recent), maxUsage))
	}
	r.usage, r.gained = usage, 0
	if forgive && r.lost > 0 {
		r.lost--
	}
}

func sum(amounts *Amounts) (total units.Energy) {
	for _, energy := range amounts {
		total = units.AddSaturating(total, energy)
	}
	return total
}

// A newcomer takes a place where its key is above that of the smallest that has one. That is an eighth more usage;
// twice that excess for each time that it lost its place; and any more usage where the series was never reported, as
// its end costs nothing.

func (r *rank) newcomerKey(recent *Amounts) uint64 {
	return units.MulDiv(uint64(r.now(recent)), 9, 8+1<<r.lost)
}

func (r *rank) holderKey(recent *Amounts, reported bool) uint64 {
	usage := uint64(r.now(recent))
	if reported {
		usage += usage / 8
	}
	return usage
}

// contender is a claimant or an account that has a place or wants one.
type contender struct {
	key   uint64
	index int32
}

// queue is a heap of contenders, the least key first.
type queue []contender

func (q queue) heapify() {
	for i := len(q)/2 - 1; i >= 0; i-- {
		q.down(i)
	}
}

func (q queue) down(i int) {
	for {
		least := 2*i + 1
		if least >= len(q) {
			return
		}
		if right := least + 1; right < len(q) && q[right].key < q[least].key {
			least = right
		}
		if q[i].key <= q[least].key {
			return
		}
		q[i], q[least] = q[least], q[i]
		i = least
	}
}

func (q *queue) pop() contender {
	old := *q
	first, last := old[0], len(old)-1
	old[0] = old[last]
	*q = old[:last]
	q.down(0)
	return first
}

// hasPlace reports whether one more series of an entity may live.
func (e *Engine) hasPlace(entity Entity) bool { return e.live[entity] < e.cfg.Limits[entity].live() }

// contest gives the places of an entity to those that use the most. It is called when a collection ends, after what
// the last interval brought was added to the accounts and before that of those without one goes to the others.
func (e *Engine) contest(entity Entity) {
	newcomers := e.newcomers[:0]
	for _, i := range e.waiting[entity] {
		if key, ok := e.newcomer(entity, i); ok {
			newcomers = append(newcomers, contender{^key, i})
		}
	}
	if e.newcomers = newcomers; len(newcomers) == 0 {
		return
	}
	holders, leaving := e.holders[:0], 0
	for i := range e.ledger.accounts {
		a := &e.ledger.accounts[i]
		if a.Entity != entity || !a.live() {
			continue
		}
		if entity == Process {
			if a.claimant == none || a.refs > 1 {
				continue // it changes hands
			}
			if c := e.claimants[a.claimant]; !c.running && c.pending == 0 {
				leaving++ // before the ledger is handed out
				continue
			}
		}
		holders = append(holders, contender{a.rank.holderKey(&a.Recent, a.Reported), int32(i)})
	}
	e.holders = holders
	newcomers.heapify()
	holders.heapify()
	for free := e.cfg.Limits[entity].live() - e.live[entity] + leaving; len(newcomers) > 0; free-- {
		newcomer, displaced := newcomers.pop(), int32(none)
		if free <= 0 {
			if len(holders) == 0 || ^newcomer.key <= holders[0].key {
				return
			}
			displaced = holders.pop().index
		}
		if entity == Process {
			e.admit(Claimant(newcomer.index), true)
		} else {
			e.begin(newcomer.index)
		}
		if displaced != none {
			e.displace(displaced)
		}
	}
}

// newcomer returns the key of one that waits for a place; ok is false where it may not have one yet.
func (e *Engine) newcomer(entity Entity, i int32) (key uint64, ok bool) {
	if entity == Process {
		c := e.claimants[i]
		return c.rank.newcomerKey(&Amounts{}), c.running && c.earned > 0 && c.earned >= e.cfg.Limits[Process].MinEnergy
	}
	a := &e.ledger.accounts[i]
	earned := a.earned + sum(&a.Energy)
	return a.rank.newcomerKey(&a.Recent), earned > 0 && earned >= e.cfg.Limits[entity].MinEnergy
}

// displace takes the series from an account's owner. It ends with what it has.
func (e *Engine) displace(account int32) {
	a := &e.ledger.accounts[account]
	if a.Reported {
		a.rank.lost = min(a.rank.lost+1, maxLost)
	}
	if a.Entity == Process {
		id := a.claimant
		c := e.claimants[id]
		c.rank, c.earned = a.rank, 0
		c.rank.gained += sum(&a.Recent)
		e.carryUnnamed(c)
		c.accounts[Process] = none
		if c.running {
			e.enqueue(Process, int32(id))
		}
		if a.Reported {
			e.end(account)
			return
		}
		e.live[Process]--
		e.toOthers(account)
		e.remove(account)
		return
	}
	// The account stays its owner's and waits. Its series goes to an account of its own.
	entity := a.Entity
	e.live[entity]--
	a.earned = 0
	if a.Reported {
		ended := *a
		ended.refs, ended.carriers, ended.size = 0, 0, 0
		i := e.ledger.add(ended)
		a = &e.ledger.accounts[account]
		a.rank.gained += sum(&a.Recent)
		a.reset()
		a.Reported, a.acknowledged = false, false
		a.twin, e.ledger.accounts[i].twin = i, account
		e.keepEnded(i)
	}
	e.enqueue(entity, account)
}

// begin gives an account that waits its series. What the current interval brought is its own. A series that ended and
// was not acknowledged goes on.
func (e *Engine) begin(account int32) {
	a := &e.ledger.accounts[account]
	e.dequeue(a.Entity, account)
	e.live[a.Entity]++
	if a.Start.Before(e.at) {
		a.Start = e.at
	}
	if a.twin != none {
		ended := &e.ledger.accounts[a.twin]
		a.merge(ended)
		a.Start, a.Reported, a.acknowledged = ended.Start, ended.Reported, ended.acknowledged
		a.rank.gained -= min(a.rank.gained, sum(&ended.Recent)) // it is in Recent again
		e.remove(a.twin)
	}
}

// settleWaiting settles what an interval brought those without a series.
func (e *Engine) settleWaiting(entity Entity) {
	for n := len(e.waiting[entity]) - 1; n >= 0; n-- {
		i := e.waiting[entity][n]
		if _, ok := e.newcomer(entity, i); ok && e.hasPlace(entity) {
			e.begin(i)
		} else {
			e.toOthers(i)
		}
	}
}

// toOthers moves what an account has to that of its entity's others.
func (e *Engine) toOthers(account int32) {
	a := &e.ledger.accounts[account]
	if a.empty() {
		return
	}
	others := e.others[a.Entity]
	if others == none {
		others = e.ledger.add(Account{Entity: a.Entity, Other: true, Start: e.baseline, refs: 1})
		e.others[a.Entity] = others
		a = &e.ledger.accounts[account]
	}
	e.ledger.accounts[others].merge(a)
	a.earned = units.AddSaturating(a.earned, sum(&a.Energy))
	a.rank.gained = units.AddSaturating(a.rank.gained, sum(&a.Recent))
	a.reset()
}

// enqueue has a claimant, or the account of another entity, wait for a place.
func (e *Engine) enqueue(entity Entity, i int32) {
	*e.queued(entity, i) = int32(len(e.waiting[entity]))
	e.waiting[entity] = append(e.waiting[entity], i)
}

func (e *Engine) dequeue(entity Entity, i int32) {
	q, at := e.waiting[entity], e.queued(entity, i)
	if *at == none {
		return
	}
	last := len(q) - 1
	q[*at] = q[last]
	*e.queued(entity, q[*at]) = *at
	*at = none
	e.waiting[entity] = q[:last]
}

// queued is where it is told at which place in the queue one waits.
func (e *Engine) queued(entity Entity, i int32) *int32 {
	if entity == Process {
		return &e.claimants[i].queued
	}
	return &e.ledger.accounts[i].queued
}

func (a *Account) merge(o *Account) {
	for kind := range a.Energy {
		a.add(kind, o.Energy[kind], o.Recent[kind])
		a.addIdle(kind, o.Idle[kind], o.RecentIdle[kind])
	}
	a.CPU += o.CPU
}

// live reports whether the account is a series that goes on.
func (a *Account) live() bool { return a.queued == none && !a.Ended && !a.Other }

func (a *Account) empty() bool {
	var zero Amounts
	return a.CPU == 0 && a.Energy == zero && a.Idle == zero
}

func (a *Account) reset() {
	a.Energy, a.Recent, a.Idle, a.RecentIdle, a.CPU = Amounts{}, Amounts{}, Amounts{}, Amounts{}, 0
}
