// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/powercap"
)

func openPowercap(_ context.Context, o *meterOptions) (power.Meter, error) {
	if !o.uses(MeterPowercap) {
		return nil, nil
	}
	return powercap.New(o.RootPath, o.want), nil
}
