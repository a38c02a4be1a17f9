// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"context"
	"path/filepath"
	"regexp"

	"github.com/energyreceiver/energyreceiver/internal/invalid"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/guest"
	"github.com/energyreceiver/energyreceiver/internal/power/powercap"
)

var powercapDriver = Driver{
	Name: "powercap", Energy: "measured by powercap (RAPL)", Local: true, Family: "rapl",
	IDs:      regexp.MustCompile(`^intel-rapl[^:]*:`),
	Sections: func(c *Config) []Section { return single("powercap", &c.Powercap) },
	Open: func(_ context.Context, c *Config, env *Env) (power.Meter, error) {
		if path := c.Powercap.Path; path != "" {
			return power.Poll(guest.NewTree(path, env.Want), guest.PollOptions("powercap")), nil
		}
		return powercap.New(env.Root, env.Want), nil
	},
}

// PowercapConfig configures the meter powercap.
type PowercapConfig struct {
	// Path is the absolute path of a directory with the energy that the hypervisor reports for this
	// virtual machine. The meter reads this directory instead of /sys/class/powercap. root_path is
	// not prepended.
	Path string `mapstructure:"path"`

	_ struct{}
}

func (c *PowercapConfig) validate(wrong invalid.Reporter) {
	if c.Path != "" && !filepath.IsAbs(c.Path) {
		wrong("path", "must be an absolute path, is %q", c.Path)
	}
}
