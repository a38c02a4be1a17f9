// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// simSetting is a configuration of the receiver.
type simSetting struct {
	name string
	// as is the name in the table, if it differs.
	as string
	// source is KindBPF for CPU times in nanoseconds with all exits, KindClocks for CPU clocks,
	// KindProcfs for /proc. Windows of less than a second need KindBPF.
	source      cpu.SourceKind
	window      time.Duration // 0 selects the window of the preset
	attribution config.AttributionConfig
	// training is the time to train the models on a machine under varied load before the
	// measurement, in whole collections.
	training time.Duration
	// in lists the scenarios with a row for the setting; nil means all. Rows that would repeat
	// another row are left out.
	in []string
	// counts is set if the machine counts hardware events.
	counts bool
	// warm is the time that the workloads run before the measurement, in whole collections.
	warm time.Duration
	// driver is the driver of the cards of a machine, if the cards are measured.
	driver string
	// by, if set, measures the rule of another tool instead of the receiver.
	by func(*testing.T, simScenario, time.Duration) accuracy
}

// named returns the setting of a name, which is a list of options. By default a setting is
// simpleConfig with CPU time from BPF programs. An option is a key of simOptions, a static power
// model, a weight of packages, the weight of a zone kind (DRAM by memory), a value (preset kepler,
// smt_weight 0.6), or the length of windows. A trained model is trained for a day.
func named(name string) simSetting {
	s := simSetting{name: name, source: cpu.KindBPF, attribution: simpleConfig().Attribution}
	s.attribution.Weight = map[power.Kind]config.Weight{}
	for option := range strings.SplitSeq(name, ", ") {
		if err := s.set(option); err != nil {
			panic(fmt.Sprintf("%s: %v", name, err))
		}
	}
	if s.attribution.Trains(simpleConfig().Zones) {
		s.training = 24 * time.Hour
	}
	return s
}

func (s *simSetting) set(option string) (err error) {
	a := &s.attribution
	first, value, _ := strings.Cut(option, " ")
	set, isFixed := simOptions[option]
	weight, isWeight := strings.CutPrefix(value, "by ")
	switch {
	case isFixed:
		set(s)
	case slices.Contains(config.StaticModelNames, config.StaticModel(option)):
		a.StaticPower = allStatic(config.StaticModel(option))
	case slices.Contains(config.Weights, config.Weight(option)):
		a.Weight[power.Package] = config.Weight(option)
	case isWeight:
		a.Weight[power.Kind(strings.ToLower(first))] = config.Weight(weight)
	case first == "preset":
		a.Preset = config.Preset(value)
	case first == "smt_weight":
		a.SMTWeight, err = strconv.ParseFloat(value, 64)
	default:
		s.window, err = time.ParseDuration(strings.ReplaceAll(option, " ", ""))
	}
	return err
}

// simOptions are the options of named that have no value.
var simOptions = map[string]func(*simSetting){
	"CPU time":                func(*simSetting) {},
	"default":                 func(s *simSetting) { s.attribution.Preset, s.counts = "", true },
	"BPF":                     func(*simSetting) {},
	"procfs":                  func(s *simSetting) { s.source, s.counts = cpu.KindProcfs, false },
	"no events":               func(s *simSetting) { s.counts = false },
	"interrupts unattributed": func(s *simSetting) { s.attribution.Interrupts = config.InterruptsUnattributed },
	"scope zone":              func(s *simSetting) { s.attribution.Scope = config.ScopeZone },
	"fdinfo (xe)":             func(s *simSetting) { s.driver = "xe" },
	"fdinfo (amdgpu)":         func(s *simSetting) { s.driver = "amdgpu" },
	"library":                 func(s *simSetting) { s.driver = "nvidia" },
}

// among returns settings with rows in these scenarios only, or in all scenarios if scenarios is
// nil.
func among(scenarios []string, names ...string) (all []simSetting) {
	for _, name := range names {
		s := named(name)
		s.in = scenarios
		all = append(all, s)
	}
	return all
}

// The scenarios where some settings differ. In other scenarios these settings have equal results.
var (
	ofBursts  = []string{"Bursts", "A noisy counter"}
	ofSockets = []string{"One container on one socket", "Frequency scaling", "Mixed node", "Two sockets with migration", "NUMA"}
	ofClocks  = []string{"Frequency scaling", "Mixed node", "Two sockets with migration"}
	ofMemory  = []string{"Memory-bound and compute-bound", "Mixed node", "NUMA"}
	ofModels  = []string{"Interrupts"} // the models fail here
	ofMixed   = []string{"Mixed node"}

	ofInterrupts = []string{"Interrupts", "Interrupts in bursts"}
	ofThreads    = []string{"Hyperthreads", "Hyperthreads in bursts"}
)

var simSettings = slices.Concat(
	among(nil, "CPU time, 10 s, procfs", "CPU time, 10 s, BPF"),
	among([]string{"Bursts", "Short-lived containers"}, "CPU time, 1 s, procfs"),
	among(nil, "CPU time, 1 s, BPF", "CPU time, 100 ms, BPF"),
	among(ofBursts, "CPU time, 10 ms, BPF"),
)

