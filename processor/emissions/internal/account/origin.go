// SPDX-License-Identifier: Apache-2.0

package account

import (
	"time"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// Spell is an interval with its mean rate.
type Spell struct {
	From, Until uint64
	Mean        signal.Mean
	Known       bool
	rate        signal.Rate // multiplied by the PUE
}

// origin is the source of several series that are measured at the same times.
type origin struct {
	spells [8]Spell // intervals with different ends; of several with the same end, the shortest
	seen   int64

	round          uint32
	newest         uint64 // time of the newest point
	beforeTheRound uint64 // time of the newest point of earlier rounds
}

// Knows reports whether an origin was seen before.
func (a *Accounts) Knows(id uint64) bool { return a.origins[id] != nil }

// Open adds an origin. Its first interval begins at the earliest from of all calls for the origin.
func (a *Accounts) Open(id, from uint64) {
	o := a.origins[id]
	switch {
	case o == nil && len(a.origins) < a.o.MaxSeries:
		a.origins[id] = &origin{newest: from, beforeTheRound: from, round: a.round, seen: a.now}
	case o != nil && o.spells[0].Until == 0:
		o.newest, o.beforeTheRound = min(o.newest, from), min(o.beforeTheRound, from)
	}
}

// Follows reports whether a counter that started at a time has been observed since then.
func (a *Accounts) Follows(start uint64) bool { return start >= a.since }

// origin returns an origin, and adds it if it is new.
func (a *Accounts) origin(id uint64) *origin {
	o := a.origins[id]
	if o == nil {
		o = &origin{round: a.round}
		a.origins[id] = o
	}
	o.seen = a.now
	if o.round != a.round {
		o.round, o.beforeTheRound = a.round, o.newest
	}
	return o
}

// between returns the interval from one point of a series to the next.
func (a *Accounts) between(o *origin, from, until uint64) Spell {
	o.newest = max(o.newest, until)
	known := o.ending(until)
	switch {
	case known == nil:
		return o.keep(a.spell(from, until))
	case known.From < from:
		*known = a.spell(from, until)
	case known.From > from:
		return a.spell(from, until)
	}
	return *known
}

// begin returns the interval of the first point of a series: the interval of the origin that ends
// at the point. If there is no such interval, it begins at the newest point of earlier rounds.
// Without an earlier point, it begins at the start time of the point.
func (a *Accounts) begin(o *origin, p *Point) Spell {
	if known := o.ending(p.At); known != nil {
		return *known
	}
	from := o.beforeTheRound
	if from == 0 || from >= p.At {
		from = p.Start
	}
	if from == 0 || from >= p.At {
		from = p.At - min(p.At, uint64(time.Second))
	}
	o.newest = max(o.newest, p.At)
	return o.keep(a.spell(from, p.At))
}

// ending returns the interval that ends at a time, or nil.
func (o *origin) ending(at uint64) *Spell {
	for i := range o.spells {
		if o.spells[i].Until == at {
			return &o.spells[i]
		}
	}
	return nil
}

// keep stores an interval and drops the interval with the earliest end. Therefore the intervals of
// slow meters do not displace the interval of the collection.
func (o *origin) keep(s Spell) Spell {
	kept := &o.spells[0]
	for i := range o.spells {
		if o.spells[i].Until < kept.Until {
			kept = &o.spells[i]
		}
	}
	*kept = s
	return s
}

// spell returns an interval with its rate.
func (a *Accounts) spell(from, until uint64) Spell {
	s := Spell{From: from, Until: until}
	if a.o.Signal != nil {
		s.Mean, s.Known = a.o.Signal.Mean(time.Unix(0, int64(from)).UTC(), time.Unix(0, int64(until)).UTC())
		s.rate = signal.Rate((uint64(s.Mean.Rate)*a.pue + 500_000) / 1_000_000) // rates are below signal.MaxRate
	}
	return s
}
