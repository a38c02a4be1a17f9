// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/filter"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/invalid"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/window"
)

// AttributionConfig selects the attribution rules. docs/attribution.md describes them.
type AttributionConfig struct {
	// Preset selects the rules of another system. By default, the most accurate rules that the
	// machine supports apply. The other settings of this section override individual rules.
	Preset Preset `mapstructure:"preset"`
	// Scope selects the CPUs whose processes and utilization determine the attribution of the
	// energy of a CPU package and its DRAM: all CPUs of the node (node) or the CPUs of the package
	// (zone).
	//
	//reference:research
	Scope Scope `mapstructure:"scope"`
	// StaticPower maps zone kinds, or all, to static power models, which divide energy into active
	// and idle energy. A string in place of the map is the model of all zone kinds. A string in
	// place of the settings of a zone kind is its model.
	//
	//reference:research
	StaticPower map[power.Kind]StaticPowerConfig `mapstructure:"static_power" short:"MODEL" keys:"package"`
	// Weight maps zone kinds, or all, to the attribution weight. Active energy is attributed in
	// proportion to the weight. A string in place of the map is the weight of all zone kinds. At
	// most two weights may be in use. cpu_time is not counted for dram, nor at all if smt_weight is 1.
	// At most one of frequency, frequency_squared and frequency_cubed may be in use. power_model
	// requires measured energy of the CPU packages, and for dram measured energy of dram.
	//
	//reference:research
	Weight map[power.Kind]Weight `mapstructure:"weight" short:"WEIGHT" keys:"package"`
	// SMTWeight is the factor, from 0.5 to 1, by which cpu_time and the frequency weights multiply
	// CPU time while the other thread of the core is busy: two busy threads are assumed to draw 2 *
	// smt_weight times the power of one. 0 selects the factor of the preset, or 0.6.
	//
	//reference:research
	SMTWeight float64 `mapstructure:"smt_weight"`
	// Interrupts selects how the energy of interrupts is attributed: to the running processes
	// (shared), or to no process (unattributed).
	//
	//reference:research
	Interrupts InterruptRule `mapstructure:"interrupts"`
	// Idle selects the workloads that receive idle energy: none; all processes equally (equal);
	// containers and virtual machines, either equally (equal_containers) or in proportion to their
	// CPU requests (requested); or processes in proportion to active energy (used).
	// requested_linear replaces requested for container runtimes that convert CPU shares linearly:
	// runc before 1.3.2 and crun before 1.23.
	//
	//reference:research
	Idle IdleRule `mapstructure:"idle"`
	// Exclude selects workloads whose energy counts as static.
	Exclude ExcludeConfig `mapstructure:"exclude"`
	// SmartWatts holds the parameters of the power model of the preset smartwatts.
	//
	//reference:research
	SmartWatts SmartWattsConfig `mapstructure:"smartwatts"`

	// Tuning overrides the constants of the static power models, for tests.
	Tuning StaticTuning `mapstructure:"-"`

	_ struct{}
}

// StaticTuning overrides constants of the static power models. A zero field selects the default.
type StaticTuning struct {
	Rest    float64       // the highest utilization of a node at rest, for resting and base
	Base    time.Duration // the averaging time of base
	Samples int           // the number of samples that regression requires in each bucket
}

// AllZones is the key in AttributionConfig.StaticPower and AttributionConfig.Weight that applies to
// all zone kinds without their own key.
const AllZones power.Kind = "all"

// StaticPowerConfig is a static power model.
type StaticPowerConfig struct {
	// Model is the static power model.
	Model StaticModel `mapstructure:"model"`
	// Power is the static power in watts for the model fixed: the total of all zones of the kind.
	Power *float64 `mapstructure:"power"`

	_ struct{}
}

// UnmarshalScalar reads the short form, the name of a model.
func (c *StaticPowerConfig) UnmarshalScalar(value confmap.ScalarValue) error {
	model, ok := value.GetRaw().(string)
	if !ok {
		return fmt.Errorf("must be a model or a map of settings such as {model: fixed, power: 12}, is %v", value.GetRaw())
	}
	c.Model = StaticModel(model)
	return nil
}

// Unmarshal implements confmap.Unmarshaler. It reads the short forms of static_power and weight.
func (c *AttributionConfig) Unmarshal(conf *confmap.Conf) error {
	for _, key := range []string{"static_power", "weight"} {
		if value, ok := conf.Get(key).(string); ok {
			if err := conf.Merge(confmap.NewFromStringMap(map[string]any{key: map[string]any{string(AllZones): value}})); err != nil {
				return err
			}
		}
	}
	return conf.Unmarshal(c)
}

// ExcludeConfig matches workloads. A workload is excluded if any list matches it.
type ExcludeConfig struct {
	// Cgroup matches the cgroup paths of containers and processes. Regular expressions are anchored
	// at the start of the path.
	Cgroup []filter.Config `mapstructure:"cgroup"`
	// Namespace matches the Kubernetes namespaces of pods, which are read from the kubelet's
	// directories in /var/log/pods.
	Namespace []filter.Config `mapstructure:"namespace"`
	// ExecutableName matches process.executable.name. Use it only if all users of the node are
	// trusted: any user can give a program an excluded name.
	ExecutableName []filter.Config `mapstructure:"executable_name"`

	_ struct{}
}

