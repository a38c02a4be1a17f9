// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"iter"
	"path/filepath"
	"slices"

	"github.com/prometheus/procfs"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

// countsNoInterrupts returns errNoIRQ if the kernel of a host does not measure the time of
// interrupts. A kernel that does has time in the irq column of /proc/stat soon after boot.
func countsNoInterrupts(root string) error {
	proc, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return nil // a file that cannot be read is a condition
	}
	if stat, err := proc.Stat(); err != nil || stat.CPUTotal.IRQ > 0 {
		return nil
	}
	return errNoIRQ
}

// effect is the check of whether a setting has an effect.
type effect struct {
	set, works      bool // whether it was changed from its default, and whether it has an effect
	setting, reason string
}

// WithoutEffect yields each setting that was changed from its default but has no effect, with the
// reason. exact reports whether the CPU time source in use is exact.
func (c *Config) WithoutEffect(exact bool) iter.Seq2[string, string] {
	return func(yield func(setting, reason string) bool) {
		for _, e := range slices.Concat(c.effectsOfMeters(), c.effectsOfAttribution(exact), c.effectsOfMetrics(), c.effectsByKind()) {
			if e.set && !e.works && !yield(e.setting, e.reason) {
				return
			}
		}
	}
}

// effectsOfMeters checks the settings of meters and of series.
func (c *Config) effectsOfMeters() []effect {
	m, p := &c.Meters, &c.Series.Processes
	return []effect{
		{m.IPMI.PollInterval != minIPMIInterval, m.Uses(MeterIPMI), "meters::ipmi::poll_interval", "meters::use has no ipmi"},
		{m.Powercap.Path != "", m.Uses(MeterPowercap), "meters::powercap::path", "meters::use has no powercap"},
		{len(m.Hwmon.Sensors) > 0, m.Uses(MeterHwmon), "meters::hwmon::sensors", "meters::use has no hwmon"},
		{m.GPU.PollInterval != defaultGPUInterval, len(m.GPU.Extensions) > 0, "meters::gpu::poll_interval", "meters::gpu::extensions is empty"},
		{p.Max != defaultMaxProcesses, p.GroupBy != GroupByProgram, "series::processes::max", "series::processes::group_by is program"},
		{p.MinEnergy != defaultMinEnergy, p.GroupBy != GroupByProgram, "series::processes::min_energy", "series::processes::group_by is program"},
	}
}

// effectsOfAttribution checks the settings of attribution that do not depend on a zone kind.
func (c *Config) effectsOfAttribution(exact bool) []effect {
	a := &c.Attribution
	undivided, unshared := a.Machine.Undivided, a.Machine.Unshared
	uncounted := countsNoInterrupts(c.RootPath)
	discounts := a.SMTWeight > 0 && a.SMTWeight < 1
	return []effect{
		{
			c.Window > 0 && c.Window < cpu.TickWindow, exact, "window",
			fmt.Sprintf("/proc counts the CPU time of the node in ticks of 10 ms, so windows of %v are attributed as windows of %v", c.Window, cpu.TickWindow),
		},
		{a.Scope == ScopeZone, undivided == nil, "attribution::scope", fmt.Sprint(undivided)},
		{discounts && slices.ContainsFunc(c.Zones, a.WeighsCores), unshared == nil, "attribution::smt_weight", fmt.Sprint(unshared)},
		{discounts, slices.ContainsFunc(c.Zones, a.WeighsCores), "attribution::smt_weight", "no zone of cores has the weight cpu_time or frequency"},
		{a.Interrupts == InterruptsUnattributed, uncounted == nil, "attribution::interrupts", fmt.Sprint(uncounted)},
	}
}

// effectsOfMetrics checks the metrics that some rules do not have.
func (c *Config) effectsOfMetrics() (effects []effect) {
	uncertain := slices.ContainsFunc(c.Zones, func(kind power.Kind) bool {
		models := []StaticModel{StaticTrained, StaticBase, StaticResting, StaticRegression, StaticCubicRegression}
		return slices.Contains(models, c.Attribution.StaticModelOf(kind))
	})
	for _, metric := range []struct {
		of      string
		enabled bool
	}{
		{"system", c.Metrics.SystemPowerUncertainty.Enabled},
		{"process", c.Metrics.ProcessPowerUncertainty.Enabled},
		{"container", c.Metrics.ContainerPowerUncertainty.Enabled},
		{"k8s.pod", c.Metrics.K8sPodPowerUncertainty.Enabled},
		{"vm", c.Metrics.VMPowerUncertainty.Enabled},
	} {
		setting := "metrics::" + metric.of + ".power.uncertainty"
		effects = append(effects, effect{metric.enabled, uncertain, setting, "no zone has the static power model trained, base, resting or regression"})
	}
	for _, metric := range []struct {
		of      weigh.Event
		enabled bool
	}{
		{weigh.CacheMisses, c.Metrics.ContainerCPUCacheMisses.Enabled},
		{weigh.Cycles, c.Metrics.ContainerCPUCycles.Enabled},
		{weigh.Instructions, c.Metrics.ContainerCPUInstructions.Enabled},
	} {
		of := string(metric.of)
		counts := func(kind power.Kind) bool {
			return slices.Contains(c.Attribution.WeightOf(kind).countedEvents(), metric.of)
		}
		effects = append(effects, effect{metric.enabled, slices.ContainsFunc(c.Zones, counts), "metrics::container.cpu." + of, "no zone has the weight " + of + " or power_model"})
	}
	return effects
}

// effectsByKind checks the settings of attribution for each zone kind.
func (c *Config) effectsByKind() (effects []effect) {
	const reason = "the zone is not among zones"
	for _, kind := range power.Kinds {
		_, static := c.Attribution.StaticPower[kind]
		_, weight := c.Attribution.Weight[kind]
		attributed := slices.Contains(c.Zones, kind)
		effects = append(effects,
			effect{static, attributed || c.mayStandIn(kind), "attribution::static_power::" + string(kind), reason},
			effect{weight, attributed, "attribution::weight::" + string(kind), reason})
	}
	return effects
}
