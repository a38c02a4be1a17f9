// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// labSetting is a configuration of the receiver.
type labSetting struct {
	name string
	// source is KindBPF for CPU times in nanoseconds that include every end, KindProcfs for /proc. Windows of less than
	// a second need KindBPF.
	source    cpu.Kind
	configure func(*Config)
	// learns is how long it learns from a machine under varied load before the measurement, in whole collections.
	learns time.Duration
}

var labSettings = []labSetting{
	{name: "CPU time, 10 s, procfs", source: cpu.KindProcfs, configure: inWindows(0)},
	{name: "CPU time, 10 s, BPF", source: cpu.KindBPF, configure: inWindows(0)},
	{name: "CPU time, 1 s, procfs", source: cpu.KindProcfs, configure: inWindows(time.Second)},
	{name: "CPU time, 1 s, BPF", source: cpu.KindBPF, configure: inWindows(time.Second)},
	{name: "CPU time, 100 ms, BPF", source: cpu.KindBPF, configure: inWindows(100 * time.Millisecond)},
	{name: "CPU time, 10 ms, BPF", source: cpu.KindBPF, configure: inWindows(10 * time.Millisecond)},
}

// labRules are the static power models other than the default, and the presets. The learning ones take minutes, so they
// are measured only when the page is written. Fixed gets the machine's true power at rest.
var labRules = []labSetting{
	splitting(SplitFixed, 0),
	splitting(SplitMinimum, 0), splitting(SplitResting, 0), splitting(SplitBase, 0), splitting(SplitRegression, 0),
	splitting(SplitLearned, 0), splitting(SplitLearned, time.Second), splitting(SplitLearned, 100*time.Millisecond),
	preset(PresetKepler), preset(PresetKepler09), preset(PresetScaphandre),
	preset(PresetSmartWatts), preset(PresetKubeWatt), preset(PresetKavanagh),
}

// labKeys are allocation keys other than CPU time, with a correct static power model. With a wrong one they also share
// energy that no workload caused.
var labKeys = []labSetting{
	keyed(SplitFixed, claims.KeyFrequency, 1, claims.KeyCPUTime, 0), keyed(SplitFixed, claims.KeyFrequency, 1, claims.KeyCPUTime, time.Second),
	keyed(SplitFixed, claims.KeyFrequency, 2, claims.KeyCPUTime, time.Second), keyed(SplitFixed, claims.KeyFrequency, 3, claims.KeyCPUTime, time.Second),
	keyed(SplitFixed, claims.KeyCPUTime, 1, claims.KeyMemory, time.Second), keyed(SplitFixed, claims.KeyCPUTime, 1, claims.KeyMemoryCPUTime, time.Second),
	keyed(SplitFixed, claims.KeyFrequency, 2, claims.KeyMemoryCPUTime, time.Second),
	keyed(SplitFixed, claims.KeyFrequency, 2, claims.KeyMemoryCPUTime, 100*time.Millisecond),
	keyed(SplitLearned, claims.KeyFrequency, 2, claims.KeyMemoryCPUTime, time.Second),
	keyed(SplitLearned, claims.KeyFrequency, 2, claims.KeyMemoryCPUTime, 100*time.Millisecond),
}

// labScopes divide each package's energy by its own CPUs. The static power models that are correct for a package are
// among them.
var labScopes = []labSetting{
	byZone("", SplitUtilization, cpu.KindBPF, 0), byZone("", SplitFixed, cpu.KindBPF, 0), byZone("", SplitFixed, cpu.KindProcfs, 0),
	byZone("", SplitFixed, cpu.KindBPF, time.Second), byZone("", SplitLearned, cpu.KindBPF, time.Second),
	byZone(claims.KeyMemoryCPUTime, SplitLearned, cpu.KindBPF, time.Second),
	byZone(claims.KeyMemoryCPUTime, SplitLearned, cpu.KindBPF, 100*time.Millisecond),
}