// simRules are the static power models other than the default. Trained models take minutes, so they
// are measured only when the page is written. Fixed has the machine's true power at rest, so it has
// no error on the curves.
var simRules = slices.Concat(
	among(nil, "fixed, 1 s, BPF"),
	among(ofModels, "minimum, 10 s, BPF", "resting, 10 s, BPF", "base, 10 s, BPF", "regression, 10 s, BPF"),
	among(nil, "trained, 1 s, BPF"),
	among([]string{"Bursts", "A noisy counter", "Interrupts", "Interrupts in bursts", "Mixed node"}, "trained, 100 ms, BPF"),
	among(ofInterrupts,
		"fixed, interrupts unattributed, 10 s, BPF", "fixed, interrupts unattributed, 1 s, BPF", "fixed, interrupts unattributed, 100 ms, BPF"),
)

// The settings of the tables of curves: the load curves, and the other curves and loads.
var (
	curveSettings = among(nil, "CPU time, 10 s, BPF", "minimum, 10 s, BPF", "resting, 10 s, BPF", "base, 10 s, BPF", "regression, 10 s, BPF",
		"trained, 10 s, BPF", "default, BPF")
	nightSettings = among(nil, "CPU time, 10 s, BPF", "trained, 10 s, BPF", "default, BPF")
)

// simBest holds the recommended settings.
var simBest = slices.Concat(among(nil, "default, BPF", "default, procfs"), among(ofMemory, "default, BPF, no events"))

// simPresets are the presets of other tools' rules. They have no rows. Except for kubewatt, each
// has the active energy of a setting above.
var simPresets = among(nil, "preset kepler, 10 s, BPF", "preset kepler_0_9, 10 s, BPF", "preset scaphandre, 10 s, BPF",
	"preset smartwatts, 10 s, BPF", "preset kubewatt, 10 s, BPF", "preset kavanagh, 10 s, BPF")

// simKeys are attribution weights other than CPU time, with a correct static power model. With a
// wrong model they would also divide energy that no workload caused.
var simKeys = slices.Concat(
	among([]string{"Frequency scaling"}, "fixed, frequency, 10 s, BPF"),
	among(ofClocks, "fixed, frequency, 1 s, BPF", "fixed, frequency_squared, 1 s, BPF", "fixed, frequency_cubed, 1 s, BPF"),
	among(ofMemory, "fixed, DRAM by memory, 1 s, BPF", "fixed, DRAM by memory_cpu_time, 1 s, BPF"),
	among(ofMixed, "trained, frequency_squared, DRAM by memory_cpu_time, 1 s, BPF", "trained, frequency_squared, DRAM by memory_cpu_time, 100 ms, BPF"),
)

// simScopes divide each package's energy by its own CPUs, also with the static power models that
// are correct for a package. On one socket the results equal the scope node.
var simScopes = slices.Concat(
	among(ofSockets, "scope zone, utilization, 10 s, BPF", "scope zone, fixed, 10 s, BPF", "scope zone, fixed, 10 s, procfs",
		"scope zone, fixed, 1 s, BPF", "scope zone, trained, 1 s, BPF"),
	among([]string{"Mixed node", "NUMA"}, "scope zone, trained, DRAM by memory_cpu_time, 1 s, BPF",
		"scope zone, trained, DRAM by memory_cpu_time, 100 ms, BPF"),
)

// simThreads are settings with a lower weight for threads that share a core, with a correct static
// power model. Two busy threads draw 1.2 times the power of one, so the weight 0.6 is correct.
var simThreads = slices.Concat(
	among(ofThreads, "fixed, smt_weight 0.6, 10 s, BPF", "fixed, smt_weight 0.55, 1 s, BPF", "fixed, smt_weight 0.6, 1 s, BPF",
		"fixed, smt_weight 0.65, 1 s, BPF", "fixed, smt_weight 0.55, 100 ms, BPF", "fixed, smt_weight 0.6, 100 ms, BPF",
		"fixed, smt_weight 0.65, 100 ms, BPF"),
	among(ofThreads[1:], "fixed, smt_weight 1, 10 ms, BPF", "fixed, smt_weight 0.55, 10 ms, BPF", "fixed, smt_weight 0.6, 10 ms, BPF",
		"fixed, smt_weight 0.65, 10 ms, BPF"),
)

// simRows returns all settings in the order of the tables.
func simRows() []simSetting {
	return slices.Concat(simSettings, simRules, simScopes, simKeys, simThreads, simBest)
}

// config applies the setting to the default configuration.
func (s *simSetting) config() *config.Config {
	cfg := simpleConfig()
	cfg.Window, cfg.Attribution = s.window, s.attribution
	return cfg
}

// trainingKey identifies the options that affect trained models: all options except attribution
// weights and the idle allocation, which divide energy.
func (s *simSetting) trainingKey() string {
	a := s.attribution
	a.StaticPower = allStatic(a.StaticModelOf(power.Package))
	a.Weight, a.Idle = nil, ""
	return fmt.Sprintf("%v %v %v %+v", s.source, s.training, s.window, a)
}

// simIdleRules are the idle allocations, and simIdleScenarios the scenarios where they differ.
var (
	simIdleRules = []simSetting{
		idling(config.IdleNone), idling(config.IdleEqual), idling(config.IdleEqualContainers), idling(config.IdleRequested), idling(config.IdleUsed),
	}
	simIdleScenarios = []string{"Bursts", "Short-lived containers", "One container on one socket", "Mixed node"}
)

func idling(idle config.IdleRule) simSetting {
	s := named("fixed, 10 s, BPF")
	s.name, s.attribution.Idle = string(idle), idle
	return s
}
