// SPDX-License-Identifier: Apache-2.0

package power

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

var (
	errNotListed   = errors.New("the sensor no longer reports this zone")
	errStandsStill = errors.New("the energy counter stands still")
	errImpossible  = errors.New("the energy rose by more than is possible in the elapsed time: the step is not counted")
)

// accounts holds the accounts of a meter, in the order in which its zones appeared.
type accounts struct {
	all []*account
	// longestGap is the longest time between two powers that are integrated.
	longestGap time.Duration
	// late marks counters that others update at a later time: while such a counter stands still, its
	// zone has nothing new. After standsStill that is an error, unless standsStill is 0.
	late        bool
	standsStill time.Duration
}

// take adds what a zone shows to its account, which it returns. now replaces a zero time.
func (as *accounts) take(s *Shown, now time.Time) *account {
	a := as.of(s)
	if a.reading.Err = s.Err; s.Err != nil {
		return a
	}
	at := s.At
	if at.IsZero() {
		at = now
	}
	if !at.Equal(a.taken) {
		a.taken = at
		a.err = a.add(s, at, as)
	}
	a.reading.Err = a.err
	return a
}

// of returns the account of a zone, which it makes for a new zone.
func (as *accounts) of(s *Shown) *account {
	i := slices.IndexFunc(as.all, func(a *account) bool { return a.reading.Zone == s.Zone })
	if i >= 0 {
		return as.all[i]
	}
	a := newAccount(s, as.longestGap)
	if i = slices.IndexFunc(as.all, func(a *account) bool { return a.reading.Zone.ID == s.Zone.ID }); i >= 0 {
		as.all[i] = a
	} else {
		as.all = append(as.all, a)
	}
	return a
}

// account makes the Reading of a zone of what the zone shows.
type account struct {
	reading    Reading
	counter    *Counter
	integrator *Integrator
	epoch      string // of the counter
	// ahead is energy that powers added since the counter was last read. The counter counts it too.
	ahead    units.Energy
	taken    time.Time // moment of the last Shown without an error
	err      error     // why that was not counted, or nil
	rejected error     // of the first impossible power since the last good one
	moved    time.Time // when the counter last changed
	listed   time.Time // end of the last poll that showed the zone or its error
}

func newAccount(s *Shown, longestGap time.Duration) *account {
	return &account{
		reading: Reading{Zone: s.Zone}, counter: newCounter(s), integrator: NewIntegrator(mostWatts(s.Zone), longestGap), epoch: s.Epoch,
	}
}

// newCounter returns a counter for the epoch of what is shown.
func newCounter(s *Shown) *Counter {
	if s.Epoch != "" {
		return NewReportCounter()
	}
	return NewCounter(mostWatts(s.Zone), 0)
}

func mostWatts(z *Zone) uint64 { return cmp.Or(z.MaxWatts, MaxWatts(z.Kind)) }

// read returns the reading. Its event is not returned again.
func (a *account) read() Reading {
	r := a.reading
	a.reading.Event = NoEvent
	return r
}

// add adds a power or a step of the counter. The error is why it is not counted.
func (a *account) add(s *Shown, at time.Time, as *accounts) error {
	if s.IsPower {
		return a.addPower(s, at)
	}
	restarted := a.follow(s)
	before := a.counter.Raw()
	counted, event := a.counter.Add(s.Counter, at)
	isReport := s.Zone.Method == Reported
	switch {
	case restarted:
		event = Rebased
	case isReport && event == Rebased && s.Counter > before.Energy:
		a.note(event)
		return errImpossible
	case as.late && !isReport && counted == 0 && event == NoEvent:
		if as.standsStill > 0 && at.Sub(a.moved) > as.standsStill {
			return errStandsStill
		}
		return nil
	}
	a.moved = at
	if event != NoEvent {
		a.ahead = 0 // the counter does not say what was before
	}
	a.integrator.Skip(at, event != Appeared)
	known := min(counted, a.ahead)
	a.ahead -= known
	a.count(counted-known, event, at)
	if s.Transient {
		a.reading.Raw = Raw{Range: s.Range, MaxWatts: a.counter.watts}
	}
	return nil
}

// follow prepares the counter for the epoch and the range of what is shown, and reports whether it
// is another counter than before.
func (a *account) follow(s *Shown) (restarted bool) {
	if restarted = s.Epoch != a.epoch; restarted {
		if a.epoch != "" && s.Epoch != "" {
			a.counter.Restart()
		} else {
			a.counter = newCounter(s)
		}
		a.epoch = s.Epoch
	}
	if s.Epoch == "" && !s.Transient {
		a.counter.wrapAt = s.Range
	}
	return restarted
}

func (a *account) addPower(s *Shown, at time.Time) error {
	energy, event := a.integrator.Add(s.Power, s.Average, at)
	if event == Rejected {
		a.reading.Rejected++
		a.note(event)
		if a.rejected == nil {
			a.rejected = fmt.Errorf("%d mW is impossible", s.Power/1000)
		}
		return a.rejected
	}
	if event == Gap {
		a.reading.Gaps++
	}
	a.ahead = units.AddSaturating(a.ahead, energy)
	a.count(energy, event, at)
	return nil
}

// count adds energy up to a moment.
func (a *account) count(energy units.Energy, event Event, at time.Time) {
	r := &a.reading
	r.Total = units.AddSaturating(r.Total, energy)
	r.At, r.Unmeasured, a.rejected = at, a.integrator.Unmeasured(), nil
	if r.Raw = a.counter.Raw(); !r.Raw.IsZero() {
		r.Raw.Energy, r.Raw.Epoch = units.AddSaturating(r.Raw.Energy, a.ahead), a.epoch
	}
	a.note(event)
}

// note keeps an event until it is read. A Rebased is kept before others.
func (a *account) note(event Event) {
	if a.reading.Event == NoEvent || event == Rebased {
		a.reading.Event = event
	}
}
