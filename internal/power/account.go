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
	errNotListed  = errors.New("the sensor no longer reports this zone")
	errNotUpdated = errors.New("the energy counter is no longer updated")
	errImpossible = errors.New("the energy rose by more than is possible in the elapsed time: this increase is not counted")
)

// accounts holds the accounts of a meter, in the order of the first readings of its zones.
type accounts struct {
	all []*account
	// longestGap is the maximum time between two power readings that are integrated.
	longestGap time.Duration
	// late marks counters that the device updates at its own times. An unchanged counter is then
	// not a new reading. If maxUnchanged is not 0, a counter that is unchanged for longer is an
	// error.
	late         bool
	maxUnchanged time.Duration
}

// take adds a reading of the hardware to the account of its zone, and returns the account. If the
// time of the reading is zero, now is used.
func (as *accounts) take(s *Shown, now time.Time) *account {
	a := as.of(s)
	at := s.At
	if at.IsZero() {
		at = now
	}
	if s.Err != nil {
		a.reading.Err = s.Err
		if errors.Is(s.Err, ErrUnmeasured) {
			a.integrator.skip(at, false)
			a.reading.Unmeasured = a.integrator.unmeasured
		}
		return a
	}
	if !at.Equal(a.taken) {
		a.taken = at
		a.err = a.add(s, at, as)
	}
	a.reading.Err = a.err
	return a
}

// of returns the account of a zone. It creates the account for a new zone.
func (as *accounts) of(s *Shown) *account {
	i := slices.IndexFunc(as.all, func(a *account) bool { return a.reading.Zone == s.Zone })
	if i >= 0 {
		return as.all[i]
	}
	a := newAccount(s, as)
	if i = slices.IndexFunc(as.all, func(a *account) bool { return a.reading.Zone.ID == s.Zone.ID }); i >= 0 {
		as.all[i] = a
	} else {
		as.all = append(as.all, a)
	}
	return a
}

// account converts the counters and powers of a zone to its Reading.
type account struct {
	reading    Reading
	counter    *counter
	integrator *integrator
	epoch      string // epoch of the counter
	// ahead is the energy that powers added since the counter was last read. It is subtracted from
	// the next increase of the counter, which includes it.
	ahead    units.Energy
	taken    time.Time // time of the last Shown without an error
	err      error     // the reason why the last Shown was not counted, or nil
	rejected error     // error of the first impossible power since the last valid power, or nil
	moved    time.Time // time of the counter's last change
	listed   time.Time // end of the last poll that returned the zone or its error
}

func newAccount(s *Shown, as *accounts) *account {
	return &account{
		reading: Reading{Zone: s.Zone, polled: as.late}, counter: newCounter(mostWatts(s.Zone), 0, s.Epoch), epoch: s.Epoch,
		integrator: newIntegrator(mostWatts(s.Zone), as.longestGap),
	}
}

func mostWatts(z *Zone) uint64 { return cmp.Or(z.MaxWatts, MaxWatts(z.Kind)) }

// read returns the reading. Each event is returned once.
func (a *account) read() Reading {
	r := a.reading
	a.reading.Event = NoEvent
	return r
}

// add adds a power or an increase of the counter. The error is the reason why it is not counted.
func (a *account) add(s *Shown, at time.Time, as *accounts) error {
	if s.IsPower {
		return a.addPower(s, at)
	}
	restarted := a.follow(s)
	before := a.counter.prev
	counted, event := a.counter.add(s.Counter, at)
	isReport := s.Zone.Method == Reported
	switch {
	case restarted:
		event = Rebased
	case isReport && event == Rebased && s.Counter > before:
		a.note(event)
		return errImpossible
	case as.late && !isReport && counted == 0 && event == NoEvent:
		if as.maxUnchanged > 0 && at.Sub(a.moved) > as.maxUnchanged {
			return errNotUpdated
		}
		return nil
	}
	a.moved = at
	if event != NoEvent {
		a.ahead = 0 // the counter does not contain energy from before the event
	}
	a.integrator.skip(at, event != Appeared)
	known := min(counted, a.ahead)
	a.ahead -= known
	a.count(counted-known, event, at)
	if s.Transient {
		a.reading.Raw = Raw{Range: s.Range, MaxWatts: a.counter.watts}
	}
	return nil
}

// follow sets the epoch and the range of the counter, and reports whether the counter restarted
// because the epoch changed.
func (a *account) follow(s *Shown) (restarted bool) {
	if restarted = s.Epoch != a.epoch; restarted {
		if a.epoch != "" && s.Epoch != "" {
			a.counter.seen = false // the used slack is kept
		} else {
			a.counter = newCounter(mostWatts(s.Zone), 0, s.Epoch)
		}
		a.epoch = s.Epoch
	}
	if s.Epoch == "" && !s.Transient {
		a.counter.wrapAt = s.Range
		if s.Zone.Method == Reported && s.Range > 0 { // the range can be missing in earlier reports
			a.counter.watts = MaxWatts(s.Zone.Kind)
		}
	}
	return restarted
}

func (a *account) addPower(s *Shown, at time.Time) error {
	energy, event := a.integrator.addPower(s.Power, s.Average, at)
	if event == Rejected {
		a.reading.Rejected++
		a.note(event)
		if a.rejected == nil {
			a.rejected = fmt.Errorf("%d mW is impossible", s.Power/1000)
		}
		return a.rejected
	}
	if event == Gap && !errors.Is(a.reading.Err, ErrUnmeasured) { // Err of the previous reading
		a.reading.Gaps++
	}
	a.ahead = units.AddSaturating(a.ahead, energy)
	a.count(energy, event, at)
	return nil
}

// count adds energy that was used until the time at.
func (a *account) count(energy units.Energy, event Event, at time.Time) {
	r := &a.reading
	r.Total = units.AddSaturating(r.Total, energy)
	r.At, r.Unmeasured, a.rejected = at, a.integrator.unmeasured, nil
	if r.Raw = a.counter.raw(); !r.Raw.IsZero() {
		r.Raw.Energy, r.Raw.Epoch = units.AddSaturating(r.Raw.Energy, a.ahead), a.epoch
	}
	a.note(event)
}

// note stores an event until the next read. Among several events, it stores Rebased if there is
// one, and otherwise the first event.
func (a *account) note(event Event) {
	if a.reading.Event == NoEvent || event == Rebased {
		a.reading.Event = event
	}
}
