// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// simSetting is a configuration of the receiver.
type simSetting struct {
	name string
	// as is the name in the table, if it is another one.
	as string
	// source is KindBPF for CPU times in nanoseconds that include every end, KindClocks for CPU clocks, KindProcfs for
	// /proc. Windows of less than a second need KindBPF.
	source    cpu.SourceKind
	configure func(*config.Config)
	// learns is how long it learns from a machine under varied load before the measurement, in whole collections.
	learns time.Duration
	// in names the scenarios that have a row of it, nil for all. A row that repeats another one is left out.
	in []string
	// counts states that the machine counts hardware events.
	counts bool
	// warm is how long the workloads run before the measurement, in whole collections.
	warm time.Duration
	// curves gives it a row in the table of load curves, and nights one in those of the other curves and loads.
	curves, nights bool
	// driver is the driver of the cards of a machine, if the cards are measured.
	driver string
	// kepler, if set, is how often Kepler's rule for cards reads, in place of the receiver; peak: see keplerGPUs.
	kepler time.Duration
	peak   bool
	// tool states that the rule of another tool of this name is measured, in place of the receiver's.
	tool bool
}

// nowhere is for settings that have no row in a scenario's table.
var nowhere = []string{}

// Scenarios in which settings differ that are equal in the others.
var (
	ofBursts  = []string{"Bursts", "A noisy counter"}
	ofSockets = []string{"One container on one socket", "Frequency scaling", "Mixed node", "Two sockets with migration", "NUMA"}
	ofClocks  = []string{"Frequency scaling", "Mixed node", "Two sockets with migration"}
	ofMemory  = []string{"Memory-bound and compute-bound", "Mixed node", "NUMA"}
	ofModels  = []string{"Interrupts"} // in which a model does not find what it looks for

	ofInterrupts = []string{"Interrupts", "Interrupts in bursts"}
)

// among returns the setting with rows in these scenarios only.
func (s simSetting) among(scenarios ...string) simSetting {
	s.in = scenarios
	return s
}

// onCurves returns the setting with a row for each load curve, too.
func (s simSetting) onCurves() simSetting {
	s.curves = true
	return s
}

// onAllCurves returns the setting with rows in all tables of curves, too.
func (s simSetting) onAllCurves() simSetting {
	s.curves, s.nights = true, true
	return s
}

var simSettings = []simSetting{
	{name: "CPU time, 10 s, procfs", source: cpu.KindProcfs, configure: inWindows(0)},
	{name: "CPU time, 10 s, BPF", source: cpu.KindBPF, configure: inWindows(0), curves: true, nights: true},
	{name: "CPU time, 1 s, procfs", source: cpu.KindProcfs, configure: inWindows(time.Second), in: []string{"Bursts", "Short-lived containers"}},
	{name: "CPU time, 1 s, BPF", source: cpu.KindBPF, configure: inWindows(time.Second)},
	{name: "CPU time, 100 ms, BPF", source: cpu.KindBPF, configure: inWindows(100 * time.Millisecond)},
	{name: "CPU time, 10 ms, BPF", source: cpu.KindBPF, configure: inWindows(10 * time.Millisecond), in: ofBursts},
}

// simRules are the static power models other than the default. The learning ones take minutes, so
// they are measured only when the page is written. Fixed gets the machine's true power at rest, so
// that it has no error on the curves.
var simRules = []simSetting{
	splitting(config.StaticFixed, time.Second),
	splitting(config.StaticMinimum, 0).among(ofModels...).onCurves(), splitting(config.StaticResting, 0).among(ofModels...).onCurves(),
	splitting(config.StaticBase, 0).among(ofModels...).onCurves(), splitting(config.StaticRegression, 0).among(ofModels...).onCurves(),
	splitting(config.StaticTrained, 0).among(nowhere...).onAllCurves(), splitting(config.StaticTrained, time.Second),
	splitting(config.StaticTrained, 100*time.Millisecond).among("Bursts", "A noisy counter", "Interrupts", "Interrupts in bursts", "Mixed node"),
	interruptsUnattributed(0).among(ofInterrupts...), interruptsUnattributed(time.Second).among(ofInterrupts...),
	interruptsUnattributed(100 * time.Millisecond).among(ofInterrupts...),
}

// simBest holds the recommended settings.
var simBest = []simSetting{
	byDefault(cpu.KindBPF).onAllCurves(), byDefault(cpu.KindProcfs), uncounted().among(ofMemory...),
}

// simPresets are the presets of other tools' rules. They have no rows. Their active energy is that of
// a setting above, except for kubewatt.
var simPresets = []simSetting{
	preset(config.PresetKepler), preset(config.PresetKepler09), preset(config.PresetScaphandre),
	preset(config.PresetSmartWatts), preset(config.PresetKubeWatt), preset(config.PresetKavanagh),
}

