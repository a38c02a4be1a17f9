// SPDX-License-Identifier: Apache-2.0

package attribution

import "time"

// delivery holds the state of the last emission.
type delivery struct {
	emissions uint64
	emittedAt time.Time // end of the last interval that was emitted, or the baseline
	inFlight  bool      // the last emission was neither acknowledged nor refused yet
}

// Emitted notes that the ledger was emitted: the next collection begins. What is said of the
// emission later, with Acknowledged, PartlyAcknowledged, Refused or RefusedForGood, is said of all
// that was emitted until then.
func (e *Engine) Emitted() {
	e.emissions++
	e.inFlight, e.emittedAt = true, e.at
	e.ledger.noteEmitted()
	e.ledger.nextCollection()
	forgive := e.emissions%forgiveAfter == 0
	for i := range e.ledger.accounts {
		e.ledger.accounts[i].nextCollection(forgive)
	}
	for i := range e.waiting {
		e.waiting[i].rank.next(0, false, forgive)
	}
}

// noteEmitted notes which series the emission has.
func (l *Ledger) noteEmitted() {
	for i := range l.Zones {
		z := &l.Zones[i]
		z.emitted = z.emitted || z.Known()
	}
	kinds := l.Kinds[:l.countKinds()]
	for i := range kinds {
		kinds[i].emitted = kinds[i].Present
	}
	for a := range l.Accounts {
		a.emitted |= l.seriesOf(a)
	}
}

// seriesOf returns which series an account has.
func (l *Ledger) seriesOf(a *Account) seriesSet {
	s := seriesSet(1) << CPUTimeSeries
	for kind := range l.countKinds() {
		if l.HasSeries(a, kind) {
			s |= 1 << kind
		}
	}
	return s
}

// nextCollection begins a collection for the node, its domains, zones and kinds.
func (l *Ledger) nextCollection() {
	for i := range l.Zones {
		z := &l.Zones[i]
		z.Recent, z.RecentTime = 0, 0
		z.endSent = z.Ended
	}
	for i := range l.Kinds {
		k := &l.Kinds[i]
		k.RecentTime, k.RecentActive, k.RecentIdle, k.Windows = 0, 0, 0, 0
		k.endSent = k.Ended
	}
	l.Elapsed, l.Busy, l.Total = 0, 0, 0
	clear(l.Domains)
}

func (a *Account) nextCollection(forgive bool) {
	a.rank.next(a.recent(), !a.Reported && a.live(), forgive)
	for i := range a.amounts {
		a.amounts[i].Recent, a.amounts[i].RecentIdle = 0, 0
	}
	a.EndSent, a.Reported = a.Ended, a.Reported || a.live() && !a.awaitsNames() || a.Other
}

// Acknowledged notes that the next consumer took the whole last emission. Accounts whose end was in
// it are removed.
func (e *Engine) Acknowledged() {
	e.settleEmission()
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
			e.removeAccount(int32(i))
		}
	}
}

// PartlyAcknowledged notes that the next consumer took a part of the last emission. Which part is
// not known, so that each of its series may be known there.
func (e *Engine) PartlyAcknowledged() {
	e.settleEmission()
	for i := range e.ledger.accounts {
		a := &e.ledger.accounts[i]
		a.acknowledged = a.acknowledged || a.Reported || a.EndSent
	}
}

// Refused notes that the next consumer took nothing of the last emission. So what was in no settled
// emission is in none yet, and may be missing from the next one.
func (e *Engine) Refused() {
	e.inFlight = false
	l := &e.ledger
	for i := range l.Zones {
		l.Zones[i].emitted = l.Zones[i].Settled
	}
	for i := range l.Kinds {
		l.Kinds[i].emitted = l.Kinds[i].Settled
	}
	for i := range l.accounts {
		l.accounts[i].emitted = l.accounts[i].settled
	}
}

// RefusedForGood notes that the next consumer took nothing of the last emission, and would not take
// it later either.
func (e *Engine) RefusedForGood() { e.settleEmission() }

// settleEmission notes that the next consumer may know every series of the last emission.
func (e *Engine) settleEmission() {
	e.inFlight = false
	l := &e.ledger
	l.Settled = e.emittedAt
	for i := range l.Zones {
		l.Zones[i].Settled = l.Zones[i].emitted
	}
	for i := range l.Kinds {
		l.Kinds[i].Settled = l.Kinds[i].emitted
	}
	for i := range l.accounts {
		l.accounts[i].settled = l.accounts[i].emitted
	}
}
