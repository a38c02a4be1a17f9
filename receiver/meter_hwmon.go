// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"fmt"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/hwmon"
)

// HwmonConfig says what hwmon sensors measure of which the receiver does not know it.
type HwmonConfig struct {
	// Sensors take the place of known sensors of the same zone kind. Those of one kind are added up.
	Sensors []HwmonSensor `mapstructure:"sensors"`

	_ struct{}
}

// HwmonSensor is one sensor below /sys/class/hwmon.
type HwmonSensor struct {
	// Chip is the chip's name: the content of hwmonN/name.
	Chip string `mapstructure:"chip"`
	// Device is the name of the chip's device, the last element of the link hwmonN/device. It tells chips with one name apart.
	Device string `mapstructure:"device"`
	// Sensor is energyN, powerN or the sensor's label.
	Sensor string `mapstructure:"sensor"`
	// Zone is what the sensor measures: platform, package, core, uncore, dram or gpu.
	Zone power.Kind `mapstructure:"zone"`

	_ struct{}
}

// validate checks the sensors. zones are the zone kinds that are reported and attributed.
func (c *HwmonConfig) validate(wrong func(field, format string, args ...any), zones []power.Kind) {
	for i, s := range c.Sensors {
		field := fmt.Sprintf("hwmon::sensors::%d", i)
		if s.Chip == "" {
			wrong(field+"::chip", "must not be empty")
		}
		if s.Sensor == "" {
			wrong(field+"::sensor", "must not be empty")
		}
		oneOf(wrong, field+"::zone", s.Zone, power.Platform, power.Package, power.Core, power.Uncore, power.DRAM, power.GPU)
		if slices.ContainsFunc(c.Sensors[:i], func(o HwmonSensor) bool {
			return o.Chip == s.Chip && o.Sensor == s.Sensor && (o.Device == s.Device || o.Device == "" || s.Device == "")
		}) {
			wrong(field, "the sensor %q of the chip %q is named twice", s.Sensor, s.Chip)
		}
		attributed := slices.Contains([]power.Kind{power.Package, power.Core, power.Uncore, power.DRAM}, s.Zone)
		if attributed && !slices.Contains(zones, s.Zone) {
			wrong("zones", "must name %q, the zone of %s", s.Zone, field)
		}
	}
}

func openHwmon(_ context.Context, o *meterOptions) (power.Meter, error) {
	if !o.uses(MeterHwmon) {
		return nil, nil
	}
	sensors := make([]hwmon.Sensor, len(o.Hwmon.Sensors))
	for i, s := range o.Hwmon.Sensors {
		sensors[i] = hwmon.Sensor{Chip: s.Chip, Device: s.Device, Sensor: s.Sensor, Kind: s.Zone}
	}
	return hwmon.New(hwmon.Options{Root: o.RootPath, Want: o.want, Sensors: sensors}), nil
}
