// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/filter"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// settingsByName returns the settings of each resource attribute by its name.
func settingsByName(cfg *metadata.ResourceAttributesConfig) map[string]metadata.ResourceAttributeConfig {
	return map[string]metadata.ResourceAttributeConfig{
		"container.id":            cfg.ContainerID,
		"container.image.name":    cfg.ContainerImageName,
		"container.name":          cfg.ContainerName,
		"container.runtime.name":  cfg.ContainerRuntimeName,
		"k8s.container.name":      cfg.K8sContainerName,
		"k8s.namespace.name":      cfg.K8sNamespaceName,
		"k8s.pod.name":            cfg.K8sPodName,
		"k8s.pod.qos_class":       cfg.K8sPodQosClass,
		"k8s.pod.uid":             cfg.K8sPodUID,
		"process.command_line":    cfg.ProcessCommandLine,
		"process.creation.time":   cfg.ProcessCreationTime,
		"process.descendants":     cfg.ProcessDescendants,
		"process.executable.name": cfg.ProcessExecutableName,
		"process.executable.path": cfg.ProcessExecutablePath,
		"process.owner":           cfg.ProcessOwner,
		"process.parent_pid":      cfg.ProcessParentPid,
		"process.pid":             cfg.ProcessPid,
		"slurm.job.id":            cfg.SlurmJobID,
		"slurm.job.user":          cfg.SlurmJobUser,
		"slurm.step.id":           cfg.SlurmStepID,
		"systemd.unit.name":       cfg.SystemdUnitName,
		"vm.hypervisor":           cfg.VMHypervisor,
		"vm.id":                   cfg.VMID,
		"vm.name":                 cfg.VMName,
	}
}

// filters are the settings metrics_include and metrics_exclude of resource attributes.
type filters []attributeFilter

type attributeFilter struct {
	attribute string
	filter    filter.Filter
	keep      bool // whether a match keeps the resource
}

func newFilters(settings map[string]metadata.ResourceAttributeConfig) (f filters) {
	for attribute, c := range settings {
		if c.MetricsInclude != nil {
			f = append(f, attributeFilter{attribute, filter.CreateFilter(c.MetricsInclude), true})
		}
		if c.MetricsExclude != nil {
			f = append(f, attributeFilter{attribute, filter.CreateFilter(c.MetricsExclude), false})
		}
	}
	return f
}

// keep reports whether a resource is emitted: each filtered attribute that it has must match the
// included values and must not match the excluded ones.
func (f filters) keep(attributes pcommon.Map) bool {
	for _, a := range f {
		value, ok := attributes.Get(a.attribute)
		if ok && a.filter.Matches(value.AsString()) != a.keep {
			return false
		}
	}
	return true
}

// SharedSeries is a disabled resource attribute without which different entities have the same
// series.
type SharedSeries struct{ Attribute, Entity string }

// FindSharedSeries returns the shared series of a configuration. In one collection such a series
// has several values. A backend keeps one of them, or no value.
func FindSharedSeries(cfg metadata.MetricsBuilderConfig) (shared []SharedSeries) {
	metrics := generate(cfg, component.BuildInfo{}).metrics
	settings := settingsByName(&cfg.ResourceAttributes)
	for entity := range identity.NumEntities {
		e := newEntityMetrics(entity, metrics, settings)
		if !e.any() {
			continue
		}
		for _, name := range e.shared {
			shared = append(shared, SharedSeries{name, entity.String()})
		}
	}
	return shared
}
