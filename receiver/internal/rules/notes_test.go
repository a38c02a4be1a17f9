// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config/configtest"
)

// notes returns the notes on a configuration: warnings, and default rules that are in effect or not.
func notes(t *testing.T, yaml string, m Machine) (warnings []Note, selected, lacking []string) {
	t.Helper()
	_, all := Resolve(configtest.Load(t, config.Default(), yaml), m)
	for _, n := range all {
		switch {
		case n.Warning != "":
			warnings = append(warnings, n)
		case n.Reason != "":
			lacking = append(lacking, n.String())
		default:
			selected = append(selected, n.String())
		}
	}
	return warnings, selected, lacking
}

func TestSettingsWithoutEffectAreWarnedOfOnce(t *testing.T) {
	const certain = "no zone has the static power model trained, base, resting or regression"
	plain := Machine{Undivided: errLacks, Unshared: errLacks, Untimed: errLacks, Inexact: true}
	for settings, want := range map[string][2]string{ // the setting and the reason; none if all settings have an effect
		"collection_interval: 10s":                                                               {},
		"meters: {use: [powercap]}, model: {max_power: 120}":                                     {},
		"meters: {use: [powercap], ipmi: {poll_interval: 1m}}":                                   {"meters::ipmi", "meters::use has no ipmi"},
		"meters: {use: [perf], powercap: {path: /energy}}, attribution: {static_power: minimum}": {"meters::powercap", "meters::use has no powercap"},
		"meters: {use: [powercap], hwmon: {sensors: {a/power1: platform}}}":                      {"meters::hwmon", "meters::use has no hwmon"},
		"meters: {gpu: {poll_interval: 5s}}":                                                     {"meters::gpu::poll_interval", "meters::gpu::extensions is empty"},
		"meters: {gpu: {poll_interval: 5s, extensions: [nvml]}}":                                 {},
		"meters: {ipmi: {poll_interval: 1m}}":                                                    {},
		"series: {processes: {max: 7, group_by: program}}":                                       {"series::processes::max", "series::processes::group_by is program"},
		"series: {processes: {min_energy: 7, group_by: program}}":                                {"series::processes::min_energy", "series::processes::group_by is program"},
		"series: {processes: {max: 7, min_energy: 7}}":                                           {},
		"window: 200ms": {"window", "/proc counts the CPU time of the node in ticks of 10 ms, so windows of 200ms are attributed as windows of 1s"},
		"window: 1s":    {},
		"metrics: {vm.power.uncertainty: {enabled: true}}":                                                            {"metrics::vm.power.uncertainty", certain},
		"metrics: {system.power.uncertainty: {enabled: true}}, attribution: {preset: kepler, static_power: minimum}":  {"metrics::system.power.uncertainty", certain},
		"metrics: {process.power.uncertainty: {enabled: true}}, attribution: {preset: kepler, static_power: trained}": {},
		"attribution: {preset: kepler, static_power: {package: {model: fixed, power: 1}}}":                            {},
		"attribution: {preset: kepler, static_power: {psys: {model: fixed, power: 1}}}":                               {}, // it may stand in for package
		"attribution: {preset: kepler, static_power: {core: {model: fixed, power: 1}}}":                               {"attribution::static_power::core", "the zone is not among zones"},
		"attribution: {preset: kepler, weight: {core: cycles}}":                                                       {"attribution::weight::core", "the zone is not among zones"},
		"attribution: {preset: kepler, smt_weight: 0.6}":                                                              {"attribution::smt_weight", "lacking"},
		"attribution: {preset: kepler, smt_weight: 0.6, weight: memory}":                                              {"attribution::smt_weight", "no zone of cores has the weight cpu_time or frequency"},
		"attribution: {preset: kepler, smt_weight: 1, weight: memory}":                                                {},
		"attribution: {preset: kepler, scope: zone}":                                                                  {"attribution::scope", "lacking"},
		"attribution: {preset: kepler, interrupts: unattributed}":                                                     {"attribution::interrupts", "lacking"},
		"attribution: {preset: kepler, smartwatts: {tdp: 205}}":                                                       {"attribution::smartwatts", "no zone has the weight of the preset smartwatts"},
		"attribution: {preset: smartwatts, smartwatts: {tdp: 205}}":                                                   {},
		"attribution: {preset: kepler, interrupts: shared}":                                                           {},
		"storage: /var/lib/energy":                                                                                    {},
	} {
		if !strings.Contains(settings, "attribution: ") {
			settings += ", attribution: {preset: kepler}"
		}
		warnings, _, _ := notes(t, "{"+settings+"}", plain)
		if want[0] == "" {
			assert.Empty(t, warnings, settings)
		} else {
			assert.Equal(t, []Note{{Warning: "Setting has no effect", Setting: want[0], Reason: want[1]}}, warnings, settings)
		}
	}
	warnings, _, _ := notes(t, "{window: 20ms, cpu_time: bpf, attribution: {preset: kepler, smt_weight: 0.6, scope: zone, interrupts: unattributed}}", Machine{})
	assert.Empty(t, warnings, "an exact source on a machine that supports all rules")
}

