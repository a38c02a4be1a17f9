// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"context"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/perf"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func openPerf(_ context.Context, o *meterOptions) (power.Meter, error) {
	if !o.Meters.Uses(config.MeterPerf) || o.Meters.Powercap.Path != "" { // RAPL is reported
		return nil, nil
	}
	return perf.New(o.RootPath, o.want), nil
}
