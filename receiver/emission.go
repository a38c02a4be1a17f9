// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"go.opentelemetry.io/collector/filter"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/energyreceiver/energyreceiver/receiver/internal/emit"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// emittedMetrics tells the emitter which metrics the configuration enables.
func emittedMetrics(m *metadata.MetricsConfig) emit.Metrics {
	return emit.Metrics{
		HwEnergy:                 m.HwEnergy.Enabled,
		HwPower:                  m.HwPower.Enabled,
		HwHostEnergy:             m.HwHostEnergy.Enabled,
		HwHostPower:              m.HwHostPower.Enabled,
		SystemEnergy:             m.SystemEnergy.Enabled,
		SystemPower:              m.SystemPower.Enabled,
		SystemUnattributedEnergy: m.SystemUnattributedEnergy.Enabled,
		SystemCPUUtilization:     m.SystemCPUUtilization.Enabled,
		ProcessEnergy:            m.ProcessEnergy.Enabled,
		ProcessPower:             m.ProcessPower.Enabled,
		ProcessCPUTime:           m.ProcessCPUTime.Enabled,
		ContainerEnergy:          m.ContainerEnergy.Enabled,
		ContainerPower:           m.ContainerPower.Enabled,
		ContainerCPUTime:         m.ContainerCPUTime.Enabled,
		PodEnergy:                m.K8sPodEnergy.Enabled,
		PodPower:                 m.K8sPodPower.Enabled,
		VMEnergy:                 m.VMEnergy.Enabled,
		VMPower:                  m.VMPower.Enabled,

		SystemCPUInfo:             m.SystemCPUInfo.Enabled,
		SystemSplitLearned:        m.SystemEnergySplitLearned.Enabled,
		ProcessPowerUncertainty:   m.ProcessPowerUncertainty.Enabled,
		ContainerPowerUncertainty: m.ContainerPowerUncertainty.Enabled,
		PodPowerUncertainty:       m.K8sPodPowerUncertainty.Enabled,
		VMPowerUncertainty:        m.VMPowerUncertainty.Enabled,
	}
}

// emittedAttributes tells the emitter which resource attributes the configuration enables.
func emittedAttributes(a *metadata.ResourceAttributesConfig) emit.Attributes {
	return emit.Attributes{
		ContainerID:           a.ContainerID.Enabled,
		ContainerRuntimeName:  a.ContainerRuntimeName.Enabled,
		EnergySource:          a.EnergySource.Enabled,
		PodQoSClass:           a.K8sPodQosClass.Enabled,
		PodUID:                a.K8sPodUID.Enabled,
		ProcessCommandLine:    a.ProcessCommandLine.Enabled,
		ProcessCreationTime:   a.ProcessCreationTime.Enabled,
		ProcessExecutableName: a.ProcessExecutableName.Enabled,
		ProcessExecutablePath: a.ProcessExecutablePath.Enabled,
		ProcessPID:            a.ProcessPid.Enabled,
		VMHypervisor:          a.VMHypervisor.Enabled,
		VMID:                  a.VMID.Enabled,
		VMName:                a.VMName.Enabled,
	}
}

// sharedSeries is a disabled attribute without which different things have one series.
type sharedSeries struct{ attribute, of string }

// findSharedSeries returns those that the configuration asks for: identical series that say different things in
// the same collection, of which a backend keeps one, or none.
func findSharedSeries(m *emit.Metrics, a *emit.Attributes) (shared []sharedSeries) {
	for _, s := range []struct {
		sharedSeries
		told, emitted bool
	}{
		{sharedSeries{"process.pid", "processes"}, a.ProcessPID, m.ProcessEnergy || m.ProcessPower || m.ProcessPowerUncertainty || m.ProcessCPUTime},
		{
			sharedSeries{"process.creation.time", "a process and a later one with its PID"}, a.ProcessCreationTime,
			m.ProcessEnergy || m.ProcessPower || m.ProcessPowerUncertainty || m.ProcessCPUTime,
		},
		{sharedSeries{"container.id", "containers"}, a.ContainerID, m.ContainerEnergy || m.ContainerPower || m.ContainerPowerUncertainty || m.ContainerCPUTime},
		{sharedSeries{"k8s.pod.uid", "pods"}, a.PodUID, m.PodEnergy || m.PodPower || m.PodPowerUncertainty},
		{sharedSeries{"vm.id", "virtual machines"}, a.VMID, m.VMEnergy || m.VMPower || m.VMPowerUncertainty},
	} {
		if !s.told && s.emitted {
			shared = append(shared, s.sharedSeries)
		}
	}
	return shared
}

// resourceFilter keeps or drops resources by the values of their attributes: metrics_include and
// metrics_exclude of the resource_attributes settings.
type resourceFilter []attributeFilter

type attributeFilter struct {
	attribute string
	filter    filter.Filter
	keep      bool // what a match means
}

func newResourceFilter(a *metadata.ResourceAttributesConfig) resourceFilter {
	var f resourceFilter
	for attribute, c := range map[string]*metadata.ResourceAttributeConfig{
		"container.id":            &a.ContainerID,
		"container.runtime.name":  &a.ContainerRuntimeName,
		"energy.source":           &a.EnergySource,
		"k8s.pod.qos_class":       &a.K8sPodQosClass,
		"k8s.pod.uid":             &a.K8sPodUID,
		"process.command_line":    &a.ProcessCommandLine,
		"process.creation.time":   &a.ProcessCreationTime,
		"process.executable.name": &a.ProcessExecutableName,
		"process.executable.path": &a.ProcessExecutablePath,
		"process.pid":             &a.ProcessPid,
		"vm.hypervisor":           &a.VMHypervisor,
		"vm.id":                   &a.VMID,
		"vm.name":                 &a.VMName,
	} {
		if c.MetricsInclude != nil {
			f = append(f, attributeFilter{attribute, filter.CreateFilter(c.MetricsInclude), true})
		}
		if c.MetricsExclude != nil {
			f = append(f, attributeFilter{attribute, filter.CreateFilter(c.MetricsExclude), false})
		}
	}
	return f
}

// keep says whether a resource is emitted: each attribute that it has and that is filtered must match
// what is included and must not match what is excluded.
func (f resourceFilter) keep(r pcommon.Resource) bool {
	for _, a := range f {
		value, ok := r.Attributes().Get(a.attribute)
		if ok && a.filter.Matches(value.AsString()) != a.keep {
			return false
		}
	}
	return true
}
