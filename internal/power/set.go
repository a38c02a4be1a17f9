// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Set reads several meters side by side. Each zone kind has the zones of one meter at a time, because two meters of the
// same thing must never be added up. The meters are in order of preference:
//
//	meter that has ever read a zone of the kind    zones of the kind that are reported
//	none                                           those of the first sensor that lists one, with their errors
//	one or several                                 those of the first of them, also while it fails
//
// So a meter loses the kind as soon as a preferred one reads it, and does not get it back when that
// one fails: zones of a failing sensor wait until it is back. Other kinds are not affected.
//
// Graphics cards are chosen one by one, by the same table, because each kind of card has a meter of
// its own. A card is identified by the PCI address in its domain. A zone of kind GPU without such
// an address may be of any card, so it is never used beside the cards of another meter:
//
//	the first meter that has ever read a zone of kind GPU    whose zones of kind GPU are reported
//	has read one without a PCI address                       only that meter's
//	has read only cards with a PCI address                   for each card those of the first meter that has ever read it
//
// A meter that only stands in (a model) gives a kind up for good where a part would be modeled beside the whole:
//
//	the whole machine (platform or psys) is measured or reported, and    package      dram
//	no sensor lists the kind                                             given up     given up
//	a sensor lists it and has never read it                              stands in    given up
//
// What is not modeled is in the zone other. DRAM is given up as well where a sensor has read the packages and
// none lists DRAM, unless the stand-in completes sensors.
//
// Meters of one family read the same registers, so only one of them is used, whatever kinds the others have:
//
//	member of the family that has ever read a zone    members used    members read
//	none                                              all             all
//	one or several                                    the first       that one and those before it, which take over once they can
//
// A meter whose zones are all of one kind is not asked for nothing: it is closed once a preferred
// meter has read the kind, or, in case of GPU, a zone without a PCI address.
//
// A Set is not safe for concurrent use.
type Set struct {
	// Remainder, if it is not nil, derives the zone other from the zones that are reported.
	Remainder *Remainder

	meters   []Status
	kinds    []choice // by the index in Kinds
	cards    []card   // those with a PCI address that were ever listed
	modules  []*module
	readings []Reading
	from     []int // the meter of each of readings that has one
	failed   []Reading
	sample   Sample // of the last Read

	awaited     []*awaited        // zones of the past that no Read has found yet
	resumed     map[*Zone]resumed // those that were found
	resumptions []Resumption      // in the last Read
	began       time.Time         // sample time of the first Read after Resume

	closing   sync.WaitGroup
	closeErrs []error // what closing each meter returned, by its index
}

// containers are the kinds whose sensors make a stand-in for a kind unnecessary: a part is not
// modeled where the whole is measured. PSys contains the memory beside the processors (Intel SDM,
// volume 4, MSR_PLATFORM_ENERGY_COUNTER).
var containers = map[Kind][]Kind{Package: {PSys, Platform}, DRAM: {PSys, Platform}}

// Member is a meter of a Set.
type Member struct {
	Name  string // for messages
	Meter Meter
	// StandsIn marks a meter that is used only for what no sensor measures.
	StandsIn bool
	// Completes makes a stand-in report DRAM although a sensor measures the packages.
	Completes bool
	// Family names the registers that the meter reads, where another meter reads the same ones.
	Family string
	// Only is the kind of all zones that the meter can have, empty where they may be of several kinds.
	Only Kind
	// Correction returns the correction of a zone, which depends on the zone's kind and ID only. If
	// Correction is nil, no zone is corrected.
	Correction func(*Zone) Correction
}

// Status is the result of the last Read of a Set for one of its meters.
type Status struct {
	Member
	// Readings are those of all its zones, whether or not they are reported.
	Readings []Reading
	// Err is the error that kept all its zones from being read, or a warning.
	Err error
	// Took lists the zone kinds that the Read gave to the meter.
	Took []Kind
	// InUse reports whether any zone kind is the meter's.
	InUse bool
	// Replaced reports whether another meter is used in its place.
	Replaced bool

	corrected []Reading // Readings if there is a Correction
	// corrections are those of the zones by ID, nil for zones without a correction.
	corrections map[string]*corrected

	leads     bool // of its family, this meter is used
	retired   bool // it is closed: no Read follows
	unlocated bool // it has ever read a zone of kind GPU without a PCI address
}

// choice says which meter a zone kind, or a graphics card, is read from. Meters are given by their
// index; the number of meters stands for none.
type choice struct {
	read   int  // the first meter that has ever read a zone of the kind, or of the card
	listed int  // the first sensor that has ever listed one, whether or not it could be read
	gaveUp bool // stand-ins are no longer used, because a kind that contains this one is measured
}

