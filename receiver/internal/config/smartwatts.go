// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/energyreceiver/energyreceiver/internal/invalid"

// SmartWattsConfig holds the parameters of the power model of the preset smartwatts. The length of a
// sample is Config.Window. A zero value selects the defaults.
type SmartWattsConfig struct {
	// TDP is the thermal design power of a CPU package in watts. The static power of a
	// model, of the packages or of dram, is at most the TDP times the number of its zones.
	TDP float64 `mapstructure:"tdp"`
	// BaseClock is the base clock of the CPUs in MHz. Each multiple of it has its own model.
	BaseClock float64 `mapstructure:"base_clock"`
	// CPUErrorThreshold is the error of the estimated power of the packages, in watts, above which a
	// model is trained again.
	CPUErrorThreshold float64 `mapstructure:"cpu_error_threshold"`
	// DRAMErrorThreshold is the error of the estimated power of dram, in watts, above which a model
	// of dram is trained again.
	DRAMErrorThreshold float64 `mapstructure:"dram_error_threshold"`
	// MinSamples is the minimum number of samples to train a model.
	MinSamples int `mapstructure:"min_samples"`
	// HistoryWindow is the number of most recent samples that a model is trained with.
	HistoryWindow int `mapstructure:"history_window"`

	_ struct{}
}

// defaultSmartWatts holds the defaults of SmartWatts (section "SmartWatts" of "Existing Approaches to
// Container Energy Consumption Measurement Tools").
var defaultSmartWatts = SmartWattsConfig{
	TDP: 125, BaseClock: 100, CPUErrorThreshold: 2, DRAMErrorThreshold: 2, MinSamples: 10, HistoryWindow: 60,
}

// The limits of the number of samples and of the base clock, in MHz. They limit the memory of models.
const (
	maxSmartWattsSamples = 600
	minBaseClock         = 25
	maxBaseClock         = 1000
)

func (c *SmartWattsConfig) validate(wrong invalid.Reporter) {
	if *c == (SmartWattsConfig{}) {
		return
	}
	power := func(setting string, watts float64) {
		if !(watts > 0 && watts <= maxStaticPower) {
			wrong(setting, "must be above 0 and at most %g watts, is %g", maxStaticPower, watts)
		}
	}
	power("tdp", c.TDP)
	power("cpu_error_threshold", c.CPUErrorThreshold)
	power("dram_error_threshold", c.DRAMErrorThreshold)
	if !(c.BaseClock >= minBaseClock && c.BaseClock <= maxBaseClock) {
		wrong("base_clock", "must be between %d and %d MHz, is %g", minBaseClock, maxBaseClock, c.BaseClock)
	}
	if c.MinSamples < 1 || c.MinSamples > c.HistoryWindow {
		wrong("min_samples", "must be from 1 to history_window, is %d", c.MinSamples)
	}
	if c.HistoryWindow < 1 || c.HistoryWindow > maxSmartWattsSamples {
		wrong("history_window", "must be from 1 to %d, is %d", maxSmartWattsSamples, c.HistoryWindow)
	}
}
