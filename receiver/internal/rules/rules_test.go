// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh/calibrated"
	"github.com/energyreceiver/energyreceiver/internal/window"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config/configtest"
)

func resolve(t *testing.T, yaml string, m Machine) Rules {
	t.Helper()
	r, _ := Resolve(configtest.Load(t, config.Default(), yaml), m)
	return r
}

// chosen lists the rules that a configuration selects.
type chosen struct {
	scope        config.Scope
	static, gpu  config.StaticModel // of packages and GPUs
	weight, dram config.Weight
	smt          float64
	interrupts   config.InterruptRule
	idle         config.IdleRule
	window       time.Duration
}

var (
	defaults = chosen{
		config.ScopeZone, config.StaticTrained, config.StaticTrained, config.WeightFrequencySquared, config.WeightMissesOrMemory, 0.6,
		config.InterruptsUnattributed, config.IdleNone, time.Second,
	}
	keplers = chosen{
		config.ScopeNode, config.StaticUtilization, config.StaticUtilization, config.WeightCPUTime, config.WeightCPUTime, 1,
		config.InterruptsShared, config.IdleNone, 0,
	}
)

func TestTheDefaultRulesAreTheMostAccurateAndEachSettingWins(t *testing.T) {
	smartWatts := func(w config.Weight) func(*chosen) {
		return func(c *chosen) {
			*c = keplers
			c.static, c.gpu, c.weight, c.dram, c.window = config.StaticResting, config.StaticResting, w, w, time.Second
		}
	}
	for yaml, edit := range map[string]func(*chosen){
		"{}":                                   func(*chosen) {},
		"attribution: {scope: node}":           func(c *chosen) { c.scope = config.ScopeNode },
		"attribution: {static_power: minimum}": func(c *chosen) { c.static, c.gpu = config.StaticMinimum, config.StaticMinimum },
		"attribution: {static_power: {gpu: utilization}}":        func(c *chosen) { c.gpu = config.StaticUtilization },
		"attribution: {weight: cpu_time}":                        func(c *chosen) { c.weight, c.dram = config.WeightCPUTime, config.WeightCPUTime },
		"attribution: {weight: {dram: memory}}":                  func(c *chosen) { c.dram = config.WeightMemory },
		"attribution: {weight: {package: cycles}}":               func(c *chosen) { c.weight = config.WeightCycles },
		"attribution: {weight: {package: cpu_time}}":             func(c *chosen) { c.weight = config.WeightCPUTime },
		"attribution: {weight: {all: cycles, dram: cpu_time}}":   func(c *chosen) { c.weight, c.dram = config.WeightCycles, config.WeightCPUTime },
		"attribution: {smt_weight: 1}":                           func(c *chosen) { c.smt = 1 },
		"attribution: {smt_weight: 0.7}":                         func(c *chosen) { c.smt = 0.7 },
		"attribution: {interrupts: shared}":                      func(c *chosen) { c.interrupts = config.InterruptsShared },
		"attribution: {idle: used}":                              func(c *chosen) { c.idle = config.IdleUsed },
		"{collection_interval: 1s}":                              func(c *chosen) { c.window = 0 },
		"window: 100ms":                                          func(c *chosen) { c.window = 100 * time.Millisecond },
		"{window: 2s, attribution: {preset: kepler}}":            func(c *chosen) { *c = keplers; c.window = 2 * time.Second },
		"{attribution: {preset: kepler}}":                        func(c *chosen) { *c = keplers },
		"{attribution: {preset: kepler, scope: zone}}":           func(c *chosen) { *c = keplers; c.scope = config.ScopeZone },
		"{attribution: {preset: smartwatts, weight: frequency}}": smartWatts(config.WeightFrequency),
		"{attribution: {preset: smartwatts}}":                    smartWatts(config.WeightSmartWatts),
		"{attribution: {preset: kepler_0_9}}": func(c *chosen) {
			*c = keplers
			c.static, c.gpu, c.weight, c.dram, c.idle = config.StaticMinimum, config.StaticMinimum, config.WeightInstructions, config.WeightCacheMisses, config.IdleEqual
		},
	} {
		want, r := defaults, resolve(t, yaml, Machine{})
		edit(&want)
		static := r.cfg.Attribution.StaticModelOf
		assert.Equal(t, want, chosen{
			r.Scope, static(power.Package), static(power.GPU), r.Weight(power.Package), r.Weight(power.DRAM), r.SMTWeight, r.Interrupts, r.Idle, r.Window,
		}, yaml)
	}
}