// card is a graphics card with a PCI address.
type card struct {
	domain units.Domain
	choice
}

// NewSet returns a set of the meters, which are in order of preference.
func NewSet(members ...Member) *Set {
	s := &Set{meters: make([]Status, len(members)), kinds: make([]choice, len(Kinds)), closeErrs: make([]error, len(members))}
	for i := range members {
		s.meters[i].Member = members[i]
	}
	for k := range s.kinds {
		s.kinds[k] = s.noMeter()
	}
	return s
}

// noMeter returns the choice of no meter.
func (s *Set) noMeter() choice { return choice{read: len(s.meters), listed: len(s.meters)} }

// Read reads all meters and returns the zones to report. The readings are valid until the next Read.
func (s *Set) Read(ctx context.Context, sample Sample) []Reading {
	s.sample = sample
	s.beginResuming(sample.At)
	for i := range s.meters {
		m := &s.meters[i]
		m.Took = m.Took[:0]
		if m.Only != "" && s.isSuperseded(i) {
			s.replace(i, true)
		}
		if m.retired {
			continue
		}
		m.Readings, m.Err = m.Meter.Read(ctx, sample)
		s.correct(m)
		if len(s.awaited) > 0 {
			s.resume(i, m.Readings)
		}
		if s.lead(i); m.Replaced {
			continue
		}
		for j := range m.Readings {
			s.choose(i, &m.Readings[j])
		}
	}
	s.readings, s.from, s.failed = s.readings[:0], s.from[:0], s.failed[:0]
	for i := range s.meters {
		m := &s.meters[i]
		m.InUse = s.isInUse(i)
		for j := range m.Readings {
			if !m.Replaced {
				s.collect(i, &m.Readings[j])
			}
		}
	}
	if len(s.awaited) > 0 {
		s.giveUp()
		s.addAwaited()
	}
	s.separateModules()
	if s.Remainder != nil {
		s.readings = s.Remainder.add(s.readings, sample.At)
	}
	return s.readings
}

// isSuperseded reports whether preferred meters have read all that the meter can have, whose zones are all of one kind.
func (s *Set) isSuperseded(meter int) bool {
	if only := s.meters[meter].Only; only != GPU {
		return s.kinds[indexOf(only)].read < meter
	}
	return s.readsAllCards() < meter
}

// isInUse reports whether zones are reported that the meter has read.
func (s *Set) isInUse(meter int) bool {
	for k := range s.kinds {
		if s.kinds[k].read == meter {
			return true
		}
	}
	return meter <= s.readsAllCards() && slices.ContainsFunc(s.cards, func(c card) bool { return c.read == meter })
}

// lead makes the meter the one of its family that is used, once it has read a zone. It is only
// called for meters that are preferred to the one in use, as all others are closed.
func (s *Set) lead(meter int) {
	m := &s.meters[meter]
	if m.Family == "" || m.leads || !slices.ContainsFunc(m.Readings, func(r Reading) bool { return r.Err == nil }) {
		return
	}
	m.leads, m.Replaced = true, false
	for i := range s.meters {
		if i != meter && s.meters[i].Family == m.Family {
			s.replace(i, i > meter)
		}
	}
}

// replace takes the zone kinds of a meter from it. If it retires it is not read again.
func (s *Set) replace(meter int, retires bool) {
	m := &s.meters[meter]
	m.Replaced, m.leads = true, false
	for k := range s.kinds {
		s.kinds[k].drop(meter, len(s.meters))
	}
	for k := range s.cards {
		s.cards[k].drop(meter, len(s.meters))
	}
	if retires {
		m.Readings, m.Err = nil, nil
		s.retire(meter)
	}
}

// drop takes the zones from a meter. none stands for no meter.
func (c *choice) drop(meter, none int) {
	if c.read == meter {
		c.read = none
	}
	if c.listed == meter {
		c.listed = none
	}
}

// retire closes a meter, without waiting for one that does not return from what it does.
func (s *Set) retire(meter int) {
	m := &s.meters[meter]
	if m.retired {
		return
	}
	m.retired = true
	s.closing.Go(func() { s.closeErrs[meter] = m.Meter.Close() })
}

