// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// SplitsAgain reports whether energy that the hypervisor attributed to this virtual machine is
// split by utilization.
func (c *Config) SplitsAgain() bool {
	byUtilization := func(kind power.Kind) bool { return c.Attribution.StaticModelOf(kind) == StaticUtilization }
	return c.Meters.reports() && slices.ContainsFunc(c.Zones, byUtilization)
}

// Trains reports whether a static power model of these zone kinds is trained.
func (c *AttributionConfig) Trains(zones []power.Kind) bool {
	return slices.ContainsFunc(zones, func(kind power.Kind) bool {
		return slices.ContainsFunc(staticModels, func(m staticModel) bool { return m.trained && m.name == c.StaticModelOf(kind) })
	})
}

// Rules returns the rules for the kinds of the ledger. zones are the configured zone kinds.
func (c *AttributionConfig) Rules(kinds []power.Class, zones []power.Kind) attribution.Rules {
	var rules attribution.Rules
	switch c.SelectedIdle() {
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

// WeighsCores reports whether the SMT weight applies to a zone kind.
func (c *AttributionConfig) WeighsCores(kind power.Kind) bool {
	weight := c.WeightOf(kind)
	return c.SelectedSMTWeight() < 1 && (weight.Exponent() > 0 || weight == WeightCPUTime && slices.Contains(ofCores, kind))
}

// Weighed returns the attribution weights of these zone kinds other than plain CPU time, in the
// order of the engine's weights.
func (c *AttributionConfig) Weighed(zones []power.Kind) (weighed []claims.Key) {
	for _, kind := range zones {
		if key := c.KeyOf(kind); c.isWeighed(kind) && !slices.Contains(weighed, key) {
			weighed = append(weighed, key)
		}
	}
	return weighed
}

// frequencies returns the frequency weights of these zone kinds.
func (c *AttributionConfig) frequencies(zones []power.Kind) (of []Weight) {
	for _, kind := range zones {
		if weight := c.WeightOf(kind); weight.Exponent() > 0 && !slices.Contains(of, weight) {
			of = append(of, weight)
		}
	}
	return of
}

// isWeighed reports whether the attribution weight of a zone kind is not plain CPU time.
func (c *AttributionConfig) isWeighed(kind power.Kind) bool {
	return c.WeightOf(kind) != WeightCPUTime || c.WeighsCores(kind)
}

// engineKey returns the engine's name of the attribution weight of a zone kind.
func (c *AttributionConfig) engineKey(kind power.Kind, zones []power.Kind) attribution.AllocationKey {
	if i := slices.Index(c.Weighed(zones), c.KeyOf(kind)); i >= 0 && c.isWeighed(kind) {
		return attribution.ByFirstWeight + attribution.AllocationKey(i)
	}
	return attribution.ByCPUTime
}

// KeyOptions returns the options of what measures the weights of claims.
func (c *Config) KeyOptions(cgroups *cgroup.Tree) claims.KeyOptions {
	o := claims.KeyOptions{Cgroups: cgroups, Keys: c.Attribution.Weighed(c.Zones), FrequencyExponent: 1}
	for _, weight := range c.Attribution.frequencies(c.Zones) { // Validate allows one
		o.FrequencyExponent = weight.Exponent()
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
	{StaticMinimum, true, func(*AttributionConfig, power.Kind) attribution.StaticPowerModel { return static.NewMinimum() }},
	{StaticResting, true, func(c *AttributionConfig, _ power.Kind) attribution.StaticPowerModel {
		return static.NewResting(c.Tuning.restUtilization())
	}},
	{StaticRegression, true, regressionModel(1)},
	{StaticCubicRegression, true, regressionModel(3)},
	{StaticBase, true, func(c *AttributionConfig, _ power.Kind) attribution.StaticPowerModel {
		return static.NewBase(c.Tuning.restUtilization(), c.Tuning.baseTime())
	}},
	{StaticTrained, true, func(*AttributionConfig, power.Kind) attribution.StaticPowerModel { return static.NewCurve() }},
	{name: StaticTotal, open: func(*AttributionConfig, power.Kind) attribution.StaticPowerModel { return static.Total{} }},
}

// StaticModelNames lists the static power models.
var StaticModelNames = func() (names []StaticModel) {
	for _, m := range staticModels {
		names = append(names, m.name)
	}
	return names
}()

func regressionModel(degree int) func(*AttributionConfig, power.Kind) attribution.StaticPowerModel {
	return func(c *AttributionConfig, _ power.Kind) attribution.StaticPowerModel {
		return static.NewRegression(degree, c.Tuning.regressionSamples())
	}
}

func fixedModel(c *AttributionConfig, kind power.Kind) attribution.StaticPowerModel {
	return static.Fixed{
		Power:            units.Energy(math.Round(*c.StaticPower[kind].Power * float64(units.Joule))), // Validate requires it
		IncludesExcluded: presets[c.Preset].excludedInFixed,
	}
}

// newStaticModel returns a new static power model for a kind of the ledger, nil for the utilization
// rule.
func (c *AttributionConfig) newStaticModel(kind power.Class) attribution.StaticPowerModel {
	i := slices.IndexFunc(staticModels, func(m staticModel) bool { return m.name == c.staticModelOfKind(kind) })
	if i < 0 || staticModels[i].open == nil {
		return nil
	}
	return staticModels[i].open(c, kind.Zone)
}

// StaticModel returns the static power model of a kind of the ledger.
func (c *Config) StaticModel(kind power.Class) StaticModel {
	return c.Attribution.staticModelOfKind(kind)
}