func TestTooManyDomainsAreWarnedOfAlsoByDefault(t *testing.T) {
	reason := fmt.Errorf("CPU topology: %w: it has 17", divide.ErrTooManyDomains)
	warnings, _, _ := notes(t, "{}", Machine{Undivided: reason})
	assert.Contains(t, warnings, Note{Warning: "Setting has no effect", Setting: "attribution::scope", Reason: reason.Error()})
}

func TestInsecureAndUnexpectedSettingsAreWarnedOf(t *testing.T) {
	warned := func(yaml string) (settings []string) {
		warnings, _, _ := notes(t, yaml, Machine{})
		for _, n := range warnings {
			settings = append(settings, n.Setting)
		}
		return settings
	}
	assert.Equal(t, []string{"attribution::exclude::executable_name"}, warned(`attribution: {exclude: {executable_name: [{strict: a}]}}`))
	for attribution, want := range map[string][]string{
		"{preset: kepler}": {"attribution::static_power"}, "{static_power: utilization}": {"attribution::static_power"},
		"{preset: kepler, static_power: minimum}": nil, "{}": nil,
	} {
		assert.Equal(t, want, warned("{meters: {powercap: {path: /energy}}, attribution: "+attribution+"}"), attribution)
	}
	assert.Empty(t, warned("attribution: {preset: kepler}"), "the machine's own zones")
}

func TestANoteSaysWhichDefaultRulesAreInEffect(t *testing.T) {
	window, scope, split := "window: 1s", "attribution::scope: zone", "attribution::static_power: trained"
	weight, dram := "attribution::weight: frequency_squared", "attribution::weight::dram: cache_misses"
	smt, interrupts := "attribution::smt_weight: 0.6", "attribution::interrupts: unattributed"
	zones := func(method power.Method, kinds ...power.Kind) (zones []power.Class) {
		for _, kind := range kinds {
			zones = append(zones, power.Class{Zone: kind, Method: method})
		}
		return zones
	}
	sensors := zones(power.Measured, power.Package, power.DRAM)
	const stored = "storage: /energy"
	for name, c := range map[string]struct {
		yaml              string
		machine           Machine
		selected, lacking []string
	}{
		"a machine that has all": {stored, Machine{Zones: sensors}, []string{window, scope, split, weight, smt, interrupts, dram}, nil},
		"one package": {
			stored, Machine{Undivided: errLacks, Zones: sensors},
			[]string{window, split, weight, smt, interrupts, dram}, []string{scope + " (lacking)"},
		},
		"no zone of memory": {
			stored, Machine{Zones: sensors[:1]},
			[]string{window, scope, split, weight, smt, interrupts}, []string{dram + " (no meter reads a zone of memory)"},
		},
		"no clock rates": {
			stored, Machine{Unclocked: errLacks, Zones: sensors}, []string{window, scope, split, smt, interrupts, dram}, []string{weight + " (lacking)"},
		},
		"cores with one thread": {
			stored, Machine{Unshared: errLacks, Zones: sensors}, []string{window, scope, split, weight, interrupts, dram}, []string{smt + " (lacking)"},
		},
		"interrupts are not measured": {
			stored, Machine{Untimed: errLacks, Zones: sensors}, []string{window, scope, split, weight, smt, dram}, []string{interrupts + " (lacking)"},
		},
		"collections as short as windows": {
			"{collection_interval: 1s, storage: /energy}", Machine{Zones: sensors},
			[]string{scope, split, weight, smt, interrupts, dram}, []string{"window: 1s (collection_interval is not longer)"},
		},
		"no storage": {
			"{}", Machine{Zones: sensors}, []string{window, scope, split, weight, smt, interrupts, dram},
			[]string{"storage: not set: static power is trained again after each start"},
		},
		"modeled energy": {
			"{}", Machine{Zones: zones(power.Modeled, power.Package, power.DRAM)}, []string{window, scope, weight, smt, interrupts, dram},
			[]string{split + " (energy is modeled, and the model defines the idle power)"},
		},
		"reported energy beside a GPU": {
			"{}", Machine{Zones: append(zones(power.Reported, power.Package, power.DRAM), zones(power.Measured, power.GPU)...)},
			[]string{window, scope, weight, smt, interrupts, dram},
			[]string{split + " (the hypervisor reports active energy, so no idle energy is subtracted)"},
		},
		"modeled energy whose static power is trained": {
			"attribution: {static_power: trained}", Machine{Zones: zones(power.Modeled, power.Package, power.DRAM)},
			[]string{window, scope, weight, smt, interrupts, dram}, []string{"storage: not set: static power is trained again after each start"},
		},
		"settings beside it": {
			"{window: 50ms, storage: /energy, attribution: {scope: node, static_power: minimum, weight: cpu_time, smt_weight: 1, interrupts: shared}}",
			Machine{Zones: sensors}, nil, nil,
		},
		"a preset": {"attribution: {preset: kavanagh}", Machine{Zones: sensors}, nil, nil},
	} {
		_, selected, lacking := notes(t, c.yaml, c.machine)
		assert.Equal(t, c.selected, selected, name)
		assert.Equal(t, c.lacking, lacking, name)
	}
}
