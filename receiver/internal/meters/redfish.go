// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"cmp"
	"context"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/redfish"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

const (
	// A poll that searches for the machine sends about ten requests. A poll that reads power
	// supplies sends one for each.
	redfishRequests = 20
	// redfishGap is the maximum number of timeouts between readings that are integrated. Some BMCs
	// take long to answer.
	redfishGap = 5
	// redfishStandsStill allows for counters of 1 kWh, which some BMCs have without a power
	// reading.
	redfishStandsStill = 24 * time.Hour
)

func openRedfish(ctx context.Context, o *meterOptions) (power.Meter, error) {
	if !o.Meters.Redfish.HasValue() {
		return nil, nil
	}
	c := o.Meters.Redfish.Get()
	sensor, err := redfishSensor(ctx, c, o)
	if err != nil {
		return nil, err
	}
	interval, timeout := c.PollInterval, cmp.Or(c.Timeout, config.RedfishTimeout)
	return power.NewPoller(sensor, power.PollOptions{
		Name: string(config.MeterRedfish), Every: interval, Timeout: redfishRequests * timeout,
		LongestGap: max(3*interval, redfishGap*timeout), StandsStill: redfishStandsStill,
	}), nil
}

func redfishSensor(ctx context.Context, c *config.RedfishConfig, o *meterOptions) (*redfish.Sensor, error) {
	client, err := o.client(ctx, c.ClientConfig, cmp.Or(c.Timeout, config.RedfishTimeout))
	if err != nil {
		return nil, err
	}
	return redfish.New(redfish.Options{
		Client: client, Endpoint: c.Endpoint, Username: c.Username, Password: c.ReadPassword, System: c.System, Chassis: c.Chassis,
		Root: o.RootPath,
	})
}