var errLacks = errors.New("lacking")

func TestAPresetSelectsWeightsThatTheMachineMeasures(t *testing.T) {
	unmeasured := Machine{Unclocked: errLacks, Uncounted: errLacks}
	byCPUTime := []config.Weight{config.WeightCPUTime, config.WeightCPUTime, config.WeightCPUTime, config.WeightCPUTime}
	for attribution, c := range map[string]struct {
		clocks   bool
		counted  bool            // on a machine that measures everything
		want     []config.Weight // of package, dram, gpu and other
		fallback []config.Weight
	}{
		"{}": {
			clocks:   true,
			counted:  true,
			want:     []config.Weight{config.WeightFrequencySquared, config.WeightMissesOrMemory, config.WeightCPUTime, config.WeightFrequencySquared},
			fallback: []config.Weight{config.WeightCPUTime, config.WeightMemoryCPUTime, config.WeightCPUTime, config.WeightCPUTime},
		},
		"{preset: kepler_0_9}": {
			counted:  true,
			want:     []config.Weight{config.WeightInstructions, config.WeightCacheMisses, config.WeightCPUTime, config.WeightInstructions},
			fallback: byCPUTime,
		},
		"{preset: smartwatts}": {
			counted:  true,
			want:     []config.Weight{config.WeightSmartWatts, config.WeightSmartWatts, config.WeightCPUTime, config.WeightSmartWatts},
			fallback: byCPUTime,
		},
		"{preset: kepler_0_9, weight: cpu_time}": {want: byCPUTime, fallback: byCPUTime},
		"{preset: kepler}":                       {want: byCPUTime, fallback: byCPUTime},
		"{preset: kepler_0_9, weight: cycles}": { // its failure is a degraded status
			counted:  true,
			want:     []config.Weight{config.WeightCycles, config.WeightCycles, config.WeightCPUTime, config.WeightCycles},
			fallback: []config.Weight{config.WeightCycles, config.WeightCycles, config.WeightCPUTime, config.WeightCycles},
		},
	} {
		yaml := "{zones: [package, dram, gpu, other], attribution: " + attribution + "}"
		for _, of := range []struct {
			machine Machine
			want    []config.Weight
		}{{Machine{}, c.want}, {unmeasured, c.fallback}} {
			r := resolve(t, yaml, of.machine)
			var weights []config.Weight
			for _, kind := range r.cfg.Zones {
				weights = append(weights, r.Weight(kind))
			}
			assert.Equal(t, of.want, weights, yaml)
			if attribution == "{preset: kepler_0_9}" {
				t.Attr(map[bool]string{true: "counters", false: "no-counters"}[of.machine.Uncounted == nil], fmt.Sprint(weights[:2]))
			}
			assert.Equal(t, c.clocks, r.Clocks, "the preset requires them on any machine: %s", yaml)
			assert.Equal(t, c.counted && (of.machine.Uncounted == nil || r.SetCounted() != ""), r.IsCounted, yaml)
		}
	}
}

// Memory is attributed by cache misses if misses are counted and a sensor of memory exists.
func TestTheDefaultWeightOfMemoryIsCacheMissesIfTheyAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		machine        Machine
		weight, kepler config.Weight // by default, and of kepler_0_9
		reason         string
	}{
		"all is measured": {Machine{}, config.WeightMissesOrMemory, config.WeightCacheMisses, ""},
		"no events":       {Machine{Uncounted: errLacks}, config.WeightMemoryCPUTime, config.WeightCPUTime, " (memory_cpu_time is used instead: lacking)"},
		"no misses":       {Machine{Unmissed: errLacks}, config.WeightMemoryCPUTime, config.WeightCPUTime, " (memory_cpu_time is used instead: lacking)"},
		"no sensor": {
			Machine{NoDRAM: errLacks}, config.WeightMemoryCPUTime, config.WeightCacheMisses, " (memory_cpu_time is used instead: lacking)",
		},
	} {
		byDefault, kepler := resolve(t, "{}", c.machine), resolve(t, "attribution: {preset: kepler_0_9}", c.machine)
		assert.Equal(t, c.weight, byDefault.Weight(power.DRAM), name)
		assert.Equal(t, c.kepler, kepler.Weight(power.DRAM), name)
		c.machine.Zones = []power.Class{{Zone: power.DRAM, Method: power.Measured}}
		_, selected, lacking := notes(t, "{}", c.machine)
		assert.Contains(t, append(selected, lacking...), "attribution::weight::dram: cache_misses"+c.reason, name)
		assert.Equal(t, c.reason != "", strings.Contains(strings.Join(lacking, "\n"), "cache_misses"), name)
	}
}

