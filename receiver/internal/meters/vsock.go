// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"context"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/guest"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func openVsock(_ context.Context, o *meterOptions) (power.Meter, error) {
	if !o.Meters.Vsock.HasValue() {
		return nil, nil
	}
	port := uint32(o.Meters.Vsock.Get().Port) // Validate bounds it
	return power.NewPoller(guest.NewClient(port, o.want), guest.PollOptions(string(config.MeterVsock))), nil
}
