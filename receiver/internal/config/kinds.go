// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// WantsUnits reports whether units of systemd are found: for their own metrics, or to distinguish
// programs.
func (c *Config) WantsUnits() bool {
	return c.Metrics.SystemdUnitEnergy.Enabled || c.Metrics.SystemdUnitPower.Enabled ||
		c.Series.Processes.GroupBy != GroupByPID && c.ResourceAttributes.SystemdUnitName.Enabled
}

// WantsUsage reports whether counters of containers or pods are reported next to their energy.
func (c *Config) WantsUsage() bool {
	m := &c.Metrics
	return m.ContainerDiskIo.Enabled || m.ContainerNetworkIo.Enabled || m.K8sPodNetworkIo.Enabled ||
		m.ContainerCPUCycles.Enabled || m.ContainerCPUInstructions.Enabled || m.ContainerCPUCacheMisses.Enabled
}

// HiddenNames returns the names of containers and pods that are not reported.
func (c *Config) HiddenNames() attribution.GroupNames {
	return attribution.GroupNames{
		Namespace:           !c.ResourceAttributes.K8sNamespaceName.Enabled,
		KubernetesContainer: !c.ResourceAttributes.K8sContainerName.Enabled,
		Image:               !c.ResourceAttributes.ContainerImageName.Enabled,
	}
}

// LedgerKinds returns the kinds that the ledger may have: the configured zone kinds and those that
// may stand in for package as measured, the same as reported where a hypervisor reports, and those
// that may be modeled. Accounts have memory up to the last kind that is in use, so what is likely
// in use comes first.
func (c *Config) LedgerKinds() (kinds []power.Class) {
	attributed := slices.Clone(c.Zones)
	for _, zone := range WholeMachine {
		if c.mayStandIn(zone) {
			attributed = append(attributed, zone)
		}
	}
	add := func(source power.Method, zones []power.Kind) {
		for _, zone := range zones {
			kinds = append(kinds, power.Class{Zone: zone, Method: source})
		}
	}
	if c.Meters.reports() {
		add(power.Reported, slices.DeleteFunc(slices.Clone(attributed), func(zone power.Kind) bool {
			return zone == power.Other || zone == power.GPU
		}))
	}
	add(power.Measured, attributed)
	add(power.Modeled, c.ModeledKinds())
	return kinds
}

// mayStandIn reports whether zones of a kind that is not configured may be attributed, in place of
// package.
func (c *Config) mayStandIn(zone power.Kind) bool {
	return slices.Contains(WholeMachine, zone) && slices.Contains(c.Zones, power.Package) && !slices.Contains(c.Zones, zone)
}

// WholeMachine are the zone kinds that stand in for package. Of several that can be read, the first
// does.
var WholeMachine = []power.Kind{power.Platform, power.PSys}
