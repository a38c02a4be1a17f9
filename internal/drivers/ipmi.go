// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"context"
	"regexp"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/invalid"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/ipmi"
)

var ipmiDriver = Driver{
	Name: "ipmi", Energy: "measured by the BMC (IPMI DCMI)", Local: true, Only: power.Platform,
	IDs:      regexp.MustCompile(`^ipmi[0-9]*$`),
	Sections: func(c *Config) []Section { return single("ipmi", &c.IPMI) }, Corrected: true,
	Defaults: func(c *Config) { c.IPMI.PollInterval, c.IPMI.CorrectionConfig = minIPMIInterval, uncorrected },
	Open: func(_ context.Context, c *Config, env *Env) (power.Meter, error) {
		every := c.IPMI.PollInterval
		bmc := ipmi.New(env.Root, every)
		return power.Poll(bmc, power.PollOptions{Name: "ipmi", Find: bmc.Find, Every: every}), nil
	},
}

// IPMIConfig configures the meter ipmi.
type IPMIConfig struct {
	PollConfig       `mapstructure:",squash"`
	CorrectionConfig `mapstructure:",squash"`

	_ struct{}
}

// minIPMIInterval is the minimum time between two requests. A request keeps the BMC busy for
// milliseconds to seconds. Other users of the BMC wait during this time.
const minIPMIInterval = 5 * time.Second

func (c *IPMIConfig) validate(wrong invalid.Reporter) {
	c.PollConfig.validate(wrong, minIPMIInterval)
	c.CorrectionConfig.validate(wrong, c.PollInterval)
}
