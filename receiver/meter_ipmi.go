// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/ipmi"
)

// IPMIConfig says how the BMC is asked for the machine's power.
type IPMIConfig struct {
	// Interval is the time between two requests, at least 5 s.
	Interval time.Duration `mapstructure:"interval"`

	_ struct{}
}

// minIPMIInterval is the shortest time between two requests. Each keeps the BMC busy for some milliseconds to seconds, and its
// other users waiting.
const minIPMIInterval = 5 * time.Second

func (c *IPMIConfig) validate(wrong func(field, format string, args ...any)) {
	if c.Interval < minIPMIInterval {
		wrong("ipmi::interval", "must be at least %v, is %v", minIPMIInterval, c.Interval)
	}
}

func openIPMI(_ context.Context, o *meterOptions) (power.Meter, error) {
	if !o.uses(MeterIPMI) {
		return nil, nil
	}
	every := o.IPMI.Interval
	return power.NewPoller(ipmi.New(o.RootPath, every), power.PollOptions{Name: string(MeterIPMI), Every: every}), nil
}
