// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/energyreceiver/energyreceiver/internal/ledger"

// WantsUnits reports whether systemd units are required: for their own metrics, or to distinguish
// programs.
func (c *Config) WantsUnits() bool {
	return c.Metrics.SystemdUnitEnergy.Enabled || c.Metrics.SystemdUnitPower.Enabled ||
		c.Series.Processes.GroupBy != GroupByPID && c.ResourceAttributes.SystemdUnitName.Enabled
}

// WantsUsage reports whether counters of containers or pods are reported next to their energy.
func (c *Config) WantsUsage() bool {
	m := &c.Metrics
	return m.ContainerDiskIo.Enabled || m.ContainerNetworkIo.Enabled || m.K8sPodNetworkIo.Enabled
}

// HiddenNames returns the names of containers and pods that are not reported.
func (c *Config) HiddenNames() ledger.GroupNames {
	return ledger.GroupNames{
		Namespace:           !c.ResourceAttributes.K8sNamespaceName.Enabled,
		KubernetesContainer: !c.ResourceAttributes.K8sContainerName.Enabled,
		Image:               !c.ResourceAttributes.ContainerImageName.Enabled,
	}
}
