// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/energyreceiver/energyreceiver/internal/invalid"

// SmartWattsConfig holds the parameters of the power model of the preset smartwatts. The length of a
// sample is Config.Window.
type SmartWattsConfig struct {
	// TDP is the thermal design power of a CPU package in watts. It limits the static power of the
	// packages and of dram to the TDP times the number of zones. 0 sets no limit. A value below the
	// TDP of your CPU makes the model inaccurate.
	TDP float64 `mapstructure:"tdp"`
	// BaseClock is the base clock of the CPUs in MHz, from 25 to 1000. Each multiple of it has its
	// own model.
	BaseClock float64 `mapstructure:"base_clock"`
	// CPUErrorThreshold is the maximum error of the estimated power of the packages, in watts. It
	// must be above 0. A model with a larger error is trained again.
	CPUErrorThreshold float64 `mapstructure:"cpu_error_threshold"`
	// DRAMErrorThreshold is the same for dram.
	DRAMErrorThreshold float64 `mapstructure:"dram_error_threshold"`
	// MinSamples is the minimum number of samples to train a model, from 1 to history_window.
	MinSamples int `mapstructure:"min_samples"`
	// HistoryWindow is the number of most recent samples that a model is trained with, at most 600.
	HistoryWindow int `mapstructure:"history_window"`

	_ struct{}
}

// defaultSmartWatts holds the defaults of SmartWatts (section "SmartWatts" of "Existing Approaches to
// Container Energy Consumption Measurement Tools"), except the TDP of 125 W. Current servers exceed
// it.
var defaultSmartWatts = SmartWattsConfig{
	BaseClock: 100, CPUErrorThreshold: 2, DRAMErrorThreshold: 2, MinSamples: 10, HistoryWindow: 60,
}

// The limits of the number of samples and of the base clock, in MHz. They limit the memory of models.
const (
	maxSmartWattsSamples = 600
	minBaseClock         = 25
	maxBaseClock         = 1000
)

func (c *SmartWattsConfig) validate(wrong invalid.Reporter) {
	if !(c.TDP >= 0 && c.TDP <= maxStaticPower) {
		wrong("tdp", "must be between 0 and %g watts, is %g", maxStaticPower, c.TDP)
	}
	power := func(setting string, watts float64) {
		if !(watts > 0 && watts <= maxStaticPower) {
			wrong(setting, "must be above 0 and at most %g watts, is %g", maxStaticPower, watts)
		}
	}
	power("cpu_error_threshold", c.CPUErrorThreshold)
	power("dram_error_threshold", c.DRAMErrorThreshold)
	if !(c.BaseClock >= minBaseClock && c.BaseClock <= maxBaseClock) {
		wrong("base_clock", "must be between %d and %d MHz, is %g", minBaseClock, maxBaseClock, c.BaseClock)
	}
	switch fewest, history := c.MinSamples, c.HistoryWindow; {
	case fewest < 1 || fewest > maxSmartWattsSamples:
		wrong("min_samples", "must be from 1 to %d, is %d", maxSmartWattsSamples, fewest)
	case history < fewest || history > maxSmartWattsSamples:
		wrong("history_window", "must be from min_samples (%d) to %d, is %d", fewest, maxSmartWattsSamples, history)
	}
}