func TestEachZoneHasTheKeyOfItsWeight(t *testing.T) {
	const none, first, second = attribution.ByCPUTime, attribution.ByFirstWeight, attribution.BySecondWeight
	frequency, memory := window.KeyFrequency, window.KeyMissesOrMemory
	for name, c := range map[string]struct {
		yaml    string
		machine Machine
		keys    []window.Key
		weighs  bool                 // smt_weight applies
		engine  []attribution.Weight // of the measured zones
	}{
		"clock rates and threads": {"zones: [package, dram]", Machine{}, []window.Key{frequency, memory}, true, []attribution.Weight{first, second}},
		"clock rates":             {"zones: [package, dram]", Machine{Unshared: errLacks}, []window.Key{frequency, memory}, false, []attribution.Weight{first, second}},
		"threads":                 {"zones: [package, dram]", Machine{Unclocked: errLacks}, []window.Key{window.KeyCPUTime, memory}, true, []attribution.Weight{first, second}},
		"neither":                 {"zones: [package, dram]", Machine{Unclocked: errLacks, Unshared: errLacks}, []window.Key{memory}, false, []attribution.Weight{none, first}},
		"a weight of each zone": {
			"{zones: [package, dram, core, uncore], attribution: {preset: kepler, weight: {all: frequency, dram: memory, core: cpu_time}}}", Machine{},
			[]window.Key{frequency, window.KeyMemory}, false, []attribution.Weight{first, second, none, first},
		},
		"no threads": {
			"{zones: [dram, gpu, package, uncore, core], attribution: {preset: kepler}}", Machine{},
			nil, false, []attribution.Weight{none, none, none, none, none},
		},
		"cores alone have threads": {
			"{zones: [dram, gpu, package, uncore, core], attribution: {preset: kepler, smt_weight: 0.6}}", Machine{},
			[]window.Key{window.KeyCPUTime}, true, []attribution.Weight{none, none, first, none, first},
		},
		"threads beside memory": {
			"{zones: [dram, gpu, package, uncore, core], attribution: {preset: kepler, smt_weight: 0.6, weight: {dram: memory}}}", Machine{},
			[]window.Key{window.KeyMemory, window.KeyCPUTime}, true, []attribution.Weight{first, none, second, none, second},
		},
		"cycles are counted by thread": {
			"{zones: [dram, gpu, package, uncore, core], attribution: {preset: kepler, smt_weight: 0.6, weight: cycles}}", Machine{},
			[]window.Key{window.KeyCycles}, false, []attribution.Weight{first, none, first, first, first},
		},
		"a configured smt_weight stays": {
			"{zones: [package], attribution: {preset: kepler, smt_weight: 0.6}}", Machine{Unshared: errLacks},
			[]window.Key{window.KeyCPUTime}, true, []attribution.Weight{first},
		},
	} {
		r := resolve(t, c.yaml, c.machine)
		assert.Equal(t, c.keys, r.Keys, name)
		assert.Equal(t, c.weighs, r.WeighsCores, name)
		engine := r.Attribution()
		assert.Equal(t, c.engine, engine.Keys[:len(c.engine)], name)
	}
}

func TestTheExponentOfTheClockRateIsTheWeights(t *testing.T) {
	for weight, want := range map[string]int{"cpu_time": 1, "frequency": 1, "frequency_squared": 2, "frequency_cubed": 3} {
		r := resolve(t, "attribution: {weight: "+weight+"}", Machine{})
		assert.Equal(t, want, r.KeyOptions(nil).FrequencyExponent, weight)
	}
}

