// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"context"
	"regexp"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/cray"
)

var crayDriver = Driver{
	Name: "cray", Energy: "measured by the counters of the Cray node", Local: true,
	IDs: regexp.MustCompile(`^pm_counters:`),
	Open: func(_ context.Context, _ *Config, env *Env) (power.Meter, error) {
		return cray.New(env.Root, env.Want), nil
	},
}
