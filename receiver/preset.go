// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"cmp"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

// presetRules are the rules that a preset selects. The zero value of a field selects the simplest rule.
type presetRules struct {
	static     StaticModel // of measured zones
	idle       IdleRule
	scope      Scope
	weight     Weight // of all zone kinds but dram
	dram       Weight
	smt        float64
	interrupts InterruptRule
	// missedUnattributed makes the energy of short-lived processes that only the node's counter shows unattributed.
	// Without it, the processes that are visible share that energy.
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
	// The ratio power model: cache misses for memory, instructions for everything else (pkg/model/process_energy.go of
	// Kepler 0.9).
	PresetKepler09: {static: StaticMinimum, idle: IdleEqual, weight: WeightInstructions, dram: WeightCacheMisses, other: true},
	// Active and idle energy together are energy * CPU time / all CPU time.
	PresetScaphandre: {static: StaticUtilization, idle: IdleUsed},
	PresetSmartWatts: {static: StaticResting, idle: IdleNone, weight: WeightPowerModel, dram: WeightPowerModel, window: time.Second},
	// KubeWatt's static power includes the power of the control plane at rest, and dynamic power is all power above it (paragraph
	// "Resilience Against Kepler's Pitfalls" of "Existing Approaches to Container Energy Consumption Measurement Tools").
	PresetKubeWatt: {static: StaticRegression, idle: IdleNone, excludedInFixed: true},
	PresetKavanagh: {static: StaticBase, idle: IdleEqualContainers},
}

// staticTuning overrides constants of the static power models. A zero field selects the default.
type staticTuning struct {
	rest    float64       // the highest utilization of a node at rest, for minimum, resting and base
	base    time.Duration // the averaging time of base
	samples int           // the number of samples that regression requires in each bucket
}

func (t staticTuning) restUtilization() float64 { return cmp.Or(t.rest, 0.05) }
func (t staticTuning) baseTime() time.Duration  { return cmp.Or(t.base, 5*time.Minute) }
func (t staticTuning) regressionSamples() int   { return cmp.Or(t.samples, 10) }

// staticModelOf returns the static power model of a zone kind that is measured.
func (c *AttributionConfig) staticModelOf(kind power.Kind) StaticModel {
	return cmp.Or(c.StaticPower[kind].Model, c.StaticPower[AllZones].Model, presets[c.Preset].static)
}

// staticModelOfKind returns the static power model of a kind of the ledger. It is utilization if the static power is known.
func (c *AttributionConfig) staticModelOfKind(kind power.Class) StaticModel {
	if kind.Method != power.Measured && c.knows(kind.Zone) {
		return StaticUtilization
	}
	return c.staticModelOf(kind.Zone)
}

// knows reports whether the known static power of a zone kind is used when its energy is modeled or reported.
func (c *AttributionConfig) knows(kind power.Kind) bool {
	return presets[c.Preset].knowsStatic && c.StaticPower[kind].Model == "" && c.StaticPower[AllZones].Model == ""
}

func (c *AttributionConfig) idle() IdleRule { return cmp.Or(c.Idle, presets[c.Preset].idle) }

func (c *AttributionConfig) interrupts() InterruptRule {
	return cmp.Or(c.Interrupts, presets[c.Preset].interrupts, InterruptsShared)
}

func (c *AttributionConfig) scope() Scope { return cmp.Or(c.Scope, presets[c.Preset].scope, ScopeNode) }

// weightOf returns the attribution weight of a zone kind. For GPUs, GPU time replaces CPU time and is the only weight.
func (c *AttributionConfig) weightOf(kind power.Kind) Weight {
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
	if c.unclocked && weight.exponent() > 0 || c.uncounted && weight.countedEvents() != nil {
		return WeightCPUTime
	}
	return cmp.Or(weight, WeightCPUTime)
}

// countedEvents returns the hardware events that the preset's weights of these zone kinds require, whether or not the
// machine counts them.
func (c *AttributionConfig) countedEvents(zones []power.Kind) (events []weigh.Event) {
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

// presetHasWeight reports whether the preset selects the attribution weight of a zone kind on a machine that supports all of its
// rules.
func (c *AttributionConfig) presetHasWeight(kind power.Kind, weight Weight) bool {
	all := *c
	all.unclocked, all.uncounted = false, false
	return c.Weight[kind] == "" && c.Weight[AllZones] == "" && all.weightOf(kind) == weight
}

func (c *AttributionConfig) smtWeight() float64 {
	if c.unshared {
		return cmp.Or(c.SMTWeight, 1)
	}
	return cmp.Or(c.SMTWeight, presets[c.Preset].smt, 1)
}

// windowLength returns the length of the windows that the configuration or the preset selects. 0 means one
// window per collection.
func (c *Config) windowLength() time.Duration {
	window := cmp.Or(c.Window, presets[c.Attribution.Preset].window)
	if window >= c.CollectionInterval {
		return 0
	}
	return window
}

// usesClocks reports whether the preset selects a frequency weight on a machine that can measure clock rates.
func (c *Config) usesClocks() bool {
	weight := presets[c.Attribution.Preset].weight
	return weight.exponent() > 0 && slices.ContainsFunc(c.Zones, func(kind power.Kind) bool {
		return kind != power.DRAM && c.Attribution.presetHasWeight(kind, weight)
	})
}
