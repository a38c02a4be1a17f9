// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"math"
	"slices"

	"go.opentelemetry.io/collector/filter"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

// splitsAgain reports whether energy that the hypervisor attributed to this virtual machine is split by utilization.
func (c *Config) splitsAgain() bool {
	byUtilization := func(kind power.Kind) bool { return c.Attribution.splitOf(kind) == SplitUtilization }
	return (c.PowercapPath != "" || c.Hypervisor.HasValue()) && slices.ContainsFunc(c.Zones, byUtilization)
}

// sharesIdle reports whether idle energy is shared.
func (c *AttributionConfig) sharesIdle() bool { return c.idle() != IdleNone }

// learns reports whether a static power model of these zone kinds learns.
func (c *AttributionConfig) learns(zones []power.Kind) bool {
	return slices.ContainsFunc(zones, func(kind power.Kind) bool { return slices.Contains(learningSplits, c.splitOf(kind)) })
}

// rules returns the rules for the kinds of the ledger. zones are the configured zone kinds.
func (c *AttributionConfig) rules(kinds []claims.Kind, zones []power.Kind) attribution.Rules {
	var rules attribution.Rules
	switch c.idle() {
	case IdleEqual:
		rules.Idle = attribution.IdleEqual
		if c.idleAmong() == AmongContainers {
			rules.Idle = attribution.IdleEqualContainers
		}
	case IdleRequested:
		rules.Idle = attribution.IdleRequested
	case IdleUsed:
		rules.Idle = attribution.IdleUsed
	}
	for i, kind := range kinds {
		rules.Keys[i] = c.engineKey(kind.Zone, zones)
		rules.Models[i] = c.staticPowerModel(kind)
	}
	return rules
}

// ofCores are the zone kinds whose energy is that of cores, at least for the most part.
var ofCores = []power.Kind{power.Package, power.Core, power.PSys, power.Platform}

// weighsCores reports whether CPU time counts for less in a zone kind where threads share a core.
func (c *AttributionConfig) weighsCores(kind power.Kind) bool {
	key := c.keyOf(kind)
	return c.smtWeight() < 1 && (key == claims.KeyFrequency || key == claims.KeyCPUTime && slices.Contains(ofCores, kind))
}

// weighed returns the allocation keys of these zone kinds beside plain CPU time, in the order of the engine's weights.
func (c *AttributionConfig) weighed(zones []power.Kind) (weighed []claims.Key) {
	for _, kind := range zones {
		if key := c.keyOf(kind); c.isWeighed(kind) && !slices.Contains(weighed, key) {
			weighed = append(weighed, key)
		}
	}
	return weighed
}

// isWeighed reports whether the allocation key of a zone kind is another than plain CPU time.
func (c *AttributionConfig) isWeighed(kind power.Kind) bool {
	return c.keyOf(kind) != claims.KeyCPUTime || c.weighsCores(kind)
}

// engineKey returns the engine's name of the allocation key of a zone kind.
func (c *AttributionConfig) engineKey(kind power.Kind, zones []power.Kind) attribution.AllocationKey {
	if i := slices.Index(c.weighed(zones), c.keyOf(kind)); i >= 0 && c.isWeighed(kind) {
		return attribution.ByFirstWeight + attribution.AllocationKey(i)
	}
	return attribution.ByCPUTime
}

// keyOptions returns what measures the weights of claims.
func (c *Config) keyOptions(cgroups *cgroup.Tree) claims.KeyOptions {
	return claims.KeyOptions{
		Cgroups: cgroups, Keys: c.Attribution.weighed(c.Zones), FrequencyExponent: c.Attribution.frequencyExponent(),
		CgroupMemory: c.Attribution.MemorySize == MemoryCgroup,
	}
}

// SplitRule is a value of the setting attribution::split.
type SplitRule string

// The static power models.
const (
	SplitUtilization SplitRule = "utilization"
	SplitFixed       SplitRule = "fixed"
	SplitMinimum     SplitRule = "minimum"
	SplitResting     SplitRule = "resting"
	SplitRegression  SplitRule = "regression"
	SplitBase        SplitRule = "base"
	SplitLearned     SplitRule = "learned"
)

