// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/ipmi"
)

// IPMIConfig configures the meter ipmi.
type IPMIConfig struct {
	PollConfig       `mapstructure:",squash"`
	CorrectionConfig `mapstructure:",squash"`

	_ struct{}
}

func (c *IPMIConfig) validate(wrong reporter) {
	c.PollConfig.validate(wrong, minIPMIInterval)
	c.CorrectionConfig.validate(wrong, c.PollInterval)
}

// minIPMIInterval is the shortest time between two requests. Each keeps the BMC busy for some milliseconds to seconds, and its
// other users waiting.
const minIPMIInterval = 5 * time.Second

func openIPMI(_ context.Context, o *meterOptions) (power.Meter, error) {
	if !o.Meters.uses(MeterIPMI) {
		return nil, nil
	}
	every := o.Meters.IPMI.PollInterval
	return power.NewPoller(ipmi.New(o.RootPath, every), power.PollOptions{Name: string(MeterIPMI), Every: every}), nil
}
