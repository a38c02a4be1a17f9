// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Raw is the last reading of an energy counter. Another process of the same boot can continue from
// it. At is zero if there is no such counter: the zone has a sensor of power, a model, or a counter
// that begins when it is opened.
type Raw struct {
	Energy   units.Energy
	Range    units.Energy // after which the counter continues from 0; 0 if not available
	MaxWatts uint64       // power that the counter never exceeds, in watts
	// At is when the counter was read, with a monotonic clock reading. If its range is not
	// available, it is when the counter last changed.
	At time.Time
	// Epoch identifies the series of totals that a hypervisor reports. It is empty for other
	// counters.
	Epoch string
}

// IsZero reports whether there is no counter.
func (r Raw) IsZero() bool { return r.At.IsZero() }

// Past is the state of an earlier Set of the same boot, for a Set to resume. It holds no
// pointers, so all of it can be stored. Its times are valid in the process that made it. Another
// process that reads the Past converts them by CLOCK_MONOTONIC (see counter.add).
type Past struct {
	Sample Sample     // of the last Read
	Zones  []PastZone // the reported zones except Other
	Other  PastOther
}

// PastZone is a zone that was reported.
type PastZone struct {
	Zone
	Meter string // name of the Member
	// At is when the energy of the zone was last counted. For a power sensor with
	// ErrUnmeasured, it is the time of the last Read.
	At  time.Time
	Raw Raw // the counter at the time At
}

// PastOther is the state of the zone of kind Other, to resume.
type PastOther struct {
	Known bool // reports whether the zone was reported
	// Balance is the energy that the whole used beyond its parts since the zone was last brought up
	// to date, less the deficit, in µJ.
	Balance int64
}

// Resumption is the result of resuming a zone.
type Resumption struct {
	Zone Zone
	// Elapsed is the time since the past, without Unmeasured of the reading if Err is
	// ErrNotCounted.
	Elapsed time.Duration
	// Err is why some energy of that time is lost. Its text does not depend on the time.
	Err error
}

// Errors of a Resumption. Only a zone with ErrMayHaveWrapped has energy of the time.
var (
	ErrNotCounted = errors.New("no meter counted the energy that was used while the receiver was down")
	ErrReset      = errors.New("the energy counter was reset while the receiver was down")
	// ErrMayHaveWrapped means that the counter could have wrapped once more than it shows, at the
	// highest power of the zone.
	ErrMayHaveWrapped = errors.New("the energy counter may have wrapped while the receiver was down: the counted energy is a lower bound")
	ErrOtherMeter     = errors.New("another meter reads the zone than before the receiver was down")

	// errAwaited is the error of zones that no meter has read since Resume.
	errAwaited = errors.New("not read yet since the receiver was started")
)

// resume is the step of a Set that continues the zones of an earlier Set. A zone of the earlier Set
// is awaited until its meter reads it, or another meter replaces its meter.
type resume struct {
	meters  []Status
	awaited []*awaited
	zones   map[*Zone]resumed // zones that were read after Resume
	began   time.Time         // sample time of the first Read with awaited zones
	done    []Resumption      // zones that the last Read resumed or gave up
}

// awaited is a zone of the past that no Read has found yet.
type awaited struct {
	PastZone
	meter int // negative if there is no such meter
}

// resumed is the state of a resumed zone that is added to the readings of its meter.
type resumed struct {
	energy units.Energy
	since  time.Time // when the total was 0; zero if energy since then is lost
}

// from sets the state to continue from.
func (s *resume) from(p *Past) {
	for i := range p.Zones {
		z := &p.Zones[i]
		meter := slices.IndexFunc(s.meters, func(m Status) bool { return m.Name == z.Meter })
		s.awaited = append(s.awaited, &awaited{*z, meter})
		if z.Method == Modeled && meter >= 0 {
			_, _ = s.meters[meter].Meter.Read(context.Background(), p.Sample) // a model counts from its first read
		}
	}
}

// past appends to zones the zones that another Set can continue: the zones that were read and the
// zones that are still awaited.
func (s *resume) past(zones []PastZone, readings []Reading, now time.Time) []PastZone {
	for i := range readings {
		if r := &readings[i]; !r.At.IsZero() && r.Zone.Kind != Other {
			at := r.At
			if r.Raw.IsZero() && errors.Is(r.Err, ErrUnmeasured) {
				at = now // Unmeasured contains the time until now
			}
			zones = append(zones, PastZone{Zone: *r.Zone, Meter: s.meters[r.meter].Name, At: at, Raw: r.Raw})
		}
	}
	for _, a := range s.awaited {
		zones = append(zones, a.PastZone)
	}
	return zones
}

// isPatient reports whether awaited zones may still be read. It returns true until partPatience
// after its first call.
func (s *resume) isPatient(now time.Time) bool {
	if s.began.IsZero() {
		s.began = now
	}
	return now.Sub(s.began) < partPatience
}

// reserves reports whether a zone of a meter must not be used yet, because a preferred meter read
// the same hardware in the past and has not responded yet.
func (s *resume) reserves(meter int, z *Zone, now time.Time) bool {
	return len(s.awaited) > 0 && s.isPatient(now) && slices.ContainsFunc(s.awaited, func(a *awaited) bool {
		return a.meter >= 0 && a.meter < meter && s.meters[a.meter].IsWaiting() && measureSame(&a.Zone, z)
	})
}

