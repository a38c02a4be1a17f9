// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"context"
	"regexp"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/battery"
)

// batteryDriver is opt-in for two reasons. Once a battery has measured the machine, the power model
// no longer estimates packages, even on mains power, when the battery has no reading. And a virtual
// machine may show the battery of its host.
var batteryDriver = Driver{
	Name: "battery", Energy: "measured by the batteries while they are the only supply", Local: true, OptIn: true, Only: power.Platform,
	IDs: regexp.MustCompile("^battery$"),
	Open: func(_ context.Context, _ *Config, env *Env) (power.Meter, error) {
		return power.Poll(battery.New(env.Root), power.PollOptions{Name: "battery"}), nil
	},
}
