// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// Preset is a value of attribution::preset.
type Preset string

// The presets other than the empty preset, which is the default rules. The variable presets defines
// their rules.
const (
	PresetKepler        Preset = "kepler" // 0.10 and later
	PresetKepler09      Preset = "kepler_0_9"
	PresetScaphandre    Preset = "scaphandre"
	PresetSmartWatts    Preset = "smartwatts"
	PresetKubeWatt      Preset = "kubewatt"
	PresetKavanagh      Preset = "kavanagh"
	PresetKavanaghEqual Preset = "kavanagh_equal"
)

// PresetRules are the rules of a preset. Package rules overrides them with configured settings, and
// omits rules that the machine does not support.
type PresetRules struct {
	Static     StaticModel   // for measured zones
	Idle       IdleRule      // "" in the table: none
	Scope      Scope         // node
	Weight     Weight        // for all zone kinds except dram: cpu_time
	DRAM       Weight        // for dram: cpu_time
	SMT        float64       // 1
	Interrupts InterruptRule // shared
	// MissedUnattributed makes the energy of short-lived processes that only the node's counter
	// shows unattributed. Otherwise the visible processes share this energy.
	MissedUnattributed bool
	// KnowsStatic selects the given static power of modeled and reported zones.
	KnowsStatic bool
	// ControlPlaneExcluded excludes the static pods of the Kubernetes control plane, in addition to
	// the excluded workloads of the settings.
	ControlPlaneExcluded bool
	// ExcludedInFixed includes the energy of excluded workloads in the power of the model fixed.
	ExcludedInFixed bool
	// Window is the length of the windows, 0 for one window per collection.
	Window time.Duration
	// Other adds the zone kind other to the default zones.
	Other bool
	// PSys attributes psys instead of package and dram if a meter reads psys.
	PSys bool
}

// presets maps each preset to its rules. The comments of PresetRules list the rules of empty
// fields.
var presets = map[Preset]PresetRules{
	// The default: the rules with the smallest errors.
	"": {
		Static: StaticTrained, Scope: ScopeZone, Weight: WeightFrequencySquared, DRAM: WeightMissesOrMemory, SMT: 0.6,
		Interrupts: InterruptsUnattributed, MissedUnattributed: true, KnowsStatic: true, Window: time.Second,
	},
	PresetKepler: {Static: StaticUtilization},
	// The ratio power model: cache misses for memory, instructions for everything else
	// (pkg/model/process_energy.go of Kepler 0.9).
	PresetKepler09: {Static: StaticMinimum, Idle: IdleEqual, Weight: WeightInstructions, DRAM: WeightCacheMisses, Other: true},
	// The active energy of a workload is energy * CPU time of the workload / all CPU time. Idle
	// energy is unattributed.
	PresetScaphandre: {Static: StaticUtilization, PSys: true},
	PresetSmartWatts: {Static: StaticResting, Weight: WeightSmartWatts, DRAM: WeightSmartWatts, Window: time.Second},
	// KubeWatt's static power is the intercept of a polynomial of the third degree. It includes the
	// power of the idle control plane, and dynamic power is all power above it (paragraphs
	// "Initialization Modes for Static Power Estimation" and "Resilience Against Kepler's Pitfalls"
	// of "Existing Approaches to Container Energy Consumption Measurement Tools").
	PresetKubeWatt: {Static: StaticCubicRegression, ControlPlaneExcluded: true, ExcludedInFixed: true},
	// The second and the third rule of the paper. The first rule, all energy by CPU
	// utilization, is the sum of active and idle energy of the preset scaphandre with idle: used.
	PresetKavanagh:      {Static: StaticBase, Idle: IdleEqualContainers},
	PresetKavanaghEqual: {Static: StaticTotal, Idle: IdleEqualContainers},
}

// PresetRules returns the rules of the selected preset.
func (c *AttributionConfig) PresetRules() PresetRules {
	r := presets[c.Preset]
	r.Idle, r.Scope, r.Interrupts = cmp.Or(r.Idle, IdleNone), cmp.Or(r.Scope, ScopeNode), cmp.Or(r.Interrupts, InterruptsShared)
	r.Weight, r.DRAM, r.SMT = cmp.Or(r.Weight, WeightCPUTime), cmp.Or(r.DRAM, WeightCPUTime), cmp.Or(r.SMT, 1)
	return r
}

// WindowLength returns the length of the windows that the configuration or the preset selects. 0
// means one window per collection.
func (c *Config) WindowLength() time.Duration {
	window := cmp.Or(c.Window, presets[c.Attribution.Preset].Window)
	if window >= c.CollectionInterval {
		return 0
	}
	return window
}

// WeightOf returns the attribution weight of a zone kind on a machine that supports all weights. For
// GPUs, GPU time replaces CPU time and is the only weight.
func (c *AttributionConfig) WeightOf(kind power.Kind) Weight {
	selected := c.PresetRules()
	switch set := c.SetWeight(kind); {
	case kind == power.GPU:
		return WeightCPUTime
	case set != "":
		return set
	case kind == power.DRAM:
		return selected.DRAM
	}
	return selected.Weight
}

// PrefersPSys reports whether psys is attributed instead of the configured zones package and dram
// if a meter reads psys.
func (c *Config) PrefersPSys() bool {
	return presets[c.Attribution.Preset].PSys && slices.Contains(c.Zones, power.Package) && slices.Contains(c.Zones, power.DRAM)
}

// SetWeight returns the attribution weight that the settings select for a zone kind, or "".
func (c *AttributionConfig) SetWeight(kind power.Kind) Weight {
	return cmp.Or(c.Weight[kind], c.Weight[AllZones])
}

// StaticModelOf returns the static power model of a zone kind that is measured.
func (c *AttributionConfig) StaticModelOf(kind power.Kind) StaticModel {
	return cmp.Or(c.setStaticModel(kind), presets[c.Preset].Static)
}

// setStaticModel returns the static power model that the settings select for a zone kind, or "".
func (c *AttributionConfig) setStaticModel(kind power.Kind) StaticModel {
	return cmp.Or(c.StaticPower[kind].Model, c.StaticPower[AllZones].Model)
}

// KnowsStaticPower reports whether the preset and the settings select the given static power of a
// zone kind if its energy is modeled or reported.
func (c *AttributionConfig) KnowsStaticPower(kind power.Kind) bool {
	return presets[c.Preset].KnowsStatic && c.setStaticModel(kind) == ""
}

// StaticModel returns the static power model of a kind of the ledger. It is utilization for kinds
// of KnowsStaticPower, whose static power is set later.
func (c *Config) StaticModel(kind power.Class) StaticModel {
	if kind.Method != power.Measured && c.Attribution.KnowsStaticPower(kind.Zone) {
		return StaticUtilization
	}
	return c.Attribution.StaticModelOf(kind.Zone)
}

// Trains reports whether a static power model of these zone kinds is trained.
func (c *AttributionConfig) Trains(zones []power.Kind) bool {
	return slices.ContainsFunc(zones, func(kind power.Kind) bool { return c.StaticModelOf(kind).IsTrained() })
}