func TestPackagesAndDRAMHaveTheirOwnThresholdOfSmartWatts(t *testing.T) {
	of := func(yaml string, key window.Key) weigh.SmartWattsOptions {
		r := resolve(t, "attribution: {preset: smartwatts, smartwatts: {"+yaml+"}}", Machine{})
		return r.KeyOptions(nil).SmartWatts[key]
	}
	o := weigh.SmartWattsOptions{BaseClock: 100, Options: calibrated.Options{Fewest: 10, History: 60, Threshold: 2}}
	for _, key := range []window.Key{window.KeySmartWatts, window.KeyDRAMSmartWatts} {
		assert.Equal(t, o, of("", key), key)
	}
	o = weigh.SmartWattsOptions{BaseClock: 50, Options: calibrated.Options{Fewest: 3, History: 30, Threshold: 5, MaxStatic: 205}}
	const all = "tdp: 205, base_clock: 50, min_samples: 3, history_window: 30, cpu_error_threshold: 5, dram_error_threshold: 1"
	assert.Equal(t, o, of(all, window.KeySmartWatts))
	o.Threshold = 1
	assert.Equal(t, o, of(all, window.KeyDRAMSmartWatts))
	t.Attr("smartwatts-dram", fmt.Sprintf("%g, %g W", of(all, window.KeySmartWatts).Threshold, of(all, window.KeyDRAMSmartWatts).Threshold))
}

func TestEachIdleRuleHasItsAllocation(t *testing.T) {
	for rule, want := range map[string]attribution.IdleAllocation{
		"none": attribution.IdleNone, "equal": attribution.IdleEqual, "equal_containers": attribution.IdleEqualContainers,
		"requested": attribution.IdleRequested, "requested_linear": attribution.IdleRequested, "used": attribution.IdleUsed,
	} {
		r := resolve(t, "attribution: {idle: "+rule+"}", Machine{})
		assert.Equal(t, want, r.Attribution().Idle, rule)
	}
}

func TestOnlyTheDefaultRulesLeaveMissedEnergyUnattributed(t *testing.T) {
	for attribution, want := range map[string]bool{"{}": true, "{preset: kepler}": false} {
		assert.Equal(t, want, resolve(t, "attribution: "+attribution, Machine{}).MissedUnattributed, attribution)
	}
}

func TestEveryConfigurationHasRoomForItsKinds(t *testing.T) {
	for _, zones := range [][]power.Kind{
		power.Kinds, slices.DeleteFunc(slices.Clone(power.Kinds), func(k power.Kind) bool { return k == power.PSys }), {power.Package},
	} {
		for _, model := range []config.ModelConfig{{MaxPower: 1}, {MaxPower: 1, Zone: power.Platform}, {}, {File: "/models"}} {
			cfg := config.Default()
			cfg.Zones, cfg.Model = zones, configoptional.Some(model)
			cfg.Meters.Powercap.Path, cfg.Meters.Vsock = "/run/energy", configoptional.Some(drivers.VsockConfig{Port: 1})
			r, _ := Resolve(cfg, Machine{})
			assert.LessOrEqual(t, len(r.Kinds), attribution.MaxKinds)
			for i, kind := range r.Kinds {
				assert.NotContains(t, r.Kinds[:i], kind)
			}
		}
	}
}

func TestTheLedgerHasTheKindsThatMayBeRead(t *testing.T) {
	kinds := func(source power.Method, zones ...power.Kind) (kinds []power.Class) {
		for _, zone := range zones {
			kinds = append(kinds, power.Class{Zone: zone, Method: source})
		}
		return kinds
	}
	measured := kinds(power.Measured, power.Package, power.DRAM, power.Other, power.Platform, power.PSys)
	reported := kinds(power.Reported, power.Package, power.DRAM, power.Platform, power.PSys)
	modeled := kinds(power.Modeled, power.Package, power.DRAM)
	for settings, want := range map[string][]power.Class{
		"model: none": measured,
		"meters: {powercap: {path: /run/energy}}, model: none": slices.Concat(reported, measured),
		"meters: {vsock: {port: 1}}, model: none":              slices.Concat(reported, measured),
		"model: auto":                              slices.Concat(measured, modeled),
		"model: {max_power: 1}":                    slices.Concat(measured, kinds(power.Modeled, power.Package)),
		"model: {max_power: 1, memory_power: 0.3}": slices.Concat(measured, modeled),
		"model: {file: /models}":                   slices.Concat(measured, modeled),
	} {
		assert.Equal(t, want, resolve(t, "{zones: [package, dram, other], "+settings+"}", Machine{}).Kinds, settings)
	}
	ofMachine := resolve(t, "{zones: [package, platform], model: {max_power: 1, zone: platform}}", Machine{}).Kinds
	assert.Equal(t, kinds(power.Modeled, power.Platform), ofMachine[len(ofMachine)-1:])
}