// staticModels has a line for each static power model. A model is new for each kind of the ledger.
var staticModels = []struct {
	name   SplitRule
	learns bool                                                                     // it must learn before it can be applied
	open   func(c *AttributionConfig, kind power.Kind) attribution.StaticPowerModel // nil: the engine's own rule, utilization
}{
	{name: SplitUtilization},
	{name: SplitFixed, open: fixedModel},
	{SplitMinimum, true, func(c *AttributionConfig, _ power.Kind) attribution.StaticPowerModel {
		return static.NewMinimum(c.RestUtilization)
	}},
	{SplitResting, true, func(c *AttributionConfig, _ power.Kind) attribution.StaticPowerModel {
		return static.NewResting(c.RestUtilization)
	}},
	{SplitRegression, true, func(c *AttributionConfig, _ power.Kind) attribution.StaticPowerModel {
		return static.NewRegression(c.RegressionDegree, c.RegressionSamples)
	}},
	{SplitBase, true, func(c *AttributionConfig, _ power.Kind) attribution.StaticPowerModel {
		return static.NewBase(c.RestUtilization, c.BaseTime)
	}},
	{SplitLearned, true, func(*AttributionConfig, power.Kind) attribution.StaticPowerModel { return static.NewCurve() }},
}

// splitRules are all static power models, and learningSplits those that learn.
var splitRules, learningSplits = func() (all, learning []SplitRule) {
	for _, m := range staticModels {
		all = append(all, m.name)
		if m.learns {
			learning = append(learning, m.name)
		}
	}
	return all, learning
}()

// fixedModel returns nil for a zone kind without a stated static power: it stands in for package, or is GPUs, which may not be there.
func fixedModel(c *AttributionConfig, kind power.Kind) attribution.StaticPowerModel {
	watts, stated := c.StaticPower[kind]
	if !stated {
		return nil
	}
	return static.Fixed{
		Power: units.Energy(math.Round(watts * float64(units.Joule))),
		// KubeWatt's static power includes what the control plane draws at rest, and dynamic power is all that is above
		// it (paragraph "Resilience Against Kepler's Pitfalls" of "Existing Approaches to Container Energy Consumption
		// Measurement Tools").
		IncludesExcluded: c.Preset == PresetKubeWatt,
	}
}

// staticPowerModel returns a new static power model for a kind of the ledger, nil for the utilization rule.
func (c *AttributionConfig) staticPowerModel(kind claims.Kind) attribution.StaticPowerModel {
	for _, m := range staticModels {
		if m.name == c.splitOfKind(kind) && m.open != nil {
			return m.open(c, kind.Zone)
		}
	}
	return nil
}

// newExclusion returns who is excluded, nil if nobody is.
func newExclusion(c *ExcludeConfig, pods *workload.PodLogs) *workload.Exclusion {
	return workload.NewExclusion(workload.Excluded{
		Cgroup: matchAny(fromTheRoot(c.Cgroup)), Container: matchAny(c.ContainerID), Pod: matchAny(c.PodUID),
		Namespace: matchAny(c.Namespace), Executable: matchAny(c.ExecutableName),
	}, pods)
}

// matchAny returns a function that reports whether any filter matches a value, nil without filters.
func matchAny(configs []filter.Config) workload.Match {
	if len(configs) == 0 {
		return nil
	}
	f := filter.CreateFilter(configs)
	return func(value string) bool { return f.Matches(value) }
}

// fromTheRoot anchors patterns at the root of a path. A user can create cgroups of any name below the user's own cgroup, so
// a pattern that matches the end of a path could be matched by anybody.
func fromTheRoot(configs []filter.Config) []filter.Config {
	anchored := slices.Clone(configs)
	for i := range anchored {
		if c := &anchored[i]; c.Regex != "" {
			c.Regex = "^(?:" + c.Regex + ")"
		}
	}
	return anchored
}
