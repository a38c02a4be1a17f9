// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/perf"
)

func openPerf(_ context.Context, o *meterOptions) (power.Meter, error) {
	if !o.uses(MeterPerf) || o.PowercapPath != "" { // RAPL is reported
		return nil, nil
	}
	return perf.New(o.RootPath, o.want), nil
}
