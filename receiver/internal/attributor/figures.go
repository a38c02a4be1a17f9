// SPDX-License-Identifier: Apache-2.0

package attributor

import (
	"math"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// DeferredEnergy returns the deferred energy of each zone kind.
func (a *Attributor) DeferredEnergy() map[power.Kind]units.Energy {
	deferred := map[power.Kind]units.Energy{}
	if a.Begun() {
		for i, kind := range a.Kinds {
			if a.Ledger.Kinds[i].Present || kind.Zone != power.GPU && slices.Contains(a.Options.Config.Zones, kind.Zone) {
				deferred[kind.Zone] += a.Ledger.Kinds[i].Deferred
			}
		}
	}
	return deferred
}

// StaticPowerStates returns the state of the static power model of each kind that has one.
func (a *Attributor) StaticPowerStates() map[power.Class]attribution.ModelState {
	states := map[power.Class]attribution.ModelState{}
	if !a.Begun() {
		return states
	}
	kinds := &a.Ledger.Kinds
	for i, kind := range a.Kinds {
		if k := &kinds[i]; k.Present && !k.Ended() && k.Model != attribution.NoModel {
			states[kind] = k.Model
		}
	}
	return states
}

// Trained reports for each kind that has a static power model whether the model is trained.
func (a *Attributor) Trained() map[power.Class]bool {
	trained := map[power.Class]bool{}
	for kind, state := range a.StaticPowerStates() {
		trained[kind] = state == attribution.Trained
	}
	return trained
}

// HasModeledStaticPower reports whether each kind is modeled and its static power is the power that
// the power model has while no CPU is busy, as by default.
func (a *Attributor) HasModeledStaticPower() bool {
	for i, kind := range a.Kinds {
		k := &a.Ledger.Kinds[i]
		if !k.Present || k.Ended() {
			continue
		}
		fixed, isFixed := a.rules.Models[i].(static.Fixed)
		watts, isModeled := a.Options.IdlePower(kind.Zone)
		if kind.Method != power.Modeled || !isFixed || !isModeled || fixed.Power != inMicrowatts(watts) {
			return false
		}
	}
	return true
}

// inMicrowatts returns a power as the energy per second.
func inMicrowatts(watts float64) units.Energy {
	return units.Energy(math.Round(watts * float64(units.Joule)))
}

// DroppedSeries returns the number of series that were dropped undelivered.
func (a *Attributor) DroppedSeries() int64 {
	if !a.Begun() {
		return 0
	}
	return int64(a.Ledger.Dropped)
}

// CountSeries returns the number of series by entity, without overflow series.
func (a *Attributor) CountSeries() map[identity.Entity]int64 {
	series := map[identity.Entity]int64{}
	if !a.Begun() {
		return series
	}
	for account := range a.Ledger.Accounts {
		if !account.Other {
			series[account.Entity]++
		}
	}
	return series
}
