// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"context"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/ipmi"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func openIPMI(_ context.Context, o *meterOptions) (power.Meter, error) {
	if !o.Meters.Uses(config.MeterIPMI) {
		return nil, nil
	}
	every := o.Meters.IPMI.PollInterval
	return power.NewPoller(ipmi.New(o.RootPath, every), power.PollOptions{Name: string(config.MeterIPMI), Every: every}), nil
}
