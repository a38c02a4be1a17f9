// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// emissions counts the emissions of a ledger. Their numbers begin at 1. In a restored ledger,
// number 1 represents all earlier emissions.
type emissions struct {
	sent    uint64 // number of the last emission
	settled uint64 // the last emission that was acknowledged, at least in part, or refused for good
	taken   uint64 // the last emission that was acknowledged, at least in part
	acked   uint64 // the last emission that was acknowledged as a whole
}

// restoredEmission is the number of the emissions before a state.
const restoredEmission = 1

// Lifetime records the first emission of a zone, a kind or an account, and the first emission with
// its end. The zero Lifetime was in no emission and has not ended.
type Lifetime struct {
	first uint64 // number of the first emission, 0 before it
	end   uint64 // number of the first emission that has the end, 0 before the end
}

// Ended reports whether there is an end.
func (t *Lifetime) Ended() bool { return t.end != 0 }

// Reported reports whether there was an emission before the end.
func (t *Lifetime) Reported() bool { return t.first != 0 && t.first != t.end }

// Settled reports whether the next consumer may have points of a zone, a kind or an account. This
// is the case if one of its emissions was acknowledged, at least in part, or refused for good.
func (l *Totals) Settled(t *Lifetime) bool { return isSettled(t.first, l.settled) }

// SettledIn is Settled of the series of an account in one kind.
func (l *Totals) SettledIn(a *Account, kind int) bool {
	return kind < len(a.amounts) && isSettled(a.amounts[kind].first, l.settled)
}

func isSettled(first, settled uint64) bool { return first != 0 && first <= settled }

// Delivered reports whether the end of a zone, a kind or an account was acknowledged.
func (l *Totals) Delivered(t *Lifetime) bool { return t.end != 0 && t.end <= l.acked }

// end ends a lifetime, if it has not ended yet. The next emission has the end.
func (l *Totals) end(t *Lifetime) {
	if t.end == 0 {
		t.end = l.sent + 1
	}
}

// setEnded sets whether a lifetime has ended.
func (l *Totals) setEnded(t *Lifetime, ended bool) {
	if ended {
		l.end(t)
	} else {
		t.end = 0
	}
}

// note updates the number of the first emission of a series after each emission. isIn reports
// whether the emission has the series. If it has not, and all earlier emissions with the series
// were refused, the series has no first emission.
func (l *Totals) note(first *uint64, isIn bool) {
	switch {
	case isIn && *first == 0:
		*first = l.sent
	case !isIn && *first > l.settled:
		*first = 0
	}
}

// delivery holds the state of the last emission.
type delivery struct {
	emittedAt time.Time // end of the last interval that was emitted, or the baseline
	inFlight  bool      // the outcome of the last emission is not available yet
}

// Emitted records that the ledger was emitted, and begins the next collection. The outcome of the
// emission is passed to Outcome before the next call of Emitted.
func (l *Ledger) Emitted() {
	l.sent++
	l.inFlight, l.emittedAt = true, l.at
	for i := range l.Zones {
		z := &l.Zones[i]
		l.note(&z.first, l.Known(z))
		z.Recent, z.RecentTime = 0, 0
	}
	for i := range l.Kinds {
		k := &l.Kinds[i]
		l.note(&k.first, k.Present)
		k.RecentTime, k.RecentActive, k.RecentIdle, k.Windows = 0, 0, 0, 0
	}
	l.Elapsed, l.Busy, l.Total = 0, 0, 0
	l.sharer.BeginCollection()
	clear(l.Domains)
	l.rankAll(l.sent%forgiveAfter == 0)
	for a := range l.Accounts {
		l.noteAccount(a)
	}
}

// rankAll begins the next collection in the ranks of accounts and candidates.
func (l *Ledger) rankAll(forgive bool) {
	for entity := range identity.NumEntities {
		for i := range l.candidates[entity] {
			w := &l.candidates[entity][i]
			_, recent := l.unmoved(entity, w)
			w.rank.next(recent, false, forgive)
		}
	}
	for i := range l.accounts {
		a := &l.accounts[i]
		a.rank.next(a.recent(), a.first == 0 && a.live(), forgive)
		for i := range a.amounts {
			a.amounts[i].Recent, a.amounts[i].RecentIdle = 0, 0
		}
	}
}

// noteAccount notes which series of an account an emission has.
func (l *Totals) noteAccount(a *Account) {
	kinds := l.countKinds()
	a.grow(kinds)
	for kind := range kinds {
		l.note(&a.amounts[kind].first, l.HasSeries(a, kind))
	}
	l.note(&a.first, true) // last, because it changes the result of HasSeries
}

// Outcome is the answer of the next consumer to an emission.
type Outcome uint8

const (
	// Acknowledged means that the next consumer took the whole emission.
	Acknowledged Outcome = iota
	// PartlyAcknowledged means that the next consumer took a part of the emission. Which part is
	// not reported, so it may have each of its series.
	PartlyAcknowledged
	// RefusedForGood means that the next consumer accepted no part, and would not accept it later
	// either.
	RefusedForGood
	// Refused means that the next consumer accepted no part.
	Refused
)

// Outcome records the outcome of the last emission. Accounts whose end was acknowledged are
// removed.
func (l *Ledger) Outcome(o Outcome) {
	if l.inFlight = false; o == Refused {
		return
	}
	l.settled, l.SettledAt = l.sent, l.emittedAt
	if o == RefusedForGood {
		return
	}
	l.taken = l.sent
	if o == PartlyAcknowledged {
		return
	}
	l.acked = l.sent
	for i := range l.accounts {
		if l.Delivered(&l.accounts[i].Lifetime) {
			l.removeAccount(int32(i))
		}
	}
}