// Scope is a value of attribution::scope.
type Scope string

// The scopes.
const (
	ScopeNode Scope = "node"
	ScopeZone Scope = "zone"
)

// InterruptRule is a value of attribution::interrupts.
type InterruptRule string

// The rules for the energy of interrupts.
const (
	InterruptsShared       InterruptRule = "shared"
	InterruptsUnattributed InterruptRule = "unattributed"
)

// IdleRule is a value of attribution::idle.
type IdleRule string

// The rules for idle energy.
const (
	IdleNone            IdleRule = "none"
	IdleEqual           IdleRule = "equal"            // equally to processes
	IdleEqualContainers IdleRule = "equal_containers" // equally to containers
	IdleRequested       IdleRule = "requested"
	IdleRequestedLinear IdleRule = "requested_linear" // cpu.weight is linear in CPU shares
	IdleUsed            IdleRule = "used"
)

// validate checks the settings independently of the machine.
func (c *AttributionConfig) validate(wrong invalid.Reporter, zones []power.Kind) {
	if c.Preset != "" {
		invalid.OneOf(wrong, "preset", c.Preset, PresetKepler, PresetKepler09, PresetScaphandre, PresetSmartWatts, PresetKubeWatt, PresetKavanagh, PresetKavanaghEqual)
	}
	if c.Scope != "" {
		invalid.OneOf(wrong, "scope", c.Scope, ScopeNode, ScopeZone)
	}
	for _, kind := range slices.Sorted(maps.Keys(c.StaticPower)) {
		invalid.OneOf(wrong, "static_power", kind, append([]power.Kind{AllZones}, power.Kinds...)...)
		static := c.StaticPower[kind]
		static.validate(wrong.Under("static_power::"+string(kind)), kind)
	}
	c.validateWeights(wrong, zones)
	if c.Interrupts != "" {
		invalid.OneOf(wrong, "interrupts", c.Interrupts, InterruptsShared, InterruptsUnattributed)
	}
	c.SmartWatts.validate(wrong.Under("smartwatts"))
	if c.Idle != "" {
		invalid.OneOf(wrong, "idle", c.Idle, IdleNone, IdleEqual, IdleEqualContainers, IdleRequested, IdleRequestedLinear, IdleUsed)
	}
}

// maxStaticPower, in watts, exceeds the power of any machine.
const maxStaticPower = 1e6

func (c *StaticPowerConfig) validate(wrong invalid.Reporter, kind power.Kind) {
	invalid.OneOf(wrong, "model", c.Model, StaticModelNames...)
	switch {
	case c.Model != StaticFixed && c.Power != nil:
		wrong("power", "must not be set unless model is %s", StaticFixed)
	case c.Model != StaticFixed:
	case kind == AllZones:
		wrong("model", "must not be %s, which needs the power of each zone kind", StaticFixed)
	case c.Power == nil:
		wrong("power", "must be set if model is %s", StaticFixed)
	case !(*c.Power >= 0 && *c.Power <= maxStaticPower):
		wrong("power", "must be between 0 and %g watts, is %g", maxStaticPower, *c.Power)
	}
}

func (c *AttributionConfig) validateWeights(wrong invalid.Reporter, zones []power.Kind) {
	weighted := slices.DeleteFunc(slices.Clone(power.Kinds), func(k power.Kind) bool { return k == power.GPU })
	for _, kind := range slices.Sorted(maps.Keys(c.Weight)) {
		invalid.OneOf(wrong, "weight", kind, append([]power.Kind{AllZones}, weighted...)...)
		invalid.OneOf(wrong, "weight::"+string(kind), c.Weight[kind], Weights...)
	}
	smt := cmp.Or(c.SMTWeight, c.PresetRules().SMT)
	switch keys := Keys(zones, c.WeightOf, smt); {
	case len(keys) <= attribution.Weights:
	case slices.Contains(keys, window.KeyCPUTime):
		wrong("weight", "may have at most %d different ones, %s among them because smt_weight is below 1, has %s",
			attribution.Weights, window.KeyCPUTime, c.listWeights(zones))
	default:
		wrong("weight", "may have at most %d different ones in addition to %s, has %s", attribution.Weights, window.KeyCPUTime, c.listWeights(zones))
	}
	exponents := map[int]bool{}
	for _, kind := range zones {
		exponents[c.WeightOf(kind).Exponent()] = true
	}
	if delete(exponents, 0); len(exponents) > 1 {
		wrong("weight", "may have at most one of frequency, frequency_squared and frequency_cubed, has %s", c.listWeights(zones))
	}
	if w := c.SMTWeight; w != 0 && !(w >= 0.5 && w <= 1) {
		wrong("smt_weight", "must be between 0.5 and 1, is %g", w)
	}
}

// listWeights returns the weights of these zone kinds, and marks weights that the configuration
// does not set.
func (c *AttributionConfig) listWeights(zones []power.Kind) string {
	var list []string
	for _, kind := range zones {
		if kind == power.GPU {
			continue
		}
		weight := fmt.Sprintf("%s: %s", kind, c.WeightOf(kind))
		if c.SetWeight(kind) == "" {
			weight += " (default)"
		}
		list = append(list, weight)
	}
	return strings.Join(list, ", ")
}
