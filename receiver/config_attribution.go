// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/filter"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// AttributionConfig selects the attribution rules, which docs/attribution.md explains.
type AttributionConfig struct {
	// Preset selects the rules of another system, or accurate: the best of all rules that the machine has what it takes for. Settings
	// beside it override single rules.
	Preset Preset `mapstructure:"preset"`
	// Scope selects whose utilization and users a zone's energy is split by: the whole node's, or those of the CPU package
	// that the zone is of. Empty selects the preset's, or the node's.
	Scope Scope `mapstructure:"scope"`
	// Split is the static power model, which splits energy into active and idle. Empty selects the preset's.
	Split SplitRule `mapstructure:"split"`
	// Splits overrides Split for single zone kinds.
	Splits map[power.Kind]SplitRule `mapstructure:"splits"`
	// StaticPower is the static power of each zone kind for the model fixed, in watts, all sockets together.
	StaticPower map[power.Kind]float64 `mapstructure:"static_power"`
	// RestUtilization is the highest utilization, above 0 up to 1, at which the node counts as at rest, for models that
	// learn at rest.
	RestUtilization float64 `mapstructure:"rest_utilization"`
	// BaseTime is how long the model base averages.
	BaseTime time.Duration `mapstructure:"base_time"`
	// RegressionDegree is 1 or 3. RegressionSamples is how many samples each bucket of the model regression needs.
	RegressionDegree  int `mapstructure:"regression_degree"`
	RegressionSamples int `mapstructure:"regression_samples"`
	// Key is the allocation key: shares of active energy are in proportion to it. Empty selects the preset's, or CPU time.
	Key claims.Key `mapstructure:"key"`
	// Keys overrides Key for single zone kinds. At most two different keys beside CPU time may be in use.
	Keys map[power.Kind]claims.Key `mapstructure:"keys"`
	// FrequencyExponent is 1, 2 or 3: the key frequency weights CPU time by the clock rate to this power. 0 selects the preset's, or 1.
	FrequencyExponent int `mapstructure:"frequency_exponent"`
	// SMTWeight, 0.5 to 1, is what CPU time counts for while the other thread of its core is busy, under the keys cpu_time and
	// frequency: two busy threads draw 2 * SMTWeight times one. 1 makes CPU time count in full. 0 selects the preset's, or 1.
	SMTWeight float64 `mapstructure:"smt_weight"`
	// MemorySize selects what counts as a container's memory, for the keys memory and memory_cpu_time.
	MemorySize MemorySize `mapstructure:"memory_size"`
	// Interrupts selects who has the energy that interrupts cause. Empty selects the preset's, or shared.
	Interrupts InterruptRule `mapstructure:"interrupts"`
	// Idle is the idle allocation: who carries idle energy. Empty selects the preset's.
	Idle IdleRule `mapstructure:"idle"`
	// IdleAmong selects among whom the rule equal shares idle energy. Empty selects the preset's.
	IdleAmong IdleAmong `mapstructure:"idle_among"`
	// CPUWeight is how the container runtime converts CPU shares to cpu.weight, for the rule requested.
	CPUWeight CPUWeight `mapstructure:"cpu_weight"`
	// Exclude matches the workloads whose energy counts as static.
	Exclude ExcludeConfig `mapstructure:"exclude"`

	// unclocked reports whether the machine has no clock rates of whole intervals, and unshared whether no threads share a core. A preset
	// does without the key frequency and without SMTWeight then.
	unclocked, unshared bool

	_ struct{}
}

// Unmarshal implements confmap.Unmarshaler. It refuses state_file, which storage has replaced.
func (c *AttributionConfig) Unmarshal(conf *confmap.Conf) error {
	if conf.IsSet("state_file") {
		return errors.New("state_file does not exist any more: set the receiver's storage to a directory, for example storage: /var/lib/otelcol-energy")
	}
	return conf.Unmarshal(c)
}

