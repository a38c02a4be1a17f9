// SPDX-License-Identifier: Apache-2.0

package measure

// Names of the receiver's metrics and attributes that this package reads.
const (
	metricSystemEnergy    = "system.energy"
	metricContainerEnergy = "container.energy"
	metricProcessEnergy   = "process.energy"
	metricUtilization     = "system.cpu.busy"

	attrZone       = "energy.zone"
	attrSource     = "energy.method"
	attrState      = "energy.state"
	attrExecutable = "process.executable.name"
)