// byZone returns a setting with scope zone, a model and a key for memory, in windows of a length.
func byZone(dram claims.Key, split SplitRule, source cpu.Kind, window time.Duration) labSetting {
	name := "scope zone, " + string(split)
	if dram != "" {
		name += ", DRAM by " + string(dram)
	}
	of := map[cpu.Kind]string{cpu.KindBPF: "BPF", cpu.KindProcfs: "procfs"}[source]
	s := afterADay(fmt.Sprintf("%s, %s, %s", name, lengths[window], of), func(c *Config) {
		inWindows(window)(c)
		a := &c.Attribution
		a.Scope, a.Split = ScopeZone, split
		if dram != "" {
			a.Keys = map[power.Kind]claims.Key{power.DRAM: dram}
		}
	})
	s.source = source
	return s
}

// keyed returns a setting with a model, a key for packages with frequency to a power, and a key for memory, in windows
// of a length.
func keyed(split SplitRule, key claims.Key, exponent int, dram claims.Key, window time.Duration) labSetting {
	name := string(split)
	if key != claims.KeyCPUTime {
		name += ", " + string(key) + [...]string{"", "", "²", "³"}[exponent]
	}
	if dram != claims.KeyCPUTime {
		name += ", DRAM by " + string(dram)
	}
	return afterADay(fmt.Sprintf("%s, %s, BPF", name, lengths[window]), func(c *Config) {
		inWindows(window)(c)
		a := &c.Attribution
		a.Split, a.Key, a.FrequencyExponent, a.Keys = split, key, exponent, map[power.Kind]claims.Key{power.DRAM: dram}
	})
}

var lengths = map[time.Duration]string{0: "10 s", time.Second: "1 s", 100 * time.Millisecond: "100 ms"}

// onCurves reports whether the setting is measured on the load curves: a key other than CPU time changes nothing there, and
// neither does the scope of a single package.
func (s *labSetting) onCurves() bool {
	cfg := s.config()
	return len(cfg.Attribution.weighed(cfg.Zones)) == 0 && cfg.Attribution.scope() == ScopeNode
}

// splitting returns a setting with a static power model in windows of a length.
func splitting(split SplitRule, window time.Duration) labSetting {
	return afterADay(fmt.Sprintf("%s, %s, BPF", split, lengths[window]), func(c *Config) {
		inWindows(window)(c)
		c.Attribution.Split = split
	})
}

// preset returns a setting with a preset in windows of a collection.
func preset(p Preset) labSetting {
	return afterADay(fmt.Sprintf("preset %s, 10 s, BPF", p), func(c *Config) { c.Attribution.Preset = p })
}

// afterADay returns the setting with a day to learn in, if it learns.
func afterADay(name string, configure func(*Config)) labSetting {
	s := labSetting{name: name, source: cpu.KindBPF, configure: configure}
	if cfg := s.config(); cfg.Attribution.learns(cfg.Zones) {
		s.learns = 24 * time.Hour
	}
	return s
}

// config applies the setting to the default configuration.
func (s *labSetting) config() *Config {
	cfg := createDefaultConfig().(*Config)
	s.configure(cfg)
	return cfg
}

// run identifies everything that active energy depends on, so that settings with the same run are measured once. It
// leaves out the idle allocation, which the idle tables measure.
func (s *labSetting) run() string {
	cfg := s.config()
	a := cfg.Attribution
	rules := presets[a.Preset]
	rules.split, rules.idle, rules.among = "", "", ""
	a.Split, a.Preset, a.Idle, a.IdleAmong = a.splitOf(power.Package), "", "", ""
	return fmt.Sprintf("%v %v %v %+v %+v", s.source, s.learns, cfg.SamplingInterval, a, rules)
}

// labIdleRules are the idle allocations, and labIdleScenarios the scenarios in which they differ.
var (
	labIdleRules = []labSetting{
		idling("none", IdleNone, ""), idling("equal, among processes", IdleEqual, AmongProcesses),
		idling("equal, among containers", IdleEqual, AmongContainers), idling("requested", IdleRequested, ""),
		idling("used", IdleUsed, ""),
	}
	labIdleScenarios = []string{"Bursts", "Short-lived containers", "One container on one socket", "Mixed node"}
)

func idling(name string, idle IdleRule, among IdleAmong) labSetting {
	return labSetting{name: name, source: cpu.KindBPF, configure: func(c *Config) {
		c.Attribution.Split, c.Attribution.Idle, c.Attribution.IdleAmong = SplitFixed, idle, among
	}}
}

// inWindows sets the length of the windows. 0 is one per collection, 10 s.
func inWindows(length time.Duration) func(*Config) {
	return func(c *Config) { c.SamplingInterval = length }
}
