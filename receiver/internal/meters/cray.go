// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"context"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/cray"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func openCray(_ context.Context, o *meterOptions) (power.Meter, error) {
	if !o.Meters.Uses(config.MeterCray) {
		return nil, nil
	}
	return cray.New(o.RootPath, o.want), nil
}
