// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"fmt"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/guest"
)

// HypervisorConfig says how the hypervisor is asked.
type HypervisorConfig struct {
	// VsockPort is the port that the hypervisor listens at: its guests::vsock_port.
	VsockPort int `mapstructure:"vsock_port"`

	_ struct{}
}

// Validate checks the settings. Each error names its field.
func (c *HypervisorConfig) Validate() error {
	if port := int64(c.VsockPort); port < 1 || port > maxVsockPort {
		return fmt.Errorf("vsock_port: must be between 1 and %d, is %d", maxVsockPort, port)
	}
	return nil
}

func openHypervisor(_ context.Context, o *meterOptions) (power.Meter, error) {
	if !o.Hypervisor.HasValue() {
		return nil, nil
	}
	port := uint32(o.Hypervisor.Get().VsockPort) // Validate bounds it
	return power.NewPoller(guest.NewClient(port, o.want), guest.PollOptions(string(MeterHypervisor))), nil
}
