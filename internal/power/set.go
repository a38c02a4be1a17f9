// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Set reads several meters in order of preference. Its readings pass through these steps:
//
//	correct     applies the correction of each zone
//	choose      selects the zones of one meter for each zone kind and each graphics card
//	resume      continues the zones of an earlier Set
//	separate    subtracts CPU sockets from GPUs whose meters include them
//	Remainder   derives the zone other
//
// A Set closes a meter if its zones can no longer be reported. A Set is not safe for concurrent
// use.
type Set struct {
	// Remainder, if it is not nil, derives the zone other from the zones that are reported.
	Remainder *Remainder

	meters   []Status
	chooser  chooser
	resume   resume
	modules  modules
	readings []Reading
	failed   []Reading
	sample   Sample // of the last Read

	closing   sync.WaitGroup
	closeErrs []error // result of closing each meter, by its index
}

// Member is a meter of a Set.
type Member struct {
	Name  string // for messages
	Meter Meter
	// StandsIn marks a meter that is used only for zones without a sensor.
	StandsIn bool
	// Completes makes a stand-in report DRAM although a sensor measures the packages.
	Completes bool
	// Family identifies the hardware registers that the meter reads. Only one of the meters with
	// the same Family is used. It is empty if no other meter reads the same registers.
	Family string
	// Only is the kind of all zones of the meter. It is empty if the zones may have different
	// kinds.
	Only Kind
	// Correction returns the correction of a zone, which must depend only on the zone's kind and
	// ID. If Correction is nil, no zone is corrected.
	Correction func(*Zone) Correction
}

// Status is the result of the last Read of a Set for one of its meters.
type Status struct {
	Member
	// Readings are the readings of all its zones, whether or not they are reported.
	Readings []Reading
	// Err is the reason why no zone of the meter could be read, or a warning.
	Err error
	// Took lists the zone kinds that the last Read newly assigned to the meter.
	Took []Kind
	// InUse reports whether the meter is selected for any zone kind or graphics card.
	InUse bool
	// Replaced reports whether another meter is used instead of the meter.
	Replaced bool

	corrections corrections
	retired     bool // the meter is closed: no Read follows
	unlocated   bool // the meter has read a zone of kind GPU without a PCI address at least once
}

// IsWaiting reports whether the meter has returned neither a reading nor an error yet.
func (m *Status) IsWaiting() bool { return !m.Replaced && m.Err == nil && len(m.Readings) == 0 }

// NewSet returns a set of the meters, which are in order of preference.
func NewSet(members ...Member) *Set {
	s := &Set{meters: make([]Status, len(members)), closeErrs: make([]error, len(members))}
	for i, m := range members {
		s.meters[i] = Status{Member: m, corrections: corrections{of: m.Correction}}
	}
	s.chooser, s.resume = newChooser(s.meters), resume{meters: s.meters}
	return s
}

// Read reads all meters and returns the zones to report. The readings are valid until the next
// Read.
func (s *Set) Read(ctx context.Context, sample Sample) []Reading {
	s.sample = sample
	for i := range s.meters {
		if s.chooser.isSuperseded(i) {
			s.retire(i)
		}
		s.read(ctx, i)
	}
	s.readings, s.failed = s.readings[:0], s.failed[:0]
	for i := range s.meters {
		s.collect(i)
	}
	s.readings = s.resume.apply(s.readings, sample.At)
	s.readings = s.modules.separate(s.readings, sample.At)
	if s.Remainder != nil {
		s.readings = s.Remainder.add(s.readings, sample.At)
	}
	return s.readings
}

// read reads a meter and updates the choices by its zones.
func (s *Set) read(ctx context.Context, meter int) {
	m := &s.meters[meter]
	if m.Took = m.Took[:0]; m.retired {
		return
	}
	m.Readings, m.Err = m.Meter.Read(ctx, s.sample)
	m.Readings = m.corrections.correct(m.Readings)
	if m.Family != "" && slices.ContainsFunc(m.Readings, func(r Reading) bool { return r.Err == nil }) {
		s.chooser.lead(meter)
	}
	for i := range m.Readings {
		if r := &m.Readings[i]; !m.Replaced && !s.resume.reserves(meter, r.Zone, s.sample.At) {
			s.chooser.choose(meter, r)
		}
	}
}

// retire removes a meter from all choices and closes it on another goroutine.
func (s *Set) retire(meter int) {
	s.chooser.replace(meter)
	m := &s.meters[meter]
	if m.Readings, m.Err = nil, nil; !m.retired {
		m.retired = true
		s.closing.Go(func() { s.closeErrs[meter] = m.Meter.Close() })
	}
}

// collect appends the readings of a meter that are reported, and its zones that could not be read.
func (s *Set) collect(meter int) {
	m := &s.meters[meter]
	if m.InUse = s.chooser.isInUse(meter); m.Replaced {
		return
	}
	for i := range m.Readings {
		r := &m.Readings[i]
		used, wanted := s.chooser.uses(meter, r.Zone)
		if used {
			s.readings = append(s.readings, *r)
			s.readings[len(s.readings)-1].meter = meter
		}
		if wanted && r.Err != nil && !errors.Is(r.Err, ErrUnmeasured) {
			s.failed = append(s.failed, *r)
		}
	}
}

// Status returns the state of each meter after the last Read. It is valid until the next Read.
func (s *Set) Status() []Status { return s.meters }

// Failed returns the zones that the last Read could not read, and that would be reported otherwise.
// Zones with ErrUnmeasured are omitted. The result is valid until the next Read.
func (s *Set) Failed() []Reading { return s.failed }

// Resume makes the set continue from the state of another Set. The first successful reading of a
// zone that was reported in this state includes the energy since then. Before this reading, the
// zone has an error for up to two minutes. No less preferred meter replaces its meter before this
// meter responds. Resume must be called before the first Read. The set does not retain p.
func (s *Set) Resume(p *Past) {
	s.resume.from(p)
	if s.Remainder != nil && p.Other.Known {
		s.Remainder.resume(p.Other)
	}
}

// Resumptions returns the zones that the last Read resumed or gave up. The result is valid until
// the next Read.
func (s *Set) Resumptions() []Resumption { return s.resume.done }

// Past stores in p the state after the last Read, for another Set to resume. It does not
// allocate if p has been used before.
func (s *Set) Past(p *Past) {
	p.Sample, p.Other = s.sample, PastOther{}
	p.Zones = s.resume.past(p.Zones[:0], s.readings, s.sample.At)
	if s.Remainder != nil {
		p.Other = s.Remainder.past()
	}
}

// ModuleErr returns an error if the energy of a GPU contains the energy of a CPU socket.
func (s *Set) ModuleErr() error { return s.modules.err() }

// SoonestWrap returns the shortest time until a counter of a reported zone wraps unnoticed. It
// returns 0 if no counter can wrap. It ignores counters of a Poller, because a Poller also reads
// them between two calls of Read.
func (s *Set) SoonestWrap() (soonest time.Duration) {
	for i := range s.readings {
		r := &s.readings[i]
		if after := r.Raw.wrapsAfter(); !r.polled && after > 0 && (soonest == 0 || after < soonest) {
			soonest = after
		}
	}
	return soonest
}

// Close closes all meters at once, and waits for the slowest of them.
func (s *Set) Close() error {
	for i := range s.meters {
		s.retire(i)
	}
	s.closing.Wait()
	return errors.Join(s.closeErrs...)
}
