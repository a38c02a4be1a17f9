// SPDX-License-Identifier: Apache-2.0

// Package account computes the emissions of energy series: it multiplies the energy of each
// interval by the mean carbon intensity of that interval.
//
// The package uses neither pdata nor a clock. Times are nanoseconds since 1970, as in OTLP points;
// energy is in whole microjoules, rates in µg per kWh, emissions in whole µg.
package account

import (
	"math"
	"time"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/metadata"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// Options configures Accounts.
type Options struct {
	// Signal is the carbon intensity. Without a signal no emissions are computed.
	Signal signal.Signal
	// PUE multiplies all energy.
	PUE float64
	// MaxSeries is the maximum number of series.
	MaxSeries int
	// Since is the start of the accounting. If a counter started earlier, only the energy after its
	// first point counts.
	Since time.Time
}

// Point is a point of a cumulative counter of energy.
type Point struct {
	Series uint64 // identifies the counter
	Origin uint64 // identifies the component that measured it
	Start  uint64 // when the counter was at 0, or 0 if this time is not available
	At     uint64
	Energy uint64 // since Start, at most math.MaxInt64
}

// Reason is the reason why the energy of a point does not count, or Counted.
type Reason = metadata.AttributeSkipReason

// The results of observing a point.
const (
	Counted      Reason = 0
	OutOfOrder          = metadata.AttributeSkipReasonOutOfOrder   // older than the last point of the series
	Full                = metadata.AttributeSkipReasonLimit        // the number of series is MaxSeries
	Inconsistent        = metadata.AttributeSkipReasonInconsistent // does not continue the series
)

// Series is an energy series with its emissions.
type Series struct {
	start, at, energy uint64 // of the last point
	seen              int64  // time of the last round with a point
	total             total
}

// total holds the emissions of a series.
type total struct {
	amount
	start uint64 // when the emissions were 0
	begun bool   // a rate was available
}

// Total returns the emissions of the series in µg and their start timestamp. ok is false until a
// rate is available.
func (s *Series) Total() (micrograms int64, start uint64, ok bool) {
	return s.total.whole, s.total.start, s.total.begun
}

// Accounts holds all series. It is not safe for concurrent use. Use New to create it.
type Accounts struct {
	o       Options
	pue     uint64 // in millionths
	since   uint64
	series  map[uint64]*Series
	origins map[uint64]*origin
	// forgotten holds the time of the last point of each series that was removed or rejected.
	forgotten map[uint64]uint64

	round uint32
	now   int64 // when the round began

	// Missed is the energy, in µJ, of intervals without a rate in this round.
	Missed uint64
	// Latest is the latest interval of this round, or the zero Spell.
	Latest Spell
}

// New returns accounts without series.
func New(o Options) *Accounts {
	return &Accounts{
		o: o, pue: uint64(math.Round(o.PUE * 1e6)), since: uint64(o.Since.UnixNano()),
		series: map[uint64]*Series{}, origins: map[uint64]*origin{}, forgotten: map[uint64]uint64{},
	}
}

// Begin begins a round: a set of points that arrived together.
func (a *Accounts) Begin(now time.Time) {
	a.round++
	a.now, a.Missed, a.Latest = now.UnixNano(), 0, Spell{}
}

// Len returns the number of series.
func (a *Accounts) Len() int { return len(a.series) }

// Lookup returns a series, or nil.
func (a *Accounts) Lookup(id uint64) *Series { return a.series[id] }

// Observe adds the energy of a point to its series. The series is nil if the result is Full or
// OutOfOrder.
//
// The energy between two points of a series is multiplied by the mean rate between them. For the
// first point, and for the first point after a reset of the counter, the time of use is not
// available. The energy up to this point is multiplied by the mean rate of the origin's interval
// that ends at the point.
//
// A point with the same time as the last point of the series is a duplicate, and does not count.
func (a *Accounts) Observe(p *Point) (*Series, Reason) {
	s := a.series[p.Series]
	isNew := s == nil
	if isNew && len(a.series) >= a.o.MaxSeries {
		a.remember(p.Series, p.At)
		return nil, Full
	}
	o := a.origin(p.Origin)
	if isNew {
		s = &Series{}
		a.series[p.Series] = s
	}
	s.seen = a.now
	var spell Spell
	energy, reason := uint64(0), Counted
	switch {
	case !isNew && p.At == s.at:
		return s, Counted
	case !isNew && p.At < s.at:
		return nil, OutOfOrder
	case isNew || p.Start != s.start && p.Start >= s.at: // the counter started
		spell = a.begin(o, p)
		s.total = total{start: p.At}
		switch {
		case p.Start >= p.At: // in OTLP, the start is not available: the energy may be old
			if !isNew {
				reason = Inconsistent
			}
		case !isNew || p.Start >= a.forgotten[p.Series] && a.Follows(p.Start): // counted since its start
			s.total.start, energy = p.Start, p.Energy
		}
		delete(a.forgotten, p.Series)
	default:
		spell = a.between(o, s.at, p.At)
		if p.Energy < s.energy || apart(p.Start, s.start) >= jitter {
			reason = Inconsistent
		} else {
			energy = p.Energy - s.energy
		}
	}
	s.start, s.at, s.energy = p.Start, p.At, p.Energy
	a.count(s, energy, spell)
	return s, reason
}

// jitter is the maximum difference between two start times of the same counter, in nanoseconds:
// some exporters compute the start time anew for each point.
const jitter = uint64(time.Second)

func apart(a, b uint64) uint64 { return max(a, b) - min(a, b) }

// count adds the emissions of the energy of an interval. The point at the end of the interval must
// already be the last point of the series.
func (a *Accounts) count(s *Series, energy uint64, spell Spell) {
	switch t := &s.total; {
	case a.o.Signal == nil:
	case spell.Known:
		t.begun = true
		t.add(energy, spell.rate)
	default:
		a.Missed += min(energy, math.MaxUint64-a.Missed)
		if !t.begun {
			t.start = s.at
		}
	}
	if spell.Until > a.Latest.Until {
		a.Latest = spell
	}
}

// Forget removes the series and origins that were last seen before a time. If a counter continues
// after the removal, its energy up to the next point does not count.
func (a *Accounts) Forget(since time.Time) {
	for id, s := range a.series {
		if s.seen < since.UnixNano() {
			delete(a.series, id)
			a.remember(id, s.at)
		}
	}
	for id, o := range a.origins {
		if o.seen < since.UnixNano() {
			delete(a.origins, id)
		}
	}
}

// remember stores the time of the last point of a series that was removed or rejected. If the
// series appears again, its energy up to this time does not count. A full list is cleared. Then the
// energy of all series that appear later counts only after the latest of the times in the list.
func (a *Accounts) remember(id, at uint64) {
	if len(a.forgotten) >= a.o.MaxSeries {
		for _, last := range a.forgotten {
			a.since = max(a.since, min(last, uint64(a.now))) // a clock may be wrong
		}
		clear(a.forgotten)
	}
	a.forgotten[id] = at
}
