// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"context"
	"regexp"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/perf"
)

var perfDriver = Driver{
	Name: "perf", Energy: "measured by perf events (RAPL)", Local: true, Family: "rapl",
	IDs: regexp.MustCompile(`^power(_core)?:`),
	Open: func(_ context.Context, c *Config, env *Env) (power.Meter, error) {
		if c.Powercap.Path != "" { // the hypervisor reports the energy of RAPL zones
			return nil, nil
		}
		return perf.New(env.Root, env.Want), nil
	},
}
