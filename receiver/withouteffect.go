// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"iter"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

// countsNoInterrupts returns errNoIRQ if the kernel of a host does not measure the time of interrupts.
func countsNoInterrupts(root string) error {
	if counts, err := cpu.CountsInterrupts(root); counts || err != nil { // what cannot be read is a condition
		return nil
	}
	return errNoIRQ
}

// withoutEffect yields each setting that was changed from its default but has no effect, and the reason. exact is that of
// the CPU time source in use, undivided is why the node's CPUs are not divided by package, and unshared why no threads share a
// core.
func (c *Config) withoutEffect(exact bool, undivided, unshared error) iter.Seq2[string, string] {
	return func(yield func(setting, reason string) bool) {
		a, defaults := &c.Attribution, defaultAttribution()
		splitIs := func(rules ...SplitRule) bool {
			return slices.ContainsFunc(c.Zones, func(kind power.Kind) bool { return slices.Contains(rules, a.splitOf(kind)) })
		}
		keyIs := func(keys ...claims.Key) bool {
			return slices.ContainsFunc(c.Zones, func(kind power.Kind) bool { return slices.Contains(keys, a.keyOf(kind)) })
		}
		uncounted := countsNoInterrupts(c.RootPath)
		discounts := a.SMTWeight > 0 && a.SMTWeight < 1
		type unused struct {
			set, works      bool
			setting, reason string
		}
		checks := []unused{
			{c.Model.HasValue(), c.mayModel(), "model", "meter is " + string(c.Meter) + ", which is never modeled"},
			{c.IPMI.Interval != minIPMIInterval, c.Meter == MeterAuto || c.Meter == MeterIPMI, "ipmi::interval", "meter is " + string(c.Meter) + ", which asks no BMC"},
			{c.PowercapPath != "", c.Meter == MeterAuto || c.Meter == MeterPowercap, "powercap_path", "meter is " + string(c.Meter) + ", which reads no powercap tree"},
			{len(c.Hwmon.Sensors) > 0, c.Meter == MeterAuto || c.Meter == MeterHwmon, "hwmon", "meter is " + string(c.Meter) + ", which reads no hwmon"},
			{c.GPU.Interval != defaultGPUInterval, len(c.GPU.Extensions) > 0, "gpu::interval", "gpu::extensions names no library to be asked"},
			{
				c.SamplingInterval > 0 && c.SamplingInterval < cpu.TickWindow, exact, "sampling_interval",
				fmt.Sprintf("procfs counts CPU time in ticks of 10 ms, so windows of %v are attributed as windows of %v", c.SamplingInterval, cpu.TickWindow),
			},
			{a.Scope == ScopeZone, undivided == nil, "attribution::scope", fmt.Sprint(undivided)},
			{a.RestUtilization != defaults.RestUtilization, splitIs(SplitMinimum, SplitResting, SplitBase), "attribution::rest_utilization", "no zone has the split minimum, resting or base"},
			{a.BaseTime != defaults.BaseTime, splitIs(SplitBase), "attribution::base_time", "no zone has the split base"},
			{a.RegressionDegree != defaults.RegressionDegree, splitIs(SplitRegression), "attribution::regression_degree", "no zone has the split regression"},
			{a.RegressionSamples != defaults.RegressionSamples, splitIs(SplitRegression), "attribution::regression_samples", "no zone has the split regression"},
			{a.FrequencyExponent != 0, keyIs(claims.KeyFrequency), "attribution::frequency_exponent", "no zone has the key frequency"},
			{discounts && slices.ContainsFunc(c.Zones, a.weighsCores), unshared == nil, "attribution::smt_weight", fmt.Sprint(unshared)},
			{discounts, slices.ContainsFunc(c.Zones, a.weighsCores), "attribution::smt_weight", "no zone of cores has the key cpu_time or frequency"},
			{a.MemorySize != defaults.MemorySize, keyIs(claims.KeyMemory, claims.KeyMemoryCPUTime), "attribution::memory_size", "no zone has the key memory or memory_cpu_time"},
			{a.Interrupts == InterruptsUnattributed, uncounted == nil, "attribution::interrupts", fmt.Sprint(uncounted)},
			{a.IdleAmong != "", a.idle() == IdleEqual, "attribution::idle_among", "attribution::idle is " + string(a.idle()) + ", not equal"},
			{a.CPUWeight != defaults.CPUWeight, a.idle() == IdleRequested, "attribution::cpu_weight", "attribution::idle is " + string(a.idle()) + ", not requested"},
		}
		doubts := splitIs(SplitLearned, SplitBase, SplitResting, SplitRegression)
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
			checks = append(checks, unused{metric.enabled, doubts, setting, "no zone has the split learned, base, resting or regression"})
		}
		for _, kind := range power.Kinds {
			_, static := a.StaticPower[kind]
			_, split := a.Splits[kind]
			_, key := a.Keys[kind]
			attributed := slices.Contains(c.Zones, kind)
			mayBe := attributed || c.mayStandIn(kind)
			fixed, reason := mayBe && a.splitOf(kind) == SplitFixed, "the zone is not among zones"
			if mayBe {
				reason = "the split of the zone is " + string(a.splitOf(kind)) + ", not fixed"
			}
			checks = append(checks,
				unused{static, fixed, "attribution::static_power::" + string(kind), reason},
				unused{split, mayBe, "attribution::splits::" + string(kind), "the zone is not among zones"},
				unused{key, attributed, "attribution::keys::" + string(kind), "the zone is not among zones"})
		}
		for _, source := range workload.NameSources {
			_, set := c.Names.Directories[source]
			// The kubelet's also tell the namespaces of pods that are excluded.
			used := source == workload.NamesKubelet || slices.Contains(c.Names.From, source)
			checks = append(checks, unused{set, used, "names::directories::" + string(source), "names::from has no " + string(source)})
		}
		for _, check := range checks {
			if check.set && !check.works && !yield(check.setting, check.reason) {
				return
			}
		}
	}
}
