// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"math"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/guest"
)

// VsockConfig is a vsock port between a host and its virtual machines.
type VsockConfig struct {
	// Port is the vsock port at which the host's receiver listens, from 1 to 4294967294.
	Port int `mapstructure:"port"`

	_ struct{}
}

// maxVsockPort is the largest port. The port above it means any port (VMADDR_PORT_ANY).
const maxVsockPort = math.MaxUint32 - 1

func (c *VsockConfig) validate(wrong reporter) {
	if port := int64(c.Port); port < 1 || port > maxVsockPort {
		wrong("port", "must be between 1 and %d, is %d", maxVsockPort, port)
	}
}

func openVsock(_ context.Context, o *meterOptions) (power.Meter, error) {
	if !o.Meters.Vsock.HasValue() {
		return nil, nil
	}
	port := uint32(o.Meters.Vsock.Get().Port) // Validate bounds it
	return power.NewPoller(guest.NewClient(port, o.want), guest.PollOptions(string(MeterVsock))), nil
}
