// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"errors"
	"math"
	"os"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model/machine"
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

// Waits reports whether a meter has not answered yet whose energy would be attributed: the configuration asks for it, or no other
// sensor has answered.
func (e *Embedded) Waits() bool {
	readings := e.Attributed()
	if slices.ContainsFunc(readings, func(r power.Reading) bool { return r.At.IsZero() && r.Err == nil }) {
		return true
	}
	sensed := slices.ContainsFunc(readings, func(r power.Reading) bool { return r.Zone.Source != power.Modeled })
	s := e.scraper
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.meters.set.Status(), func(m power.Status) bool {
		return isWaiting(&m) && (!sensed || s.meters.configured(m.Name))
	})
}

// Split returns the static power model of a zone kind.
func (c *Config) Split(zone power.Kind) SplitRule {
	split := c.Attribution.splitOf(zone)
	if split == SplitFixed && fixedModel(&c.Attribution, zone) == nil {
		return SplitUtilization
	}
	return split
}

// ModeledIdlePower returns the power in watts that the configured power model gives each zone kind while no CPU is busy. It is empty
// without a model. The error tells which zone kinds are missing, and why.
func (c *Config) ModeledIdlePower() (map[power.Kind]float64, error) {
	kinds := c.modeledKinds()
	if len(kinds) == 0 {
		return nil, nil
	}
	what, err := machine.Read(c.RootPath, os.Getenv)
	if err != nil && !c.Model.Get().isStated() {
		return nil, err
	}
	curves, err := c.Model.Get().curves(what, kinds)
	idle := make(map[power.Kind]float64, len(curves))
	for _, curve := range curves {
		idle[curve.Kind] = curve.Curve.Watts(0)
	}
	if err != nil {
		return idle, errors.New(oneLine(err))
	}
	return idle, nil
}

// know replaces the rule utilization by static power that is known, in watts.
func know(rules *attribution.Rules, kinds []claims.Kind, known map[claims.Kind]float64) {
	for i, kind := range kinds {
		if watts, ok := known[kind]; ok && rules.Models[i] == nil {
			rules.Models[i] = static.Fixed{Power: units.Energy(math.Round(watts * float64(units.Joule)))}
		}
	}
}
