// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"math"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// newStaticModel returns a new static power model for a kind of the ledger, or nil for the engine's
// own rule, utilization.
func newStaticModel(cfg *config.Config, kind power.Class) attribution.StaticPowerModel {
	a := &cfg.Attribution
	rest, samples := cmp.Or(a.Tuning.Rest, 0.05), cmp.Or(a.Tuning.Samples, 10)
	switch cfg.StaticModel(kind) {
	case config.StaticFixed:
		watts := *a.StaticPower[kind.Zone].Power // Validate requires it
		return static.Fixed{Power: inMicrowatts(watts), IncludesExcluded: a.PresetRules().ExcludedInFixed}
	case config.StaticMinimum:
		return static.NewMinimum()
	case config.StaticResting:
		return static.NewResting(rest)
	case config.StaticRegression:
		return static.NewRegression(1, samples)
	case config.StaticCubicRegression:
		return static.NewRegression(3, samples)
	case config.StaticBase:
		return static.NewBase(rest, cmp.Or(a.Tuning.Base, 5*time.Minute))
	case config.StaticTrained:
		return static.NewCurve()
	case config.StaticTotal:
		return static.Total{}
	}
	return nil
}

func inMicrowatts(watts float64) units.Energy {
	return units.Energy(math.Round(watts * float64(units.Joule)))
}
