// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"context"

	"github.com/energyreceiver/energyreceiver/internal/invalid"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/guest"
)

var vsockDriver = Driver{
	Name: "vsock", Energy: "reported by the hypervisor", Family: "rapl",
	Sections: func(c *Config) []Section { return single("vsock", c.Vsock.Get()) },
	Open: func(_ context.Context, c *Config, env *Env) (power.Meter, error) {
		port := uint32(c.Vsock.Get().Port) // Check has validated the range
		return power.Poll(guest.NewClient(port, env.Want), guest.PollOptions("vsock")), nil
	},
}

// VsockConfig configures the meter vsock.
type VsockConfig struct {
	// Port is the vsock port of the host's receiver, from 1 to 4294967294.
	Port int64 `mapstructure:"port"`

	_ struct{}
}

func (c *VsockConfig) validate(wrong invalid.Reporter) {
	if err := guest.CheckPort(c.Port); err != nil {
		wrong("port", "%w", err)
	}
}