// choose gives the kind of a zone to its meter if no preferred one has read the kind, and a
// graphics card alike. A package that a sensor only lists is still modeled: without it nothing but
// the whole machine could be attributed.
func (s *Set) choose(meter int, r *Reading) {
	m, c := &s.meters[meter], &s.kinds[indexOf(r.Zone.Kind)]
	if len(s.awaited) > 0 && s.leaves(meter, r.Zone) {
		return
	}
	if m.StandsIn {
		needed := c.listed < len(s.meters) && r.Zone.Kind == Package
		partial := r.Zone.Kind == DRAM && !m.Completes && c.listed == len(s.meters) && s.measures(Package)
		if c.gaveUp = c.gaveUp || !needed && s.contained(r.Zone.Kind) || partial; c.gaveUp {
			if c.read == meter {
				c.read = len(s.meters)
			}
			return
		}
	} else {
		c.listed = min(c.listed, meter)
	}
	taken := r.Err == nil && c.read > meter
	if taken {
		c.read = meter
	}
	if r.Zone.Kind == GPU {
		taken = s.chooseCard(meter, r, taken)
	}
	if taken && !slices.Contains(m.Took, r.Zone.Kind) {
		m.Took = append(m.Took, r.Zone.Kind)
	}
}

// chooseCard gives a graphics card to its meter if no preferred one has read it, and reports
// whether the meter gets it. taken reports whether the meter has become the first that has read a
// zone of kind GPU.
func (s *Set) chooseCard(meter int, r *Reading, taken bool) bool {
	if _, ok := r.Zone.Domain.PCIAddress(); !ok {
		s.meters[meter].unlocated = s.meters[meter].unlocated || r.Err == nil
		return taken
	}
	c := s.card(r.Zone.Domain)
	if !s.meters[meter].StandsIn {
		c.listed = min(c.listed, meter)
	}
	if r.Err != nil || c.read <= meter {
		return false
	}
	c.read = meter
	return s.readsAllCards() >= meter
}

// card returns the choice of a graphics card with a PCI address.
func (s *Set) card(d units.Domain) *choice {
	i := slices.IndexFunc(s.cards, func(c card) bool { return c.domain == d })
	if i < 0 {
		i = len(s.cards)
		s.cards = append(s.cards, card{d, s.noMeter()})
	}
	return &s.cards[i].choice
}

// readsAllCards returns the meter beside which no other one's graphics cards are used, because it
// has read one without a PCI address. The number of meters stands for none.
func (s *Set) readsAllCards() int {
	if first := s.kinds[indexOf(GPU)].read; first < len(s.meters) && s.meters[first].unlocated {
		return first
	}
	return len(s.meters)
}

// collect adds a reading to those that are reported, and to those that failed.
func (s *Set) collect(meter int, r *Reading) {
	c := &s.kinds[indexOf(r.Zone.Kind)]
	if _, located := r.Zone.Domain.PCIAddress(); located && r.Zone.Kind == GPU {
		if s.readsAllCards() < meter {
			return
		}
		c = s.card(r.Zone.Domain)
	}
	if c.read == meter || c.read == len(s.meters) && c.listed == meter {
		s.readings, s.from = append(s.readings, *r), append(s.from, meter)
		if len(s.resumed) > 0 {
			s.addPast(&s.readings[len(s.readings)-1])
		}
	}
	if r.Err != nil && c.read >= meter {
		s.failed = append(s.failed, *r)
	}
}

// contained reports whether a sensor has read a kind that contains k.
func (s *Set) contained(k Kind) bool {
	return slices.ContainsFunc(containers[k], s.measures)
}

// measures reports whether a sensor has read a kind.
func (s *Set) measures(k Kind) bool {
	read := s.kinds[indexOf(k)].read
	return read < len(s.meters) && !s.meters[read].StandsIn
}

func indexOf(k Kind) int { return slices.Index(Kinds, k) }

// Status returns what the last Read found out about each meter. It is valid until the next Read.
func (s *Set) Status() []Status { return s.meters }

// Failed returns the zones that the last Read could not read and that would be reported if it could. It is valid until
// the next Read.
func (s *Set) Failed() []Reading { return s.failed }

// SoonestWrap returns how soon a counter of a meter in use can wrap unnoticed, 0 where none can.
func (s *Set) SoonestWrap() time.Duration {
	var soonest time.Duration
	for i := range s.meters {
		m, ok := s.meters[i].Meter.(Wrapper)
		if !ok || !s.meters[i].InUse {
			continue
		}
		if after := m.SoonestWrap(); after > 0 && (soonest == 0 || after < soonest) {
			soonest = after
		}
	}
	return soonest
}

// Close closes all meters at once, so that it takes as long as the slowest of them.
func (s *Set) Close() error {
	for i := range s.meters {
		s.retire(i)
	}
	s.closing.Wait()
	return errors.Join(s.closeErrs...)
}
