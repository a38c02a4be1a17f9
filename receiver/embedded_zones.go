// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"math"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Attributed returns the zones whose energy is attributed, as the last measurement read them. The readings are valid until the next
// Collect.
func (e *Embedded) Attributed() (readings []power.Reading) {
	s := e.scraper
	s.mu.Lock()
	defer s.mu.Unlock()
	attributed := s.meters.attributed()
	for i := range s.meters.readings {
		if r := &s.meters.readings[i]; slices.Contains(attributed, r.Zone.Kind) {
			readings = append(readings, *r)
		}
	}
	return readings
}

// Trained returns the zone kinds whose static power model is trained.
func (e *Embedded) Trained() map[power.Class]bool {
	s := e.scraper
	s.mu.Lock()
	defer s.mu.Unlock()
	trained := map[power.Class]bool{}
	for kind, state := range s.staticPowerStates() {
		trained[kind] = state == attribution.Trained
	}
	return trained
}

// Waits reports whether a meter has not answered yet whose energy would be attributed: the configuration asks for it, or no other
// sensor has answered.
func (e *Embedded) Waits() bool {
	readings := e.Attributed()
	if slices.ContainsFunc(readings, func(r power.Reading) bool { return r.At.IsZero() && r.Err == nil }) {
		return true
	}
	sensed := slices.ContainsFunc(readings, func(r power.Reading) bool { return r.Zone.Method != power.Modeled })
	s := e.scraper
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.meters.set.Status(), func(m power.Status) bool {
		return isWaiting(&m) && (!sensed || s.meters.required(m.Name))
	})
}

// StaticModel returns the static power model of a kind of the ledger.
func (c *Config) StaticModel(kind power.Class) StaticModel {
	return c.Attribution.staticModelOfKind(kind)
}

// know replaces the rule utilization where the static power of a kind is known: as stated, the power of a modeled zone while no CPU
// is busy, and nothing of what a hypervisor reports, which is dynamic energy. An Embedded may want that of all kinds, and a preset
// of those without a split of their own.
func (s *energyScraper) know(rules *attribution.Rules, kinds []power.Class) {
	for i, kind := range kinds {
		watts, ok := s.staticPower[kind]
		switch {
		case rules.Models[i] != nil || s.staticPower == nil && !s.cfg.Attribution.knows(kind.Zone):
			continue
		case ok:
		case kind.Method == power.Modeled:
			watts, ok = s.meters.modeledIdlePower(kind.Zone)
		default:
			ok = kind.Method == power.Reported
		}
		if ok {
			rules.Models[i] = static.Fixed{Power: units.Energy(math.Round(watts * float64(units.Joule)))}
		}
	}
}

// modeledIdlePower returns the power in watts that the model gives a zone kind while no CPU is busy.
func (m *meters) modeledIdlePower(kind power.Kind) (watts float64, ok bool) {
	for _, status := range m.set.Status() {
		meter, isModel := status.Meter.(*modelMeter)
		if !isModel {
			continue
		}
		if i := slices.IndexFunc(meter.curves, func(c model.ZoneCurve) bool { return c.Kind == kind }); i >= 0 {
			return meter.curves[i].Curve.Watts(0), true
		}
	}
	return 0, false
}
