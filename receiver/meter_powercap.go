// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/guest"
	"github.com/energyreceiver/energyreceiver/internal/power/powercap"
)

func openPowercap(_ context.Context, o *meterOptions) (power.Meter, error) {
	switch {
	case !o.Meters.uses(MeterPowercap):
		return nil, nil
	case o.Meters.Powercap.Path != "":
		return power.NewPoller(guest.NewTree(o.Meters.Powercap.Path, o.want), guest.PollOptions(string(MeterPowercap))), nil
	}
	return powercap.New(o.RootPath, o.want), nil
}
