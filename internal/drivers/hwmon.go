// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/invalid"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/hwmon"
)

var hwmonDriver = Driver{
	Name: "hwmon", Energy: "measured by hwmon", Local: true,
	Sections: func(c *Config) []Section { return single("hwmon", &c.Hwmon) }, Corrected: true,
	Defaults: func(c *Config) { c.Hwmon.CorrectionConfig = uncorrected },
	Open: func(_ context.Context, c *Config, env *Env) (power.Meter, error) {
		var sensors []hwmon.Sensor
		for _, key := range slices.Sorted(maps.Keys(c.Hwmon.Sensors)) {
			sensor := ParseSensor(key)
			sensor.Kind = c.Hwmon.Sensors[key]
			sensors = append(sensors, sensor)
		}
		return hwmon.New(hwmon.Options{Root: env.Root, Want: env.Want, Sensors: sensors}), nil
	},
}

// HwmonConfig configures the meter hwmon.
type HwmonConfig struct {
	// Sensors assigns a zone kind to sensors whose meaning the meter cannot detect. A key is
	// chip/device/sensor, as listed in the startup log, or chip/sensor for this sensor of any device.
	// These sensors replace the detected sensors of the same zone kind. Sensors of the same zone kind
	// are added up.
	Sensors          map[string]power.Kind `mapstructure:"sensors" keys:"chip/device/sensor"`
	CorrectionConfig `mapstructure:",squash"`

	_ struct{}
}

func (c *HwmonConfig) validate(wrong invalid.Reporter) {
	c.CorrectionConfig.validate(wrong, 0)
	keys := slices.Sorted(maps.Keys(c.Sensors))
	for i, key := range keys {
		setting, is := "sensors::"+key, ParseSensor(key)
		if is.Chip == "" || is.Sensor == "" {
			wrong(setting, "must be named chip/device/sensor or chip/sensor")
		}
		invalid.OneOf(wrong, setting, c.Sensors[key], power.Platform, power.Package, power.Core, power.Uncore, power.DRAM, power.GPU)
		if slices.ContainsFunc(keys[:i], func(key string) bool {
			other := ParseSensor(key)
			return other.Chip == is.Chip && other.Sensor == is.Sensor && (other.Device == is.Device || other.Device == "" || is.Device == "")
		}) {
			wrong(setting, "the sensor %q of the chip %q is listed twice", is.Sensor, is.Chip)
		}
	}
}

func (c *HwmonConfig) zones() map[string]power.Kind {
	zones := map[string]power.Kind{}
	for key, kind := range c.Sensors {
		zones["sensors::"+key] = kind
	}
	return zones
}

// ParseSensor parses a key of HwmonConfig.Sensors. A key without a slash has an empty Sensor.
func ParseSensor(key string) (s hwmon.Sensor) {
	s.Chip, s.Sensor, _ = strings.Cut(key, "/")
	if device, sensor, hasDevice := strings.Cut(s.Sensor, "/"); hasDevice {
		s.Device, s.Sensor = device, sensor
	}
	return s
}