// measureSame reports whether only one of two zones may be used, because they measure the same
// hardware.
func measureSame(a, b *Zone) bool {
	_, locatedA := a.Domain.PCIAddress()
	_, locatedB := b.Domain.PCIAddress()
	return a.Kind == b.Kind && (a.Kind != GPU || !locatedA || !locatedB || a.Domain == b.Domain)
}

// apply adds to each reading the energy that its zone used since the past, and appends a reading
// with an error for each zone that is awaited.
func (s *resume) apply(readings []Reading, now time.Time) []Reading {
	s.done = s.done[:0]
	patient := len(s.awaited) > 0 && s.isPatient(now)
	if len(s.awaited) > 0 {
		for i := range s.meters {
			s.find(i, now)
		}
		s.giveUp(readings, now)
	}
	if len(s.zones) > 0 {
		for i := range readings {
			before := s.zones[readings[i].Zone]
			readings[i].Total = units.AddSaturating(readings[i].Total, before.energy)
			readings[i].since = before.since
		}
	}
	for _, a := range s.awaited {
		listed := slices.ContainsFunc(readings, func(r Reading) bool { return a.isSame(r.Zone) })
		if patient && a.meter >= 0 && !listed {
			r := Reading{Zone: &a.Zone, Err: errAwaited, meter: a.meter}
			if correction := s.meters[a.meter].Correction; correction != nil {
				r.Correction = correction(&a.Zone)
			}
			readings = append(readings, r)
		}
	}
	return readings
}

// giveUp stops awaiting zones whose hardware another meter has read. Otherwise, their energy until
// now would be counted twice.
func (s *resume) giveUp(readings []Reading, now time.Time) {
	s.awaited = slices.DeleteFunc(s.awaited, func(a *awaited) bool {
		replaced := slices.ContainsFunc(readings, func(r Reading) bool {
			return r.meter != a.meter && r.Err == nil && measureSame(&a.Zone, r.Zone)
		})
		if replaced {
			s.done = append(s.done, Resumption{Zone: a.Zone, Elapsed: max(now.Sub(a.At), 0), Err: ErrOtherMeter})
		}
		return replaced
	})
}

// find resumes the awaited zones that a meter has read. A power sensor is also resumed at its first
// ErrUnmeasured, because Unmeasured of its readings contains the time from then on.
func (s *resume) find(meter int, now time.Time) {
	m := &s.meters[meter]
	for i := range m.Readings {
		r := &m.Readings[i]
		at := r.At
		switch {
		case errors.Is(r.Err, ErrUnmeasured):
			at = now
		case r.Err != nil || at.IsZero():
			continue
		}
		of := slices.IndexFunc(s.awaited, func(a *awaited) bool { return a.meter == meter && a.isSame(r.Zone) })
		if of < 0 || r.Raw.IsZero() && !s.awaited[of].Raw.IsZero() { // the reading has no counter yet, such as of a suspended card
			continue
		}
		s.resumeZone(m, r, &s.awaited[of].PastZone, at)
		s.awaited = slices.Delete(s.awaited, of, of+1)
	}
}

// isSame reports whether a zone of the same meter is the zone of the past.
func (z *PastZone) isSame(o *Zone) bool {
	return z.ID == o.ID && z.Kind == o.Kind && z.Name == o.Name && z.Parent == o.Parent && z.Method == o.Method && z.Domain == o.Domain
}

// resumeZone continues a zone from its state in the earlier Set, with its reading of the time at.
func (s *resume) resumeZone(m *Status, r *Reading, past *PastZone, at time.Time) {
	done := Resumption{Zone: *r.Zone, Elapsed: max(at.Sub(past.At), 0)}
	var before resumed
	switch {
	case r.Zone.Method == Modeled: // the model has already added the energy
	case past.Raw.IsZero():
		done.Err = ErrNotCounted
		done.Elapsed = max(done.Elapsed-r.Unmeasured, 0)
	default:
		var energy units.Energy
		energy, done.Err = past.Raw.until(&r.Raw)
		if c := m.corrections.zones[r.Zone.ID]; c != nil && !errors.Is(done.Err, ErrReset) {
			before.energy = c.resumed(energy, done.Elapsed)
		} else {
			before.energy = units.Advance(r.Total, energy)
		}
	}
	if done.Err == nil {
		before.since = past.At
	}
	if s.zones == nil {
		s.zones = map[*Zone]resumed{}
	}
	s.zones[r.Zone] = before
	s.done = append(s.done, done)
}

// until returns the energy that was counted between two readings of a counter by different
// processes.
func (r *Raw) until(now *Raw) (units.Energy, error) {
	if r.Epoch != now.Epoch {
		return 0, ErrReset
	}
	c := newCounter(now.MaxWatts, now.Range, now.Epoch)
	c.add(r.Energy, r.At)
	energy, event := c.add(now.Energy, now.At)
	switch {
	case event == Rebased:
		return 0, ErrReset
	case now.Range > 0 && !c.impossible(units.AddSaturating(energy, now.Range), max(now.At.Sub(r.At), 0)):
		return energy, ErrMayHaveWrapped
	}
	return energy, nil
}
