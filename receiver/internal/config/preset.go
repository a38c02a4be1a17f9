// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

// presetRules are the rules that a preset selects. The zero value of a field selects the simplest
// rule.
type presetRules struct {
	static     StaticModel // of measured zones
	idle       IdleRule
	scope      Scope
	weight     Weight // of all zone kinds but dram
	dram       Weight
	smt        float64
	interrupts InterruptRule
	// missedUnattributed makes the energy of short-lived processes that only the node's counter
	// shows unattributed. Without it, the processes that are visible share that energy.
	missedUnattributed bool
	// knowsStatic selects the known static power of modeled and reported zones.
	knowsStatic bool
	// excludedInFixed includes the energy of excluded workloads in the power of the model fixed.
	excludedInFixed bool
	// window is the length of the windows, 0 for one window per collection.
	window time.Duration
	// other adds the zone kind other to the default zones.
	other bool
}

// presets maps each preset to its rules.
var presets = map[Preset]presetRules{
	// The default: the rules with the smallest errors.
	"": {
		static: StaticTrained, idle: IdleNone, scope: ScopeZone, weight: WeightFrequencySquared, dram: WeightMemoryCPUTime, smt: 0.6,
		interrupts: InterruptsUnattributed, missedUnattributed: true, knowsStatic: true, window: time.Second,
	},
	PresetKepler: {static: StaticUtilization, idle: IdleNone},
	// The ratio power model: cache misses for memory, instructions for everything else
	// (pkg/model/process_energy.go of Kepler 0.9).
	PresetKepler09: {static: StaticMinimum, idle: IdleEqual, weight: WeightInstructions, dram: WeightCacheMisses, other: true},
	// Active and idle energy together are energy * CPU time / all CPU time.
	PresetScaphandre: {static: StaticUtilization, idle: IdleUsed},
	PresetSmartWatts: {static: StaticResting, idle: IdleNone, weight: WeightPowerModel, dram: WeightPowerModel, window: time.Second},
	// KubeWatt's static power includes the power of the control plane at rest, and dynamic power is
	// all power above it (paragraph "Resilience Against Kepler's Pitfalls" of "Existing Approaches
	// to Container Energy Consumption Measurement Tools").
	PresetKubeWatt: {static: StaticRegression, idle: IdleNone, excludedInFixed: true},
	// The second and the third rule of the paper. The first, all energy by CPU utilization, is that of Scaphandre.
	PresetKavanagh:      {static: StaticBase, idle: IdleEqualContainers},
	PresetKavanaghEqual: {static: StaticTotal, idle: IdleEqualContainers},
}

// Machine holds the reasons why the machine does not support rules, each nil if it does. A preset
// then selects CPU time as the attribution weight, and no SMT weight.
type Machine struct {
	Undivided error // the node's CPUs are not divided by package
	Unclocked error // the clock rate over an interval cannot be measured
	Uncounted error // hardware events cannot be counted
	Unshared  error // no two threads share a core
}

// StaticTuning overrides constants of the static power models. A zero field selects the default.
type StaticTuning struct {
	Rest    float64       // the highest utilization of a node at rest, for resting and base
	Base    time.Duration // the averaging time of base
	Samples int           // the number of samples that regression requires in each bucket
}

func (t StaticTuning) restUtilization() float64 { return cmp.Or(t.Rest, 0.05) }
func (t StaticTuning) baseTime() time.Duration  { return cmp.Or(t.Base, 5*time.Minute) }
func (t StaticTuning) regressionSamples() int   { return cmp.Or(t.Samples, 10) }

// StaticModelOf returns the static power model of a zone kind that is measured.
func (c *AttributionConfig) StaticModelOf(kind power.Kind) StaticModel {
	return cmp.Or(c.StaticPower[kind].Model, c.StaticPower[AllZones].Model, presets[c.Preset].static)
}

// staticModelOfKind returns the static power model of a kind of the ledger. It is utilization if
// the static power is known.
func (c *AttributionConfig) staticModelOfKind(kind power.Class) StaticModel {
	if kind.Method != power.Measured && c.KnowsStaticPower(kind.Zone) {
		return StaticUtilization
	}
	return c.StaticModelOf(kind.Zone)
}

