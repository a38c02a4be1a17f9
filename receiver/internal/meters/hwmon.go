// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"context"
	"maps"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/hwmon"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func openHwmon(_ context.Context, o *meterOptions) (power.Meter, error) {
	if !o.Meters.Uses(config.MeterHwmon) {
		return nil, nil
	}
	var sensors []hwmon.Sensor
	for _, key := range slices.Sorted(maps.Keys(o.Meters.Hwmon.Sensors)) {
		sensor := config.ParseSensor(key)
		sensor.Kind = o.Meters.Hwmon.Sensors[key]
		sensors = append(sensors, sensor)
	}
	return hwmon.New(hwmon.Options{Root: o.RootPath, Want: o.want, Sensors: sensors}), nil
}
