// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/state"
)

// The configuration for programs that embed the receiver.
type (
	// Config is the receiver's configuration.
	Config = config.Config
	// ModelConfig configures the power model.
	ModelConfig = config.ModelConfig
	// ModelPoint is a point of a utilization-to-power curve.
	ModelPoint = config.ModelPoint
	// ProcessSeriesConfig groups processes into series and limits the number of series.
	ProcessSeriesConfig = config.ProcessSeriesConfig
	// StaticPowerConfig is a static power model with its settings.
	StaticPowerConfig = config.StaticPowerConfig
	// Weight is an attribution weight.
	Weight = config.Weight
)

// Values of settings for programs that embed the receiver.
const (
	AllZones          = config.AllZones
	GroupByPID        = config.GroupByPID
	GroupByProgram    = config.GroupByProgram
	IdleNone          = config.IdleNone
	PresetKepler      = config.PresetKepler
	StaticFixed       = config.StaticFixed
	StaticTrained     = config.StaticTrained
	StaticUtilization = config.StaticUtilization
	WeightCPUTime     = config.WeightCPUTime
)

// DefaultConfig returns the receiver's configuration with its defaults.
func DefaultConfig() *Config { return config.Default() }

// StateFile returns the path of the state file of the receiver with this ID in a storage directory.
func StateFile(directory, receiver string) string { return state.Path(directory, receiver) }
