// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/hwmon"
)

// HwmonConfig configures the meter hwmon.
type HwmonConfig struct {
	// Sensors maps sensors of unknown meaning to the zone kind that they measure. The keys are
	// chip/device/sensor, as the startup log lists them, or chip/sensor for the sensor of any
	// device. These sensors replace the known sensors of the same zone kind. Sensors of one zone
	// kind are added up.
	Sensors          map[string]power.Kind `mapstructure:"sensors" keys:"chip/device/sensor"`
	CorrectionConfig `mapstructure:",squash"`

	_ struct{}
}

func (c *HwmonConfig) validate(wrong reporter) {
	c.CorrectionConfig.validate(wrong, 0)
	keys := slices.Sorted(maps.Keys(c.Sensors))
	for i, key := range keys {
		setting, is := "sensors::"+key, ParseSensor(key)
		if is.Chip == "" || is.Sensor == "" {
			wrong(setting, "must be named chip/device/sensor or chip/sensor")
		}
		oneOf(wrong, setting, c.Sensors[key], power.Platform, power.Package, power.Core, power.Uncore, power.DRAM, power.GPU)
		if slices.ContainsFunc(keys[:i], func(key string) bool {
			other := ParseSensor(key)
			return other.Chip == is.Chip && other.Sensor == is.Sensor && (other.Device == is.Device || other.Device == "" || is.Device == "")
		}) {
			wrong(setting, "the sensor %q of the chip %q is named twice", is.Sensor, is.Chip)
		}
	}
}

// ParseSensor returns the sensor that a key of HwmonConfig.Sensors names.
func ParseSensor(key string) (s hwmon.Sensor) {
	s.Chip, s.Sensor, _ = strings.Cut(key, "/")
	if device, sensor, hasDevice := strings.Cut(s.Sensor, "/"); hasDevice {
		s.Device, s.Sensor = device, sensor
	}
	return s
}
