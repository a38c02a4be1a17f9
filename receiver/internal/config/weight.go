// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/window"
)

// Weight is an attribution weight.
type Weight string

// The attribution weights.
const (
	WeightCPUTime          Weight = "cpu_time"
	WeightFrequency        Weight = "frequency" // CPU time times the clock rate
	WeightFrequencySquared Weight = "frequency_squared"
	WeightFrequencyCubed   Weight = "frequency_cubed"
	WeightCycles           Weight = "cycles"
	WeightInstructions     Weight = "instructions"
	WeightCacheMisses      Weight = "cache_misses"
	WeightMemory           Weight = "memory"
	WeightMemoryCPUTime    Weight = "memory_cpu_time"
	WeightPowerModel       Weight = "power_model" // the power that a model of hardware events estimates
	// Only presets select the next weights. WeightMissesOrMemory is cache misses, or memory and CPU
	// time in windows without counts. WeightSmartWatts is the power that SmartWatts estimates.
	WeightMissesOrMemory Weight = "cache_misses or memory_cpu_time"
	WeightSmartWatts     Weight = "smartwatts"
)

// Weights lists the attribution weights of the settings.
var Weights = []Weight{
	WeightCPUTime, WeightFrequency, WeightFrequencySquared, WeightFrequencyCubed, WeightCycles, WeightInstructions, WeightCacheMisses,
	WeightMemory, WeightMemoryCPUTime, WeightPowerModel,
}

// Exponent returns the exponent of the clock rate, or 0 if the weight does not use clock rates.
func (w Weight) Exponent() int {
	return 1 + slices.Index([]Weight{WeightFrequency, WeightFrequencySquared, WeightFrequencyCubed}, w)
}

// IsCounted reports whether hardware events of each process measure the weight.
func (w Weight) IsCounted() bool {
	return slices.Contains([]Weight{WeightCycles, WeightInstructions, WeightPowerModel, WeightSmartWatts}, w) || w.CountsMisses()
}

// CountsMisses reports whether the weight is the number of cache misses.
func (w Weight) CountsMisses() bool { return w == WeightCacheMisses || w == WeightMissesOrMemory }

// Key returns the key in package window of the weight of a zone kind.
func (w Weight) Key(kind power.Kind) window.Key {
	switch {
	case w.Exponent() > 0:
		return window.KeyFrequency
	case w == WeightCacheMisses && kind == power.DRAM:
		return window.KeyDRAMCacheMisses
	case w == WeightPowerModel && kind == power.DRAM:
		return window.KeyDRAMPowerModel
	case w == WeightSmartWatts && kind == power.DRAM:
		return window.KeyDRAMSmartWatts
	default:
		return window.Key(w)
	}
}

// WeighsCores reports whether smt_weight applies to the weight of a zone kind: the weight is CPU
// time and the energy of the zone is, for the most part, the energy of cores, or the weight uses
// clock rates.
func (w Weight) WeighsCores(kind power.Kind) bool {
	ofCores := []power.Kind{power.Package, power.Core, power.PSys, power.Platform}
	return w.Exponent() > 0 || w == WeightCPUTime && slices.Contains(ofCores, kind)
}

// Keys returns the distinct keys of the weights of zone kinds other than plain CPU time, in the order
// of zones.
func Keys(zones []power.Kind, of func(power.Kind) Weight, smtWeight float64) (keys []window.Key) {
	for _, kind := range zones {
		w := of(kind)
		isPlain := w == WeightCPUTime && !(smtWeight < 1 && w.WeighsCores(kind))
		if key := w.Key(kind); !isPlain && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}
