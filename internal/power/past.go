// SPDX-License-Identifier: Apache-2.0

package power

import (
	"errors"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Raw is an energy counter as it was read, from which another process of the same boot can go on.
// The zero Raw is that of a zone without such a counter: it has a sensor of power, a model, or a
// counter that begins when it is opened.
type Raw struct {
	Energy   units.Energy
	Range    units.Energy // after which the counter goes on from 0, 0 if that is not known
	MaxWatts uint64       // power that the counter never exceeds, in watts
	// At is when the counter was read, with a monotonic clock reading. If its range is not known,
	// it is when the counter last changed.
	At time.Time
	// Epoch identifies the series of totals that a hypervisor reports (see NewReportCounter). It is
	// empty for other counters.
	Epoch string
}

// IsZero reports whether there is no counter.
func (r Raw) IsZero() bool { return r.At.IsZero() }

// Past is the state of an earlier Set of the same boot, from which a Set resumes. It holds no
// pointers, so all of it can be stored. Times are moments of the clock of the process that has it:
// one that reads it from elsewhere converts them, by CLOCK_MONOTONIC (see Counter.Add).
type Past struct {
	// Sample is that of the last Read.
	Sample Sample
	// Zones are those that were reported, without Other.
	Zones []PastZone
	Other PastOther
}

// PastZone is a zone that was reported.
type PastZone struct {
	Zone
	Meter string // name of the Member
	// At is until when the zone's energy was counted.
	At time.Time
	// Raw is the counter at that time.
	Raw Raw
}

// PastOther is the state from which the zone of kind Other resumes.
type PastOther struct {
	// Known reports whether there was such a zone.
	Known bool
	// Balance is the energy that the whole used beyond its parts since the zone was last brought up
	// to date, less the deficit, in µJ.
	Balance int64
}

// Resumption is how a zone went on after Set.Resume.
type Resumption struct {
	Zone Zone
	// Energy is the energy that the zone used since the past, as far as it is known.
	Energy units.Energy
	// Elapsed is the time since then.
	Elapsed time.Duration
	// Err is why Energy is not all that was used. Its text does not depend on the time.
	Err error
}

// Errors of a Resumption.
var (
	// ErrNotCounted is that of a zone without a counter. It has no energy of the time.
	ErrNotCounted = errors.New("nothing counted the energy that was used while the receiver was down")
	// ErrReset is that of a counter that began anew. It has no energy of the time.
	ErrReset = errors.New("the energy counter was reset while the receiver was down")
	// ErrMayHaveWrapped is that of a counter that could have wrapped once more than it shows, at
	// the highest power of the zone.
	ErrMayHaveWrapped = errors.New("the energy counter may have wrapped unnoticed while the receiver was down: at least the energy that it shows was used")
	// ErrOtherMeter is that of a zone that another meter reads. It has no energy of the time.
	ErrOtherMeter = errors.New("another meter reads the zone than before the receiver was down")

	// errAwaited is that of readings of zones that no meter has read since Resume.
	errAwaited = errors.New("not read yet since the receiver was started")
)

// Resumer is a Meter that has no counters, and derives energy from samples.
type Resumer interface {
	// Resume makes s the sample before the first Read.
	Resume(s Sample)
}

// awaited is a zone of the past that no Read has found yet.
type awaited struct {
	PastZone
	meter int // negative if there is no such meter
}

// resumed holds the state of a resumed zone in addition to its meter's readings.
type resumed struct {
	energy units.Energy
	since  time.Time // when its total was 0, zero if not all energy since then is known
}

// Past stores in p what another Set needs to go on after the last Read. It allocates nothing if p was used before.
func (s *Set) Past(p *Past) {
	p.Sample, p.Zones = s.sample, p.Zones[:0]
	for i, meter := range s.from {
		if r := &s.readings[i]; !r.At.IsZero() {
			p.Zones = append(p.Zones, PastZone{Zone: *r.Zone, Meter: s.meters[meter].Name, At: r.At, Raw: r.Raw})
		}
	}
	for _, a := range s.awaited {
		p.Zones = append(p.Zones, a.PastZone)
	}
	p.Other = PastOther{}
	if s.Remainder != nil {
		p.Other = s.Remainder.past()
	}
}

// Resume makes the set go on where another one ended: the first good reading of a zone that was
// reported then has the energy since. Until then the zone has a reading with an error, for up to
// two minutes, and as long as its meter has not answered no less preferred one is used in its
// place. Resume must precede the first Read. The set keeps no part of p.
func (s *Set) Resume(p *Past) {
	for i := range p.Zones {
		z := &p.Zones[i]
		meter := slices.IndexFunc(s.meters, func(m Status) bool { return m.Name == z.Meter })
		s.awaited = append(s.awaited, &awaited{*z, meter})
		if z.Method != Modeled || meter < 0 {
			continue
		}
		if m, ok := s.meters[meter].Meter.(Resumer); ok {
			m.Resume(p.Sample)
		}
	}
	if s.Remainder != nil && p.Other.Known {
		s.Remainder.resume(p.Other)
	}
}

// Resumptions returns how zones have gone on with the last Read. They are valid until the next.
func (s *Set) Resumptions() []Resumption { return s.resumptions }

// beginResuming begins a Read.
func (s *Set) beginResuming(now time.Time) {
	s.resumptions = s.resumptions[:0]
	if len(s.awaited) == 0 {
		return
	}
	if s.began.IsZero() {
		s.began = now
	}
}

// isPatient reports whether Set still waits for zones of a restored state.
func (s *Set) isPatient() bool { return s.sample.At.Sub(s.began) < partPatience }

// resume looks for zones of the past among a meter's readings.
func (s *Set) resume(meter int, readings []Reading) {
	for i := range readings {
		r := &readings[i]
		if r.Err != nil || r.At.IsZero() {
			continue
		}
		of := slices.IndexFunc(s.awaited, func(a *awaited) bool { return a.meter == meter && a.isSame(r.Zone) })
		if of < 0 || r.Raw.IsZero() && !s.awaited[of].Raw.IsZero() { // the zone has reported only powers so far, as of a card that is suspended
			continue
		}
		s.goOn(meter, r, &s.awaited[of].PastZone)
		s.awaited = slices.Delete(s.awaited, of, of+1)
	}
}

// isSame reports whether a zone of the same meter is the one of the past.
func (z *PastZone) isSame(o *Zone) bool {
	return z.ID == o.ID && z.Kind == o.Kind && z.Name == o.Name && z.Parent == o.Parent && z.Method == o.Method && z.Domain == o.Domain
}

// goOn makes a zone go on.
func (s *Set) goOn(meter int, r *Reading, past *PastZone) {
	done := Resumption{Zone: *r.Zone, Elapsed: max(r.At.Sub(past.At), 0)}
	var beside resumed
	switch {
	case r.Zone.Method == Modeled:
		done.Energy = r.Total // its meter went on by itself
	case past.Raw.IsZero():
		done.Err = ErrNotCounted
	default:
		done.Energy, done.Err = past.Raw.until(&r.Raw)
		if c := s.meters[meter].corrections[r.Zone.ID]; c != nil && !errors.Is(done.Err, ErrReset) {
			beside.energy = c.beside(done.Energy, done.Elapsed)
			done.Energy = units.AddSaturating(r.Total, beside.energy)
		} else {
			beside.energy = units.Advance(r.Total, done.Energy)
		}
	}
	if done.Err == nil {
		beside.since = past.At
	}
	if s.resumed == nil {
		s.resumed = map[*Zone]resumed{}
	}
	s.resumed[r.Zone] = beside
	s.resumptions = append(s.resumptions, done)
}

// until returns the energy that was counted between two readings of a counter by different processes.
func (r *Raw) until(now *Raw) (units.Energy, error) {
	if r.Epoch != now.Epoch {
		return 0, ErrReset
	}
	c := NewCounter(now.MaxWatts, now.Range)
	if now.Epoch != "" {
		c = NewReportCounter()
	}
	c.Add(r.Energy, r.At)
	energy, event := c.Add(now.Energy, now.At)
	switch {
	case event == Rebased:
		return 0, ErrReset
	case now.Range > 0 && !c.impossible(units.AddSaturating(energy, now.Range), max(now.At.Sub(r.At), 0)):
		return energy, ErrMayHaveWrapped
	}
	return energy, nil
}

// leaves reports whether a zone is left to a preferred meter that read it in the past and has not answered yet.
func (s *Set) leaves(meter int, z *Zone) bool {
	return s.isPatient() && slices.ContainsFunc(s.awaited, func(a *awaited) bool {
		return a.meter >= 0 && a.meter < meter && s.meters[a.meter].isSilent() && measureSame(&a.Zone, z)
	})
}

// isSilent reports whether the meter has not answered yet.
func (m *Status) isSilent() bool { return !m.Replaced && m.Err == nil && len(m.Readings) == 0 }

// measureSame reports whether two zones measure the same hardware, as far as meters can be chosen between.
func measureSame(a, b *Zone) bool {
	_, locatedA := a.Domain.PCIAddress()
	_, locatedB := b.Domain.PCIAddress()
	return a.Kind == b.Kind && (a.Kind != GPU || !locatedA || !locatedB || a.Domain == b.Domain)
}

// giveUp forgets zones of the past that another meter reads now: their energy until now would count twice.
func (s *Set) giveUp() {
	s.awaited = slices.DeleteFunc(s.awaited, func(a *awaited) bool {
		replaced := false
		for i, meter := range s.from {
			r := &s.readings[i]
			replaced = replaced || meter != a.meter && r.Err == nil && measureSame(&a.Zone, r.Zone)
		}
		if replaced {
			s.resumptions = append(s.resumptions, Resumption{Zone: a.Zone, Elapsed: max(s.sample.At.Sub(a.At), 0), Err: ErrOtherMeter})
		}
		return replaced
	})
}

// addAwaited adds a reading of each zone of the past that no meter has read yet.
func (s *Set) addAwaited() {
	for _, a := range s.awaited {
		if s.isPatient() && a.meter >= 0 && !slices.ContainsFunc(s.readings, func(r Reading) bool { return a.isSame(r.Zone) }) {
			r := Reading{Zone: &a.Zone, Err: errAwaited}
			if correction := s.meters[a.meter].Correction; correction != nil {
				r.Correction = correction(&a.Zone)
			}
			s.readings = append(s.readings, r)
		}
	}
}

// addPast adds to a reading what its zone has from before.
func (s *Set) addPast(r *Reading) {
	before := s.resumed[r.Zone]
	r.Total, r.since = units.AddSaturating(r.Total, before.energy), before.since
}
