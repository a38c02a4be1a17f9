// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// simpleConfig returns a configuration with Kepler's rules, which make expected figures simple, and
// with a series for each process.
func simpleConfig() *config.Config {
	cfg := config.Default()
	cfg.Attribution.Preset, cfg.Model = config.PresetKepler, configoptional.None[config.ModelConfig]()
	cfg.Series.Processes = config.ProcessSeriesConfig{GroupBy: config.GroupByPID}
	return cfg
}

// allStatic returns the setting attribution::static_power with one model for all zones.
func allStatic(model config.StaticModel) map[power.Kind]config.StaticPowerConfig {
	return map[power.Kind]config.StaticPowerConfig{config.AllZones: {Model: model}}
}

// fixedPower returns the setting attribution::static_power with the static power of zones in watts.
func fixedPower(watts map[power.Kind]float64) map[power.Kind]config.StaticPowerConfig {
	static := map[power.Kind]config.StaticPowerConfig{}
	for kind, w := range watts {
		static[kind] = config.StaticPowerConfig{Model: config.StaticFixed, Power: &w}
	}
	return static
}
