// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// HypervisorConfig says how the hypervisor is asked.
type HypervisorConfig struct {
	// VsockPort is the port that the hypervisor listens at: its guests::vsock_port.
	VsockPort int `mapstructure:"vsock_port"`

	_ struct{}
}

func openHypervisor(_ context.Context, o *meterOptions) (power.Meter, error) {
	if !o.Hypervisor.HasValue() {
		return nil, nil
	}
	return nil, errors.New("hypervisor: not supported yet")
}
