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
	byUtilization := func(kind power.Kind) bool { return c.Attribution.staticModelOf(kind) == StaticUtilization }
	return c.Meters.reports() && slices.ContainsFunc(c.Zones, byUtilization)
}

// sharesIdle reports whether idle energy is shared.
func (c *AttributionConfig) sharesIdle() bool { return c.idle() != IdleNone }

// trains reports whether a static power model of these zone kinds is trained.
func (c *AttributionConfig) trains(zones []power.Kind) bool {
	return slices.ContainsFunc(zones, func(kind power.Kind) bool {
		return slices.ContainsFunc(staticModels, func(m staticModel) bool { return m.trained && m.name == c.staticModelOf(kind) })
	})
}

// rules returns the rules for the kinds of the ledger. zones are the configured zone kinds.
func (c *AttributionConfig) rules(kinds []power.Class, zones []power.Kind) attribution.Rules {
	var rules attribution.Rules
	switch c.idle() {
	case IdleEqual:
		rules.Idle = attribution.IdleEqual
	case IdleEqualContainers:
		rules.Idle = attribution.IdleEqualContainers
	case IdleRequested, IdleRequestedLinear:
		rules.Idle = attribution.IdleRequested
	case IdleUsed:
		rules.Idle = attribution.IdleUsed
	}
	for i, kind := range kinds {
		rules.Keys[i] = c.engineKey(kind.Zone, zones)
		rules.Models[i] = c.newStaticModel(kind)
	}
	return rules
}

// ofCores are the zone kinds whose energy is that of cores, at least for the most part.
var ofCores = []power.Kind{power.Package, power.Core, power.PSys, power.Platform}

// weighsCores reports whether the SMT weight applies to a zone kind.
func (c *AttributionConfig) weighsCores(kind power.Kind) bool {
	weight := c.weightOf(kind)
	return c.smtWeight() < 1 && (weight.exponent() > 0 || weight == WeightCPUTime && slices.Contains(ofCores, kind))
}

// weighed returns the attribution weights of these zone kinds other than plain CPU time, in the order of the engine's weights.
func (c *AttributionConfig) weighed(zones []power.Kind) (weighed []claims.Key) {
	for _, kind := range zones {
		if key := c.keyOf(kind); c.isWeighed(kind) && !slices.Contains(weighed, key) {
			weighed = append(weighed, key)
		}
	}
	return weighed
}

// frequencies returns the frequency weights of these zone kinds.
func (c *AttributionConfig) frequencies(zones []power.Kind) (of []Weight) {
	for _, kind := range zones {
		if weight := c.weightOf(kind); weight.exponent() > 0 && !slices.Contains(of, weight) {
			of = append(of, weight)
		}
	}
	return of
}

// isWeighed reports whether the attribution weight of a zone kind is not plain CPU time.
func (c *AttributionConfig) isWeighed(kind power.Kind) bool {
	return c.weightOf(kind) != WeightCPUTime || c.weighsCores(kind)
}

// engineKey returns the engine's name of the attribution weight of a zone kind.
func (c *AttributionConfig) engineKey(kind power.Kind, zones []power.Kind) attribution.AllocationKey {
	if i := slices.Index(c.weighed(zones), c.keyOf(kind)); i >= 0 && c.isWeighed(kind) {
		return attribution.ByFirstWeight + attribution.AllocationKey(i)
	}
	return attribution.ByCPUTime
}

// keyOptions returns the options of what measures the weights of claims.
func (c *Config) keyOptions(cgroups *cgroup.Tree) claims.KeyOptions {
	o := claims.KeyOptions{Cgroups: cgroups, Keys: c.Attribution.weighed(c.Zones), FrequencyExponent: 1}
	for _, weight := range c.Attribution.frequencies(c.Zones) { // Validate allows one
		o.FrequencyExponent = weight.exponent()
	}
	return o
}

// staticModel is a static power model. A model is new for each kind of the ledger.
type staticModel struct {
	name    StaticModel
	trained bool                                                                     // must be trained before it can be applied
	open    func(c *AttributionConfig, kind power.Kind) attribution.StaticPowerModel // nil for the engine's own rule, utilization
}

// staticModels lists the static power models.
var staticModels = []staticModel{
	{name: StaticUtilization},
	{name: StaticFixed, open: fixedModel},
	{StaticMinimum, true, func(c *AttributionConfig, _ power.Kind) attribution.StaticPowerModel {
		return static.NewMinimum(c.tuning.restUtilization())
	}},
	{StaticResting, true, func(c *AttributionConfig, _ power.Kind) attribution.StaticPowerModel {
		return static.NewResting(c.tuning.restUtilization())
	}},
	{StaticRegression, true, regressionModel(1)},
	{StaticCubicRegression, true, regressionModel(3)},
	{StaticBase, true, func(c *AttributionConfig, _ power.Kind) attribution.StaticPowerModel {
		return static.NewBase(c.tuning.restUtilization(), c.tuning.baseTime())
	}},
	{StaticTrained, true, func(*AttributionConfig, power.Kind) attribution.StaticPowerModel { return static.NewCurve() }},
}

var staticModelNames = func() (names []StaticModel) {
	for _, m := range staticModels {
		names = append(names, m.name)
	}
	return names
}()

func regressionModel(degree int) func(*AttributionConfig, power.Kind) attribution.StaticPowerModel {
	return func(c *AttributionConfig, _ power.Kind) attribution.StaticPowerModel {
		return static.NewRegression(degree, c.tuning.regressionSamples())
	}
}

func fixedModel(c *AttributionConfig, kind power.Kind) attribution.StaticPowerModel {
	return static.Fixed{
		Power:            units.Energy(math.Round(*c.StaticPower[kind].Power * float64(units.Joule))), // Validate requires it
		IncludesExcluded: presets[c.Preset].excludedInFixed,
	}
}

// newStaticModel returns a new static power model for a kind of the ledger, nil for the utilization rule.
func (c *AttributionConfig) newStaticModel(kind power.Class) attribution.StaticPowerModel {
	i := slices.IndexFunc(staticModels, func(m staticModel) bool { return m.name == c.staticModelOfKind(kind) })
	if i < 0 || staticModels[i].open == nil {
		return nil
	}
	return staticModels[i].open(c, kind.Zone)
}

// newExclusion returns who is excluded, nil if nobody is.
func newExclusion(c *ExcludeConfig, pods *workload.PodLogs) *workload.Exclusion {
	return workload.NewExclusion(workload.Excluded{
		Cgroup: matchAny(fromTheRoot(c.Cgroup)), Namespace: matchAny(c.Namespace), Executable: matchAny(c.ExecutableName),
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