// simKeys are attribution weights other than CPU time, with a correct static power model. With a wrong one they also share
// energy that no workload caused.
var simKeys = []simSetting{
	keyed(config.StaticFixed, config.WeightFrequency, config.WeightCPUTime, 0).among("Frequency scaling"),
	keyed(config.StaticFixed, config.WeightFrequency, config.WeightCPUTime, time.Second).among(ofClocks...),
	keyed(config.StaticFixed, config.WeightFrequencySquared, config.WeightCPUTime, time.Second).among(ofClocks...),
	keyed(config.StaticFixed, config.WeightFrequencyCubed, config.WeightCPUTime, time.Second).among(ofClocks...),
	keyed(config.StaticFixed, config.WeightCPUTime, config.WeightMemory, time.Second).among(ofMemory...),
	keyed(config.StaticFixed, config.WeightCPUTime, config.WeightMemoryCPUTime, time.Second).among(ofMemory...),
	keyed(config.StaticTrained, config.WeightFrequencySquared, config.WeightMemoryCPUTime, time.Second).among("Mixed node"),
	keyed(config.StaticTrained, config.WeightFrequencySquared, config.WeightMemoryCPUTime, 100*time.Millisecond).among("Mixed node"),
}

// simScopes divide each package's energy by its own CPUs. The static power models that are correct for a package are
// among them. On one socket they are as the scope node.
var simScopes = []simSetting{
	byZone("", config.StaticUtilization, cpu.KindBPF, 0).among(ofSockets...), byZone("", config.StaticFixed, cpu.KindBPF, 0).among(ofSockets...),
	byZone("", config.StaticFixed, cpu.KindProcfs, 0).among(ofSockets...), byZone("", config.StaticFixed, cpu.KindBPF, time.Second).among(ofSockets...),
	byZone("", config.StaticTrained, cpu.KindBPF, time.Second).among(ofSockets...),
	byZone(config.WeightMemoryCPUTime, config.StaticTrained, cpu.KindBPF, time.Second).among("Mixed node", "NUMA"),
	byZone(config.WeightMemoryCPUTime, config.StaticTrained, cpu.KindBPF, 100*time.Millisecond).among("Mixed node", "NUMA"),
}

// ofThreads are the scenarios in which threads share cores. Two busy ones draw 1.2 times one, so
// the weight 0.6 is correct.
var ofThreads = []string{"Hyperthreads", "Hyperthreads in bursts"}

// simThreads are settings with less for threads that share a core, with a correct static power model.
var simThreads = []simSetting{
	sharing(0.6, 0).among(ofThreads...), sharing(0.55, time.Second).among(ofThreads...), sharing(0.6, time.Second).among(ofThreads...),
	sharing(0.65, time.Second).among(ofThreads...), sharing(0.55, 100*time.Millisecond).among(ofThreads...),
	sharing(0.6, 100*time.Millisecond).among(ofThreads...), sharing(0.65, 100*time.Millisecond).among(ofThreads...),
	sharing(1, config.MinWindow).among(ofThreads[1]), sharing(0.55, config.MinWindow).among(ofThreads[1]), sharing(0.6, config.MinWindow).among(ofThreads[1]),
	sharing(0.65, config.MinWindow).among(ofThreads[1]),
}

// simRows returns all settings in the order of the tables.
func simRows() []simSetting {
	return slices.Concat(simSettings, simRules, simScopes, simKeys, simThreads, simBest)
}

// byZone returns a setting with scope zone, a model and a key for memory, in windows of a length.
func byZone(dram config.Weight, static config.StaticModel, source cpu.SourceKind, window time.Duration) simSetting {
	name := "scope zone, " + string(static)
	if dram != "" {
		name += ", DRAM by " + string(dram)
	}
	s := afterADay(fmt.Sprintf("%s, %s, %s", name, lengths[window], sourceNames[source]), func(c *config.Config) {
		inWindows(window)(c)
		a := &c.Attribution
		a.Scope, a.StaticPower = config.ScopeZone, allStatic(static)
		if dram != "" {
			a.Weight = map[power.Kind]config.Weight{power.DRAM: dram}
		}
	})
	s.source = source
	return s
}

