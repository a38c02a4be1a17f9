// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"context"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/guest"
	"github.com/energyreceiver/energyreceiver/internal/power/powercap"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func openPowercap(_ context.Context, o *meterOptions) (power.Meter, error) {
	switch {
	case !o.Meters.Uses(config.MeterPowercap):
		return nil, nil
	case o.Meters.Powercap.Path != "":
		return power.NewPoller(guest.NewTree(o.Meters.Powercap.Path, o.want), guest.PollOptions(string(config.MeterPowercap))), nil
	}
	return powercap.New(o.RootPath, o.want), nil
}