// ExcludeConfig matches workloads. A workload is excluded if any list matches it.
type ExcludeConfig struct {
	// Cgroup matches the paths of cgroups of containers and of processes. Patterns match from the root of the path on.
	Cgroup []filter.Config `mapstructure:"cgroup"`
	// Namespace matches the Kubernetes namespaces of pods, which are read from the kubelet's directories in /var/log/pods.
	Namespace []filter.Config `mapstructure:"namespace"`
	// ContainerID and PodUID match these resource attributes of the host's own containers and pods.
	ContainerID []filter.Config `mapstructure:"container_id"`
	PodUID      []filter.Config `mapstructure:"pod_uid"`
	// ExecutableName matches this resource attribute. It is for nodes whose users are trusted: any user can give a program
	// an excluded name.
	ExecutableName []filter.Config `mapstructure:"executable_name"`

	_ struct{}
}

// Preset is a value of the setting attribution::preset.
type Preset string

// The presets.
const (
	PresetAccurate   Preset = "accurate" // of the receiver's own: the smallest errors in the lab
	PresetKepler     Preset = "kepler"   // 0.10 and later
	PresetKepler09   Preset = "kepler_0_9"
	PresetScaphandre Preset = "scaphandre"
	PresetSmartWatts Preset = "smartwatts"
	PresetKubeWatt   Preset = "kubewatt"
	PresetKavanagh   Preset = "kavanagh"
)

// Scope is a value of the setting attribution::scope.
type Scope string

// The scopes.
const (
	ScopeNode Scope = "node"
	ScopeZone Scope = "zone"
)

// InterruptRule is a value of the setting attribution::interrupts.
type InterruptRule string

// Whose energy is what interrupts cause.
const (
	InterruptsShared       InterruptRule = "shared"       // that of who runs, in proportion to the allocation key
	InterruptsUnattributed InterruptRule = "unattributed" // of system.unattributed.energy
)

// IdleRule is a value of the setting attribution::idle.
type IdleRule string

// The idle allocations.
const (
	IdleNone      IdleRule = "none"
	IdleEqual     IdleRule = "equal"
	IdleRequested IdleRule = "requested"
	IdleUsed      IdleRule = "used"
)

// IdleAmong is a value of the setting attribution::idle_among.
type IdleAmong string

// What shares idle energy equally.
const (
	AmongProcesses  IdleAmong = "processes"
	AmongContainers IdleAmong = "containers"
)

// CPUWeight is a value of the setting attribution::cpu_weight.
type CPUWeight string

// The conversions of CPU shares to cpu.weight.
const (
	WeightLinear    CPUWeight = "linear"    // runc before 1.3.2, crun before 1.23
	WeightQuadratic CPUWeight = "quadratic" // since then
)

// MemorySize is a value of the setting attribution::memory_size.
type MemorySize string

// What counts as the memory that a container holds.
const (
	MemoryResident MemorySize = "resident" // what its processes have resident, shared memory once for each
	MemoryCgroup   MemorySize = "cgroup"   // what its cgroup is charged with, caches of files too
)

func defaultAttribution() AttributionConfig {
	return AttributionConfig{
		Preset:            PresetKepler,
		RestUtilization:   0.05,
		BaseTime:          5 * time.Minute,
		RegressionDegree:  1,
		RegressionSamples: 10,
		MemorySize:        MemoryResident,
		CPUWeight:         WeightQuadratic,
	}
}

