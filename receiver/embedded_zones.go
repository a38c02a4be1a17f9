// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Attributed returns the zones whose energy is attributed, as the last measurement read them. The
// readings are valid until the next Collect.
func (e *Embedded) Attributed() []power.Reading {
	s := e.scraper
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meters.AttributedReadings()
}

// Meters returns the status of each meter as of the last measurement, in order of preference. It is
// valid until the next Collect.
func (e *Embedded) Meters() []power.Status {
	s := e.scraper
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meters.Set.Status()
}

// Trained returns the zone kinds whose static power model is trained.
func (e *Embedded) Trained() map[power.Class]bool {
	s := e.scraper
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attributor.Trained()
}

// Deferred returns the energy of each zone kind that was read and not attributed yet, as of the last
// measurement.
func (e *Embedded) Deferred() map[power.Kind]units.Energy {
	s := e.scraper
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attributor.DeferredEnergy()
}

// ExpectedErrors returns the expected relative error of the power of modeled zone kinds, 0.2 for 20 %.
func (e *Embedded) ExpectedErrors() map[power.Class]float64 {
	s := e.scraper
	s.mu.Lock()
	defer s.mu.Unlock()
	expected := map[power.Class]float64{}
	s.meters.ModelErrors(func(kind power.Kind, of float64) {
		expected[power.Class{Zone: kind, Method: power.Modeled}] = of
	})
	return expected
}

// Waits reports whether a meter whose energy would be attributed has not responded yet: the
// configuration requires it, or no other sensor has responded.
func (e *Embedded) Waits() bool {
	s := e.scraper
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meters.AwaitsAttributed()
}
