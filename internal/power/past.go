// SPDX-License-Identifier: Apache-2.0

package power

import (
	"errors"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Raw is an energy counter as it was read, from which another process of the same boot can go on. The zero Raw is that of a
// zone without such a counter: it has a sensor of power, a model, or a counter that begins when it is opened.
type Raw struct {
	Energy   units.Energy
	Range    units.Energy // after which the counter goes on from 0, 0 if that is not known
	MaxWatts uint64       // power that the counter never exceeds, in watts
	// At is when the counter was read, with a monotonic clock reading. If its range is not known, it is when the counter last
	// changed.
	At time.Time
	// Epoch tells counters apart that have taken each other's place. It is empty where nothing tells.
	Epoch string
}

// IsZero reports whether there is no counter.
func (r Raw) IsZero() bool { return r.At.IsZero() }

// Past is what a Set must know of an earlier one, of the same boot, to go on where that one ended. It holds no pointers: all
// of it can be written down. Times are moments of the clock of the process that has it: one that reads it from elsewhere converts
// them, by CLOCK_MONOTONIC (see Counter.Add).
type Past struct {
	// Sample is that of the last Read.
	Sample Sample
	// Zones are those that were reported.
	Zones []PastZone
}

// PastZone is a zone that was reported.
type PastZone struct {
	Meter  string // name of the Member
	ID     string
	Name   string
	Kind   Kind
	Parent string
	Source Source
	Domain units.Domain
	// At is until when the zone's energy was counted.
	At time.Time
	// Raw is the counter at that time.
	Raw Raw
}

// same reports whether z is the zone that a meter's zone was.
func (z *PastZone) same(meter string, o *Zone) bool {
	return z.ID == o.ID && z.Kind == o.Kind && z.Meter == meter && z.Name == o.Name && z.Parent == o.Parent &&
		z.Source == o.Source && z.Domain == o.Domain
}

// Resumption is how a zone went on after Set.Resume.
type Resumption struct {
	Zone *Zone
	// Energy is what the zone used since the past, as far as that is known.
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
	// ErrMayHaveWrapped is that of a counter that could have wrapped once more than it shows, at the highest power of the zone.
	ErrMayHaveWrapped = errors.New("the energy counter may have wrapped unnoticed while the receiver was down: at least the energy that it shows was used")
)

// Resumer is a Meter that has no counters, and derives energy from samples.
type Resumer interface {
	// Resume makes s the sample before the first Read.
	Resume(s Sample)
}

// resumed is what a zone that goes on has beside what its meter tells.
type resumed struct {
	energy     units.Energy
	unmeasured time.Duration
}

// Past stores in p what another Set needs to go on after the last Read. It allocates nothing if p was used before.
func (s *Set) Past(p *Past) {
	p.Sample, p.Zones = s.sample, p.Zones[:0]
	for i := range s.readings {
		r := &s.readings[i]
		if r.At.IsZero() || r.Zone.Kind == Other {
			continue
		}
		z := r.Zone
		p.Zones = append(p.Zones, PastZone{
			Meter: s.meters[s.from[i]].Name, ID: z.ID, Name: z.Name, Kind: z.Kind, Parent: z.Parent, Source: z.Source, Domain: z.Domain,
			At: r.At, Raw: r.Raw,
		})
	}
	p.Zones = append(p.Zones, s.awaited...)
}

// Resume makes the set go on where another one ended: the first good reading of a zone that was reported then has the energy since.
// It must precede the first Read. The set keeps no part of p.
func (s *Set) Resume(p *Past) {
	s.awaited = slices.Clone(p.Zones)
	for i := range s.meters {
		meter, ok := s.meters[i].Meter.(Resumer)
		if ok && slices.ContainsFunc(p.Zones, func(z PastZone) bool { return z.Meter == s.meters[i].Name }) {
			meter.Resume(p.Sample)
		}
	}
}

// Resumptions returns the zones that have gone on with the last Read. They are valid until the next.
func (s *Set) Resumptions() []Resumption { return s.resumptions }

// Awaited returns the zones of the past that no Read has found yet. They are valid until the next Read.
func (s *Set) Awaited() []PastZone { return s.awaited }

// resume looks for zones of the past among a meter's readings.
func (s *Set) resume(meter int, readings []Reading) {
	for i := range readings {
		r := &readings[i]
		if r.Err != nil || r.At.IsZero() {
			continue
		}
		past := slices.IndexFunc(s.awaited, func(z PastZone) bool { return z.same(s.meters[meter].Name, r.Zone) })
		if past < 0 {
			continue
		}
		s.goOn(r, &s.awaited[past])
		s.awaited = slices.Delete(s.awaited, past, past+1)
	}
}

// goOn makes a zone go on.
func (s *Set) goOn(r *Reading, past *PastZone) {
	done := Resumption{Zone: r.Zone, Elapsed: max(r.At.Sub(past.At), 0)}
	var beside resumed
	switch {
	case r.Zone.Source == Modeled:
		done.Energy = r.Total // its meter went on by itself
	case past.Raw.IsZero() || r.Raw.IsZero():
		done.Err = ErrNotCounted
		beside.unmeasured = done.Elapsed
	default:
		done.Energy, done.Err = since(&past.Raw, &r.Raw)
		beside.energy = units.Advance(r.Total, done.Energy)
	}
	if s.resumed == nil {
		s.resumed = map[*Zone]resumed{}
	}
	s.resumed[r.Zone] = beside
	s.resumptions = append(s.resumptions, done)
}

// since returns the energy that a counter has counted between two readings by different processes.
func since(past, now *Raw) (units.Energy, error) {
	if past.Epoch != now.Epoch {
		return 0, ErrReset
	}
	c := NewCounter(now.MaxWatts, now.Range)
	c.Add(past.Energy, past.At)
	energy, event := c.Add(now.Energy, now.At)
	switch {
	case event == Rebased:
		return 0, ErrReset
	case now.Range > 0 && !c.impossible(units.AddSaturating(energy, now.Range), now.At.Sub(past.At)):
		return energy, ErrMayHaveWrapped
	}
	return energy, nil
}

// addPast adds to a reading what its zone has from before.
func (s *Set) addPast(r *Reading) {
	before := s.resumed[r.Zone]
	r.Total = units.AddSaturating(r.Total, before.energy)
	if before.unmeasured > 0 {
		r.Unmeasured += before.unmeasured
		r.Gaps++
	}
}