// keyed returns a setting with a model, a weight for packages and a weight for memory, in windows of a length.
func keyed(static config.StaticModel, weight, dram config.Weight, window time.Duration) simSetting {
	name := string(static)
	if weight != config.WeightCPUTime {
		name += ", " + string(weight)
	}
	if dram != config.WeightCPUTime {
		name += ", DRAM by " + string(dram)
	}
	return afterADay(fmt.Sprintf("%s, %s, BPF", name, lengths[window]), func(c *config.Config) {
		inWindows(window)(c)
		a := &c.Attribution
		a.StaticPower, a.Weight = allStatic(static), map[power.Kind]config.Weight{config.AllZones: weight, power.DRAM: dram}
	})
}

var sourceNames = map[cpu.SourceKind]string{cpu.KindBPF: "BPF", cpu.KindProcfs: "procfs"}

var lengths = map[time.Duration]string{0: "10 s", time.Second: "1 s", 100 * time.Millisecond: "100 ms", config.MinWindow: "10 ms"}

// splitting returns a setting with a static power model in windows of a length.
func splitting(static config.StaticModel, window time.Duration) simSetting {
	return afterADay(fmt.Sprintf("%s, %s, BPF", static, lengths[window]), func(c *config.Config) {
		inWindows(window)(c)
		c.Attribution.StaticPower = allStatic(static)
	})
}

// interruptsUnattributed returns a setting where the energy of interrupts has no owner, with a
// correct static power model.
func interruptsUnattributed(window time.Duration) simSetting {
	return simSetting{
		name: fmt.Sprintf("fixed, interrupts unattributed, %s, BPF", lengths[window]), source: cpu.KindBPF,
		configure: func(c *config.Config) {
			inWindows(window)(c)
			c.Attribution.StaticPower, c.Attribution.Interrupts = allStatic(config.StaticFixed), config.InterruptsUnattributed
		},
	}
}

// sharing returns a setting with a weight of time during which the sibling is busy, in windows of a length.
func sharing(weight float64, window time.Duration) simSetting {
	s := splitting(config.StaticFixed, window)
	s.name = fmt.Sprintf("%s, smt_weight %g, %s, BPF", config.StaticFixed, weight, lengths[window])
	fixed := s.configure
	s.configure = func(c *config.Config) {
		fixed(c)
		c.Attribution.SMTWeight = weight
	}
	return s
}

// preset returns a setting with a preset in windows of a collection.
func preset(p config.Preset) simSetting {
	return afterADay(fmt.Sprintf("preset %s, 10 s, BPF", p), func(c *config.Config) { c.Attribution.Preset, c.Window = p, c.CollectionInterval })
}

// byDefault returns the setting of the default configuration. BPF programs count hardware events.
func byDefault(source cpu.SourceKind) simSetting {
	s := afterADay("default, "+sourceNames[source], func(c *config.Config) { c.Attribution.Preset = "" })
	s.source, s.counts = source, source == cpu.KindBPF
	return s
}

// uncounted returns the setting of the default configuration on a machine that counts no hardware events.
func uncounted() simSetting {
	s := byDefault(cpu.KindBPF)
	s.name, s.counts = "default, BPF, no events", false
	return s
}

// afterADay returns the setting with a day to learn in, if it learns.
func afterADay(name string, configure func(*config.Config)) simSetting {
	s := simSetting{name: name, source: cpu.KindBPF, configure: configure}
	if cfg := s.config(); cfg.Attribution.Trains(cfg.Zones) {
		s.learns = 24 * time.Hour
	}
	return s
}

// config applies the setting to the default configuration.
func (s *simSetting) config() *config.Config {
	cfg := simpleConfig()
	s.configure(cfg)
	return cfg
}

// learning identifies everything that what is learned depends on: all but keys and the idle
// allocation, which divide energy.
func (s *simSetting) learning() string {
	cfg := s.config()
	a := cfg.Attribution
	a.StaticPower = allStatic(a.StaticModelOf(power.Package))
	a.Weight, a.Idle = nil, ""
	return fmt.Sprintf("%v %v %v %+v", s.source, s.learns, cfg.Window, a)
}

// simIdleRules are the idle allocations, and simIdleScenarios the scenarios in which they differ.
var (
	simIdleRules = []simSetting{
		idling(config.IdleNone), idling(config.IdleEqual), idling(config.IdleEqualContainers), idling(config.IdleRequested), idling(config.IdleUsed),
	}
	simIdleScenarios = []string{"Bursts", "Short-lived containers", "One container on one socket", "Mixed node"}
)

func idling(idle config.IdleRule) simSetting {
	return simSetting{name: string(idle), source: cpu.KindBPF, configure: func(c *config.Config) {
		c.Attribution.StaticPower, c.Attribution.Idle = allStatic(config.StaticFixed), idle
	}}
}

// inWindows sets the length of the windows. 0 is one per collection, 10 s.
func inWindows(length time.Duration) func(*config.Config) {
	return func(c *config.Config) { c.Window = length }
}