// KnowsStaticPower reports whether the known static power of a zone kind is used when its energy is
// modeled or reported.
func (c *AttributionConfig) KnowsStaticPower(kind power.Kind) bool {
	return presets[c.Preset].knowsStatic && c.StaticPower[kind].Model == "" && c.StaticPower[AllZones].Model == ""
}

// SelectedIdle returns the rule for idle energy.
func (c *AttributionConfig) SelectedIdle() IdleRule { return cmp.Or(c.Idle, presets[c.Preset].idle) }

// SelectedInterrupts returns the rule for the energy of interrupts.
func (c *AttributionConfig) SelectedInterrupts() InterruptRule {
	return cmp.Or(c.Interrupts, presets[c.Preset].interrupts, InterruptsShared)
}

// SelectedScope returns the scope of attribution.
func (c *AttributionConfig) SelectedScope() Scope {
	return cmp.Or(c.Scope, presets[c.Preset].scope, ScopeNode)
}

// WeightOf returns the attribution weight of a zone kind. For GPUs, GPU time replaces CPU time and
// is the only weight.
func (c *AttributionConfig) WeightOf(kind power.Kind) Weight {
	if kind == power.GPU {
		return WeightCPUTime
	}
	if set := cmp.Or(c.Weight[kind], c.Weight[AllZones]); set != "" {
		return set
	}
	rules := presets[c.Preset]
	weight := rules.weight
	if kind == power.DRAM {
		weight = rules.dram
	}
	if c.Machine.Unclocked != nil && weight.Exponent() > 0 ||
		c.Machine.Uncounted != nil && weight.countedEvents() != nil {
		return WeightCPUTime
	}
	return cmp.Or(weight, WeightCPUTime)
}

// CountedEvents returns the hardware events that the preset's weights of these zone kinds require,
// whether or not the machine counts them.
func (c *AttributionConfig) CountedEvents(zones []power.Kind) (events []weigh.Event) {
	for _, weight := range []Weight{presets[c.Preset].weight, presets[c.Preset].dram} {
		for _, event := range weight.countedEvents() {
			selects := func(kind power.Kind) bool { return c.presetHasWeight(kind, weight) }
			if !slices.Contains(events, event) && slices.ContainsFunc(zones, selects) {
				events = append(events, event)
			}
		}
	}
	return events
}

// presetHasWeight reports whether the preset selects the attribution weight of a zone kind on a
// machine that supports all of its rules.
func (c *AttributionConfig) presetHasWeight(kind power.Kind, weight Weight) bool {
	all := *c
	all.Machine = Machine{}
	return c.Weight[kind] == "" && c.Weight[AllZones] == "" && all.WeightOf(kind) == weight
}

// MissedUnattributed reports whether the energy of short-lived processes that only the node's
// counter shows is unattributed.
func (c *AttributionConfig) MissedUnattributed() bool { return presets[c.Preset].missedUnattributed }

// SelectedSMTWeight returns the weight of CPU time while the other thread of the core is busy.
func (c *AttributionConfig) SelectedSMTWeight() float64 {
	if c.Machine.Unshared != nil {
		return cmp.Or(c.SMTWeight, 1)
	}
	return cmp.Or(c.SMTWeight, presets[c.Preset].smt, 1)
}

// WindowLength returns the length of the windows that the configuration or the preset selects. 0
// means one window per collection.
func (c *Config) WindowLength() time.Duration {
	window := cmp.Or(c.Window, presets[c.Attribution.Preset].window)
	if window >= c.CollectionInterval {
		return 0
	}
	return window
}

// UsesClocks reports whether the preset selects a frequency weight on a machine that can measure
// clock rates.
func (c *Config) UsesClocks() bool {
	weight := presets[c.Attribution.Preset].weight
	return weight.Exponent() > 0 && slices.ContainsFunc(c.Zones, func(kind power.Kind) bool {
		return kind != power.DRAM && c.Attribution.presetHasWeight(kind, weight)
	})
}
