// SPDX-License-Identifier: Apache-2.0

package attribution

import "github.com/energyreceiver/energyreceiver/internal/units"

// Emitted notes that the ledger was emitted: the next collection begins. What is said of the emission later, with
// Acknowledged, PartlyAcknowledged or Refused, is said of all that was emitted until then.
func (e *Engine) Emitted() {
	e.emissions++
	e.inFlight = true
	e.ledger.nextCollection()
	forgive := e.emissions%forgiveAfter == 0
	for i := range e.ledger.accounts {
		e.ledger.accounts[i].nextCollection(forgive)
	}
	for _, id := range e.candidates[units.ProcessEntity] {
		e.claimants[id].rank.next(0, false, forgive)
	}
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
		k.RecentTime, k.RecentActive, k.RecentIdle = 0, 0, 0
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

// Acknowledged notes that the next consumer took the whole last emission. Accounts whose end was in it are removed.
func (e *Engine) Acknowledged() {
	e.inFlight = false
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

// PartlyAcknowledged notes that the next consumer took a part of the last emission. Which part is not known, so that
// each of its series may be known there.
func (e *Engine) PartlyAcknowledged() {
	e.inFlight = false
	for i := range e.ledger.accounts {
		a := &e.ledger.accounts[i]
		a.acknowledged = a.acknowledged || a.Reported || a.EndSent
	}
}

// Refused notes that the next consumer took nothing of the last emission.
func (e *Engine) Refused() { e.inFlight = false }
