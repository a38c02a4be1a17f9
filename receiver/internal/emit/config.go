// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// Config says what is emitted.
type Config struct {
	Metrics    Metrics
	Attributes Attributes
	// Keep drops a resource for which it returns false; nil keeps all.
	Keep func(pcommon.Resource) bool
	// Kinds are the names of the ledger's columns, the values of energy.zone.
	Kinds []power.Kind
	// Source is the value of energy.source.
	Source power.Source
	// Idle says that idle energy has owners: what is attributed is emitted by state.
	Idle bool
	// CPUs are the node's logical CPUs.
	CPUs []CPU
	// Scope and Version name the instrumentation scope.
	Scope, Version string
}

// Metrics says which metrics are emitted.
type Metrics struct {
	HwEnergy, HwPower               bool
	HwHostEnergy, HwHostPower       bool
	SystemEnergy, SystemPower       bool
	SystemUnattributedEnergy        bool
	SystemCPUUtilization            bool
	SystemCPUInfo                   bool
	SystemSplitLearned              bool
	ProcessEnergy, ProcessPower     bool
	ProcessCPUTime                  bool
	ContainerEnergy, ContainerPower bool
	ContainerCPUTime                bool
	PodEnergy, PodPower             bool
	VMEnergy, VMPower               bool

	ProcessPowerUncertainty, ContainerPowerUncertainty, PodPowerUncertainty, VMPowerUncertainty bool
}

// CPU describes a logical CPU. What is empty is left out.
type CPU struct {
	Number                       int
	Vendor, Model, Package, Core string
}

// Attributes says which resource attributes are set.
type Attributes struct {
	ContainerID, ContainerRuntimeName            bool
	EnergySource                                 bool
	PodQoSClass, PodUID                          bool
	ProcessCommandLine                           bool
	ProcessCreationTime                          bool
	ProcessExecutableName, ProcessExecutablePath bool
	ProcessPID                                   bool
	VMHypervisor, VMID, VMName                   bool
}
