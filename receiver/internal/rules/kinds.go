// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// WholeMachine are the zone kinds that can replace package. If both can be read, the first one is
// used, or psys for a preset that prefers it.
var WholeMachine = []power.Kind{power.Platform, power.PSys}

// kindsOf returns the kinds that the ledger may have. Configured zone kinds, and zone kinds that
// may replace package, can be measured. If a hypervisor reports energy, they can also be reported.
// Some can be modeled. Accounts have memory up to the last kind that is in use, so kinds that are
// likely in use come first.
func kindsOf(c *config.Config) (kinds []power.Class) {
	attributed := slices.Clone(c.Zones)
	for _, zone := range WholeMachine {
		if mayStandIn(c, zone) {
			attributed = append(attributed, zone)
		}
	}
	add := func(source power.Method, zones []power.Kind) {
		for _, zone := range zones {
			kinds = append(kinds, power.Class{Zone: zone, Method: source})
		}
	}
	if c.Meters.AreReported() {
		add(power.Reported, slices.DeleteFunc(slices.Clone(attributed), func(zone power.Kind) bool {
			return zone == power.Other || zone == power.GPU
		}))
	}
	add(power.Measured, attributed)
	add(power.Modeled, c.ModeledKinds())
	return kinds
}

// mayStandIn reports whether zones of a kind that is not configured may be attributed instead of
// package.
func mayStandIn(c *config.Config, zone power.Kind) bool {
	return slices.Contains(WholeMachine, zone) && slices.Contains(c.Zones, power.Package) && !slices.Contains(c.Zones, zone)
}
