// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/guest"
)

// VsockConfig is a vsock port between a host and its virtual machines.
type VsockConfig struct {
	// Port is the vsock port at which the host's receiver listens, from 1 to 4294967294.
	Port int `mapstructure:"port"`

	_ struct{}
}

func (c *VsockConfig) validate(wrong reporter) {
	if err := guest.CheckPort(c.Port); err != nil {
		wrong("port", "%w", err)
	}
}

func openVsock(_ context.Context, o *meterOptions) (power.Meter, error) {
	if !o.Meters.Vsock.HasValue() {
		return nil, nil
	}
	port := uint32(o.Meters.Vsock.Get().Port) // Validate bounds it
	return power.NewPoller(guest.NewClient(port, o.want), guest.PollOptions(string(MeterVsock))), nil
}