// validate checks what can be checked without the machine. Each error names its field.
func (c *AttributionConfig) validate(wrong func(field, format string, args ...any), zones []power.Kind) {
	oneOf(wrong, "attribution::preset", c.Preset, PresetAccurate, PresetKepler, PresetKepler09, PresetScaphandre, PresetSmartWatts, PresetKubeWatt, PresetKavanagh)
	if c.Scope != "" {
		oneOf(wrong, "attribution::scope", c.Scope, ScopeNode, ScopeZone)
	}
	if c.Split != "" {
		oneOf(wrong, "attribution::split", c.Split, splitRules...)
	}
	for _, kind := range power.Kinds {
		if split, ok := c.Splits[kind]; ok {
			oneOf(wrong, "attribution::splits::"+string(kind), split, splitRules...)
		}
		if w, ok := c.StaticPower[kind]; ok && !(w >= 0 && w <= maxStaticPower) {
			wrong("attribution::static_power::"+string(kind), "must be between 0 and %g watts, is %g", maxStaticPower, w)
		}
	}
	for kind := range c.Splits {
		oneOf(wrong, "attribution::splits", kind, power.Kinds...)
	}
	for kind := range c.StaticPower {
		oneOf(wrong, "attribution::static_power", kind, power.Kinds...)
	}
	for _, kind := range zones {
		if _, ok := c.StaticPower[kind]; !ok && kind != power.GPU && c.splitOf(kind) == SplitFixed {
			wrong("attribution::static_power::"+string(kind), "must be set when the split of the zone is %q", SplitFixed)
		}
	}
	if u := c.RestUtilization; !(u > 0 && u <= 1) {
		wrong("attribution::rest_utilization", "must be above 0 and at most 1, is %g", u)
	}
	if c.BaseTime <= 0 {
		wrong("attribution::base_time", "must be positive, is %v", c.BaseTime)
	}
	if c.RegressionDegree != 1 && c.RegressionDegree != 3 {
		wrong("attribution::regression_degree", "must be 1 or 3, is %d", c.RegressionDegree)
	}
	if n := c.RegressionSamples; n < 1 || n > maxRegressionSamples {
		wrong("attribution::regression_samples", "must be between 1 and %d, is %d", maxRegressionSamples, n)
	}
	c.validateKeys(wrong, zones)
	if c.Interrupts != "" {
		oneOf(wrong, "attribution::interrupts", c.Interrupts, InterruptsShared, InterruptsUnattributed)
	}
	if c.Idle != "" {
		oneOf(wrong, "attribution::idle", c.Idle, IdleNone, IdleEqual, IdleRequested, IdleUsed)
	}
	if c.IdleAmong != "" {
		oneOf(wrong, "attribution::idle_among", c.IdleAmong, AmongProcesses, AmongContainers)
	}
	oneOf(wrong, "attribution::cpu_weight", c.CPUWeight, WeightLinear, WeightQuadratic)
}

// maxStaticPower, in watts, is more than any machine's. maxRegressionSamples is how many samples a bucket remembers.
const (
	maxStaticPower       = 1e6
	maxRegressionSamples = 1000
)

func (c *AttributionConfig) validateKeys(wrong func(field, format string, args ...any), zones []power.Kind) {
	if c.Key != "" {
		oneOf(wrong, "attribution::key", c.Key, claims.AllKeys...)
	}
	keyed := slices.DeleteFunc(slices.Clone(power.Kinds), func(k power.Kind) bool { return k == power.GPU })
	for kind := range c.Keys {
		oneOf(wrong, "attribution::keys", kind, keyed...)
	}
	for _, kind := range keyed {
		if key, ok := c.Keys[kind]; ok {
			oneOf(wrong, "attribution::keys::"+string(kind), key, claims.AllKeys...)
		}
	}
	switch weighed := c.weighed(zones); {
	case len(weighed) <= attribution.Weights:
	case slices.Contains(weighed, claims.KeyCPUTime):
		by := ""
		if c.SMTWeight == 0 {
			by = " by the preset"
		}
		wrong("attribution::keys", "may have at most %d different ones, %s among them because attribution::smt_weight is below 1%s, has %s",
			attribution.Weights, claims.KeyCPUTime, by, join(weighed))
	default:
		wrong("attribution::keys", "may have at most %d different ones beside %s, has %s", attribution.Weights, claims.KeyCPUTime, join(weighed))
	}
	if n := c.FrequencyExponent; n < 0 || n > 3 {
		wrong("attribution::frequency_exponent", "must be 1, 2 or 3, is %d", n)
	}
	if w := c.SMTWeight; w != 0 && !(w >= 0.5 && w <= 1) {
		wrong("attribution::smt_weight", "must be between 0.5 and 1, is %g", w)
	}
	oneOf(wrong, "attribution::memory_size", c.MemorySize, MemoryResident, MemoryCgroup)
}
