// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"iter"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

// countsNoInterrupts returns errNoIRQ if the kernel of a host does not measure the time of
// interrupts.
func countsNoInterrupts(root string) error {
	if counts, err := cpu.CountsInterrupts(root); counts || err != nil { // what cannot be read is a condition
		return nil
	}
	return errNoIRQ
}

// WithoutEffect yields each setting that was changed from its default but has no effect, with the
// reason. exact reports whether the CPU time source in use is exact.
func (c *Config) WithoutEffect(exact bool) iter.Seq2[string, string] {
	return func(yield func(setting, reason string) bool) {
		a, m, p := &c.Attribution, &c.Meters, &c.Series.Processes
		hasModel := func(models ...StaticModel) bool {
			return slices.ContainsFunc(c.Zones, func(kind power.Kind) bool { return slices.Contains(models, a.StaticModelOf(kind)) })
		}
		undivided, unshared := a.Machine.Undivided, a.Machine.Unshared
		uncounted := countsNoInterrupts(c.RootPath)
		discounts := a.SMTWeight > 0 && a.SMTWeight < 1
		type unused struct {
			set, works      bool
			setting, reason string
		}
		checks := []unused{
			{m.IPMI.PollInterval != minIPMIInterval, m.Uses(MeterIPMI), "meters::ipmi::poll_interval", "meters::use has no ipmi"},
			{m.Powercap.Path != "", m.Uses(MeterPowercap), "meters::powercap::path", "meters::use has no powercap"},
			{len(m.Hwmon.Sensors) > 0, m.Uses(MeterHwmon), "meters::hwmon::sensors", "meters::use has no hwmon"},
			{m.GPU.PollInterval != defaultGPUInterval, len(m.GPU.Extensions) > 0, "meters::gpu::poll_interval", "meters::gpu::extensions is empty"},
			{p.Max != defaultMaxProcesses, p.GroupBy != GroupByProgram, "series::processes::max", "series::processes::group_by is program"},
			{p.MinEnergy != defaultMinEnergy, p.GroupBy != GroupByProgram, "series::processes::min_energy", "series::processes::group_by is program"},
			{
				c.Window > 0 && c.Window < cpu.TickWindow, exact, "window",
				fmt.Sprintf("/proc counts the CPU time of the node in ticks of 10 ms, so windows of %v are attributed as windows of %v", c.Window, cpu.TickWindow),
			},
			{a.Scope == ScopeZone, undivided == nil, "attribution::scope", fmt.Sprint(undivided)},
			{discounts && slices.ContainsFunc(c.Zones, a.WeighsCores), unshared == nil, "attribution::smt_weight", fmt.Sprint(unshared)},
			{discounts, slices.ContainsFunc(c.Zones, a.WeighsCores), "attribution::smt_weight", "no zone of cores has the weight cpu_time or frequency"},
			{a.Interrupts == InterruptsUnattributed, uncounted == nil, "attribution::interrupts", fmt.Sprint(uncounted)},
		}
		uncertain := hasModel(StaticTrained, StaticBase, StaticResting, StaticRegression, StaticCubicRegression)
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
			checks = append(checks, unused{metric.enabled, uncertain, setting, "no zone has the static power model trained, base, resting or regression"})
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
			counts := func(kind power.Kind) bool { return slices.Contains(a.WeightOf(kind).countedEvents(), metric.of) }
			checks = append(checks, unused{metric.enabled, slices.ContainsFunc(c.Zones, counts), "metrics::container.cpu." + of, "no zone has the weight " + of + " or power_model"})
		}
		for _, kind := range power.Kinds {
			_, static := a.StaticPower[kind]
			_, weight := a.Weight[kind]
			attributed := slices.Contains(c.Zones, kind)
			checks = append(checks,
				unused{static, attributed || c.mayStandIn(kind), "attribution::static_power::" + string(kind), "the zone is not among zones"},
				unused{weight, attributed, "attribution::weight::" + string(kind), "the zone is not among zones"})
		}
		for _, check := range checks {
			if check.set && !check.works && !yield(check.setting, check.reason) {
				return
			}
		}
	}
}
