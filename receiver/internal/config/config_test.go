// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/durationtest"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// load reads a configuration like a collector: the YAML over the defaults, without unknown keys, followed by every
// Validate.
func load(t *testing.T, yaml string) (*Config, error) {
	t.Helper()
	retrieved, err := confmap.NewRetrievedFromYAML([]byte(yaml))
	require.NoError(t, err)
	conf, err := retrieved.AsConf()
	require.NoError(t, err)
	cfg := Default()
	if err := conf.Unmarshal(cfg); err != nil {
		return nil, err
	}
	return cfg, confmap.Validate(cfg)
}

func mustLoad(t *testing.T, yaml string) *Config {
	t.Helper()
	cfg, err := load(t, yaml)
	require.NoError(t, err)
	return cfg
}

func TestTheDefaultsAreValid(t *testing.T) {
	cfg := mustLoad(t, "{}")
	assert.Equal(t, Default(), cfg)
	assert.Equal(t, 10*time.Second, cfg.CollectionInterval)
	assert.Equal(t, "/", cfg.RootPath)
	assert.Equal(t, drivers.Local(), cfg.Meters.Use)
	assert.Equal(t, cpu.Auto, cfg.CPUTime)
	assert.Zero(t, cfg.Window)
	assert.Equal(t, []power.Kind{power.Package, power.DRAM, power.GPU}, cfg.Zones)
	assert.Equal(t, SeriesConfig{
		Processes: ProcessSeriesConfig{Max: 50, MinEnergy: 1, minAge: time.Minute}, Containers: EntitySeriesConfig{Max: 2000}, Pods: EntitySeriesConfig{Max: 1000},
		VMs: EntitySeriesConfig{Max: 500},
	}, cfg.Series)
	assert.True(t, cfg.Model.Get().isAuto())
}

func TestABadFieldIsAnErrorThatNamesIt(t *testing.T) {
	tests := []struct {
		name, yaml string
		want       string
	}{
		{"root_path relative", "root_path: hostfs", `root_path: must be an absolute path, is "hostfs"`},
		{"root_path empty", `root_path: ""`, `root_path: must be an absolute path, is ""`},
		{"meter unknown", "meters: {use: [perf, rapl]}", `meters::use::1: must be one of powercap, perf, `},
		{"meter twice", "meters: {use: [perf, perf]}", `meters::use::1: "perf" is listed twice`},
		{"section of no meter", "meters: {rapl: {}}", `no such meter or setting "rapl": must be one of use, powercap, hwmon, `},
		{"gpu interval too short", "meters: {gpu: {poll_interval: 99ms}}", "meters::gpu::poll_interval: must be from 100ms to 5s, is 99ms"},
		{"gpu interval longer than samples are kept", "meters: {gpu: {poll_interval: 5001ms}}", "meters::gpu::poll_interval: must be from 100ms to 5s, is 5.001s"},
		{"gpu extension twice", "meters: {gpu: {extensions: [nvml, nvml]}}", `meters::gpu::extensions::1: "nvml" is listed twice`},
		{"ipmi interval too short", "meters: {ipmi: {poll_interval: 1s}}", "meters::ipmi::poll_interval: must be at least 5s, is 1s"},
		{"hwmon sensor without a chip", "meters: {hwmon: {sensors: {/power1: platform}}}", "meters::hwmon::sensors::/power1: must be named chip/device/sensor or chip/sensor"},
		{"hwmon chip without a sensor", "meters: {hwmon: {sensors: {ina226: platform}}}", "meters::hwmon::sensors::ina226: must be named chip/device/sensor or chip/sensor"},
		{"hwmon sensor without a zone", "meters: {hwmon: {sensors: {ina226/power1: }}}", `meters::hwmon::sensors::ina226/power1: must be set to one of platform, package, core, uncore, dram, gpu`},
		{"hwmon sensor of what others calculate", "meters: {hwmon: {sensors: {ina226/power1: other}}}", "meters::hwmon::sensors::ina226/power1: must be one of"},
		{"hwmon sensor of a zone that is not named", "meters: {hwmon: {sensors: {ina226/power1: core}}}", `zones: must contain "core", the zone of meters::hwmon::sensors::ina226/power1`},
		{"hwmon sensor twice", "meters: {hwmon: {sensors: {a/b/power1: platform, a/power1: platform}}}",
			`meters::hwmon::sensors::a/power1: the sensor "power1" of the chip "a" is listed twice`},
		{"cpu_time unknown", "cpu_time: perf", `cpu_time: must be one of auto, bpf, clocks, procfs, is "perf"`},
		{"zones empty", "zones: []", "zones: must name at least one of package, core, uncore, dram, psys"},
		{"zone unknown", "zones: [package, cpu]", `zones::1: must be one of package, core, uncore, dram, psys, platform, gpu, other, is "cpu"`},
		{"zone twice", "zones: [package, dram, package]", `zones::2: "package" is listed twice`},
		{"no meter", "{model: none, meters: {use: []}}", "meters::use: must name at least one of powercap, perf, "},
		{"model without the zone that it models", "{zones: [dram], model: {max_power: 1}}", `zones: must contain "package", the zone of the model`},
		{"model of the whole machine without its zone", "model: {zone: platform, max_power: 1}", `zones: must contain "platform", the zone of the model`},
		{"model of a zone that has no curve", "{zones: [dram], model: {zone: dram, max_power: 1}}",
			`model::zone: must be one of package, platform, is "dram"`},
		{"idle_power negative", "model: {idle_power: -1, max_power: 5}", "model::idle_power: must be between 0 and 1e+06 watts, is -1"},
		{"max_power not a number", "model: {idle_power: 1, max_power: .nan}", "model::max_power: must be between 0 and 1e+06 watts, is NaN"},
		{"max_power below idle_power", "model: {idle_power: 40, max_power: 30}", "model::max_power: must be at least idle_power, 40 watts, is 30"},
		{"max_power left out", "model: {idle_power: 40}", "model::max_power: must be more than 0 watts, is 0"},
		{"a model that is not used is checked as well", "{meters: {use: [powercap]}, model: {idle_power: -1, max_power: 5}}",
			"model::idle_power: must be between 0 and 1e+06 watts, is -1"},
		{"no points", "model: {points: []}", "model::max_power: must be more than 0 watts, is 0"},
		{"points out of order", "model: {points: [{utilization: 0.5, power: 1}, {utilization: 0.4, power: 2}]}",
			"model::points::1::utilization: must be above the 0.5 before it, is 0.4"},
		{"points at the same utilization", "model: {points: [{utilization: 0.5, power: 1}, {utilization: 0.5, power: 2}]}",
			"model::points::1::utilization: must be above the 0.5 before it, is 0.5"},
		{"point beyond full utilization", "model: {points: [{utilization: 50, power: 1}]}",
			"model::points::0::utilization: must be between 0 and 1, is 50"},
		{"point with a power that is no number", "model: {points: [{utilization: 0, power: .nan}]}",
			"model::points::0::power: must be between 0 and 1e+06 watts, is NaN"},
		{"points together with idle_power", "model: {idle_power: 1, points: [{utilization: 0, power: 1}]}",
			"model::points: must not be set together with idle_power and max_power"},
		{"points together with max_power", "model: {max_power: 1, points: [{utilization: 0, power: 1}]}",
			"model::points: must not be set together with idle_power and max_power"},
		{"model by a word", "model: automatic", `must be none, auto or a map of settings, is "automatic"`},
		{"model file together with powers", "model: {file: /models, max_power: 120}", "model::max_power: must not be set together with file"},
		{"model file together with idle_power", "model: {file: /models, idle_power: 40}", "model::idle_power: must not be set together with file"},
		{"model file together with points", "model: {file: /models, points: [{utilization: 0, power: 1}]}",
			"model::points: must not be set together with file"},
		{"interrupts unknown", "attribution: {interrupts: none}", `attribution::interrupts: must be one of shared, unattributed, is "none"`},
		{"idle unknown", "model: {idle: all}", `model::idle: must be one of share, none, is "all"`},
		{"idle of a stated curve", "model: {max_power: 120, idle: none}",
			"model::idle: must not be set together with idle_power, max_power or points, which state the idle power"},
		{"memory_power negative", "model: {memory_power: -1}", "model::memory_power: must be between 0 and 100 watts per GiB, is -1"},
		{"memory_power without its zone", "{zones: [package], model: {memory_power: 0.3}}",
			`model::memory_power: must not be set unless zones contains "package" and "dram" and the model's zone is "package"`},
		{"min_energy negative", "series: {processes: {min_energy: -0.1}}", "series::processes::min_energy: must be between 0 and 3.6e+12 joules, is -0.1"},
		{"max negative", "series: {processes: {max: -1}}", "series::processes::max: must not be negative, is -1"},
		{"max of containers negative", "series: {containers: {max: -1}}", "series::containers::max: must not be negative, is -1"},
		{"max of pods negative", "series: {pods: {max: -2}}", "series::pods::max: must not be negative, is -2"},
		{"window of 0", "window: 0s", "window: must be from 10ms to collection_interval, is 0s"},
		{"window too short", "window: 9ms", "window: must be from 10ms to collection_interval, is 9ms"},
		{"window longer than the collection", "{collection_interval: 5s, window: 6s}",
			"window: must be from 10ms to collection_interval, is 6s"},
		{"preset unknown", "attribution: {preset: kwollect}",
			`attribution::preset: must be one of kepler, kepler_0_9, scaphandre, smartwatts, kubewatt, kavanagh, kavanagh_equal, is "kwollect"`},
		{"static power model unknown", "attribution: {static_power: half}",
			`attribution::static_power::all::model: must be one of utilization, fixed, minimum, resting, regression, regression_cubic, base, trained, total, is "half"`},
		{"static power model of a zone unknown", "attribution: {static_power: {dram: half}}", `attribution::static_power::dram::model: must be one of utilization, fixed,`},
		{"static power of no zone", "attribution: {static_power: {cpu: minimum}}", `attribution::static_power: must be one of all, package, core, uncore, dram, psys, platform, gpu, other, is "cpu"`},
		{"static power negative", "attribution: {static_power: {dram: {model: fixed, power: -1}}}", "attribution::static_power::dram::power: must be between 0 and 1e+06 watts, is -1"},
		{"static power without its power", "attribution: {static_power: {dram: fixed}}", "attribution::static_power::dram::power: must be set if model is fixed"},
		{"static power of all zones", "attribution: {static_power: fixed}", "attribution::static_power::all::model: must not be fixed, which needs the power of each zone kind"},
		{"power of a trained model", "attribution: {static_power: {dram: {model: trained, power: 1}}}", "attribution::static_power::dram::power: must not be set unless model is fixed"},
		{"static power as a number", "attribution: {static_power: {dram: [1]}}", "attribution"},
		{"weight unknown", "attribution: {weight: power}",
			`attribution::weight::all: must be one of cpu_time, frequency, frequency_squared, frequency_cubed, cycles, instructions, cache_misses, memory, memory_cpu_time, power_model, is "power"`},
		{"weight of no zone", "attribution: {weight: {gpu: memory}}", `attribution::weight: must be one of all, package, core, uncore, dram, psys, platform, other, is "gpu"`},
		{"three weights", "{zones: [package, core, dram], attribution: {weight: {all: cycles, core: instructions, dram: cache_misses}}}",
			"attribution::weight: may have at most 2 different ones in addition to cpu_time, has package: cycles, core: instructions, dram: cache_misses"},
		{"two exponents", "attribution: {weight: {all: frequency, dram: frequency_cubed}}",
			"attribution::weight: may have at most one of frequency, frequency_squared and frequency_cubed, has package: frequency, dram: frequency_cubed"},
		{"three weights, two of them the default", "{zones: [package, core, dram], attribution: {weight: {core: cycles}}}",
			"attribution::weight: may have at most 2 different ones in addition to cpu_time, has package: frequency_squared (default), core: cycles, dram: cache_misses or memory_cpu_time (default)"},
		{"weights and smt_weight", "{zones: [package, core, dram], attribution: {preset: kepler, smt_weight: 0.6, weight: {core: cycles, dram: memory}}}",
			"attribution::weight: may have at most 2 different ones, cpu_time among them because smt_weight is below 1, has package: cpu_time (default), core: cycles, dram: memory"},
		{"weights and the default smt_weight", "{zones: [package, core, dram], attribution: {weight: {package: cpu_time}}}",
			"attribution::weight: may have at most 2 different ones, cpu_time among them because smt_weight is below 1, has package: cpu_time, core: frequency_squared (default), dram: cache_misses or memory_cpu_time (default)"},
		{"smt_weight too small", "attribution: {smt_weight: 0.4}", "attribution::smt_weight: must be between 0.5 and 1, is 0.4"},
		{"smt_weight too large", "attribution: {smt_weight: 1.2}", "attribution::smt_weight: must be between 0.5 and 1, is 1.2"},
		{"tdp negative", "attribution: {smartwatts: {tdp: -1}}", "attribution::smartwatts::tdp: must be between 0 and 1e+06 watts, is -1"},
		{"cpu_error_threshold 0", "attribution: {smartwatts: {cpu_error_threshold: 0}}",
			"attribution::smartwatts::cpu_error_threshold: must be above 0 and at most 1e+06 watts, is 0"},
		{"dram_error_threshold not a number", "attribution: {smartwatts: {dram_error_threshold: .nan}}",
			"attribution::smartwatts::dram_error_threshold: must be above 0 and at most 1e+06 watts, is NaN"},
		{"base_clock in Hz", "attribution: {smartwatts: {base_clock: 1e8}}", "attribution::smartwatts::base_clock: must be between 25 and 1000 MHz, is 1e+08"},
		{"min_samples 0", "attribution: {smartwatts: {min_samples: 0}}", "attribution::smartwatts::min_samples: must be from 1 to 600, is 0"},
		{"history_window below the default of min_samples", "attribution: {smartwatts: {history_window: 5}}",
			"attribution::smartwatts::history_window: must be from min_samples (10) to 600, is 5"},
		{"all of smartwatts 0", "attribution: {smartwatts: {base_clock: 0, cpu_error_threshold: 0, dram_error_threshold: 0, min_samples: 0, history_window: 0}}",
			"attribution::smartwatts::min_samples: must be from 1 to 600, is 0"},
		{"history_window too long", "attribution: {smartwatts: {history_window: 601}}",
			"attribution::smartwatts::history_window: must be from min_samples (10) to 600, is 601"},
		{"idle unknown", "attribution: {idle: all}", `attribution::idle: must be one of none, equal, equal_containers, requested, requested_linear, used, is "all"`},
		{"namespace with no expression", `attribution: {exclude: {namespace: [{regexp: "("}]}}`, "attribution::exclude::namespace::0"},
		{"exclude with no expression", `attribution: {exclude: {executable_name: [{regexp: "("}]}}`, "attribution::exclude::executable_name::0"},
		{"name source unknown", "names: {paths: {rkt: /var/lib/rkt}}", `names::paths::rkt: must be one of kubelet, containerd, cri-o, podman, docker, is "rkt"`},
		{"path of names relative", "names: {paths: {docker: data}}", `names::paths::docker: must be an absolute path or empty, is "data"`},
		{"vsock without a port", "meters: {vsock: {}}", "meters::vsock::port: must be set to a port between 1 and 4294967294"},
		{"vsock port that means any", "meters: {vsock: {port: 4294967295}}", "meters::vsock::port: must be between 1 and 4294967294, is 4294967295"},
		{"modbus endpoint without a port", "meters: {modbus/a: {endpoint: pdu}}", `meters::modbus/a::endpoint: must be an address host:port, is "pdu"`},
		{"modbus endpoint with port 0", "meters: {modbus/a: {endpoint: pdu:0}}", `meters::modbus/a::endpoint: must be an address host:port, is "pdu:0"`},
		{"modbus unit_id too large", "meters: {modbus/a: {unit_id: 256}}", "meters::modbus/a::unit_id: must be between 0 and 255, is 256"},
		{"modbus register negative", "meters: {modbus/a: {register: -1}}", "meters::modbus/a::register: must be between 0 and 65535, is -1"},
		{"modbus register past the last", "meters: {modbus/a: {type: float32, register: 65535}}", "meters::modbus/a::register: must be between 0 and 65534, is 65535"},
		{"modbus type left out", "meters: {modbus/a: {unit: W}}",
			`meters::modbus/a::type: must be set to one of uint16, int16, uint32, int32, uint64, int64, float32, float64`},
		{"modbus scale of 0", "meters: {modbus/a: {scale: 0}}", "meters::modbus/a::scale: must be above 0 and at most 1e+09, is 0"},
		{"name of a UPS with two words", "meters: {nut/a: {ups: a b}}", "meters::nut/a::ups: must consist of 1 to 64 letters, digits, dots"},
		{"timeout of a UPS 0", "meters: {nut/a: {ups: a, timeout: 0s}}", "meters::nut/a::timeout: must be positive, is 0s"},
		{"collection_interval 0", "collection_interval: 0", `"collection_interval": requires positive value`},
		{"collection_interval too short", "collection_interval: 9999us", "collection_interval: must be at least 10ms, is 9.999ms"},
		{"storage of neither form", "storage: ./state", `storage: must be the absolute path of a directory or the ID of a storage extension, is "./state"`},
		{"timeout negative", "timeout: -1s", `"timeout": requires positive value`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.yaml)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestAllBadFieldsAreNamedAtOnce(t *testing.T) {
	_, err := load(t, "{root_path: x, meters: {use: [y]}, cpu_time: z, zones: [w], series: {processes: {min_energy: -1, max: -1}}, model: {max_power: -1}, collection_interval: 0}")
	for _, field := range []string{"root_path: ", "meters::use::0: ", "cpu_time: ", "zones::0: ", "series::processes::min_energy: ",
		"series::processes::max: ", "model::max_power: ", "collection_interval"} {
		assert.ErrorContains(t, err, field)
	}
}

func TestUnreadableSettingsAreNamedAsTheyAreWritten(t *testing.T) {
	for yaml, want := range map[string]string{
		"interval: 5s":                                       "unknown settings: interval",
		"model: {idling: 40}":                                "model: unknown settings: idling",
		"series: {processes: {limit: 5}, foo: 1}":            "series::processes: unknown settings: limit\nseries: unknown settings: foo",
		"series: 7":                                          "series: must be a map of settings, is a number",
		"model: {points: [{utilization: 0, watts: 1}]}":      "model::points::0: unknown settings: watts",
		"metrics: {process.energie: {enabled: false}}":       "metrics: unknown settings: process.energie",
		"metrics: {process.energy: {on: false}}":             "metrics::process.energy: unknown settings: on",
		"resource_attributes: {pid: {enabled: false}}":       "resource_attributes: unknown settings: pid",
		"resource_attributes: {vm.id: {metrics_include: x}}": "resource_attributes::vm.id::metrics_include: must be a list, is a string",
		"model: {idle_power: forty}":                         "model::idle_power: must be a number",
		"collection_interval: soon":                          "collection_interval: must be a duration such as 10s",
		"zones: {package: true}":                             "zones: must be a list, is a map",
		"meters: [powercap]":                                 "meters: must be a map of settings, is a list",
		"meters: {http/a: {foo: x}}":                         "meters::http/a: unknown settings: foo",
		"attribution: {exclude: {cgroup: [foo]}}":            "attribution::exclude::cgroup::0: must be a map of settings, is a string",
		"attribution: {static_power_model: x}":               "attribution: unknown settings: static_power_model",
	} {
		_, err := load(t, yaml)
		require.Error(t, err, yaml)
		_, text, _ := strings.Cut(err.Error(), "'' ") // of the whole configuration
		assert.Equal(t, want, text, yaml)
	}
}

func TestAnInvalidResourceFilterIsAnError(t *testing.T) {
	for _, list := range []string{"metrics_include", "metrics_exclude"} {
		_, err := load(t, "resource_attributes: {container.id: {"+list+`: [{regexp: "("}]}}`)
		assert.ErrorContains(t, err, "container.id::"+list+"::0", list)
	}
}

func TestSettingsReplaceTheDefaults(t *testing.T) {
	cfg := mustLoad(t, `
collection_interval: 3s
window: 100ms
root_path: /hostfs
meters: {use: [perf, powercap]}
zones: [package]
model:
  points:
    - {utilization: 0, power: 40}
    - {utilization: 0.5, power: 90}
    - {utilization: 1, power: 120}
cpu_time: procfs
series: {processes: {min_energy: 0.25, max: 0}}
metrics: {process.cpu.time: {enabled: true}}
resource_attributes: {process.pid: {enabled: false}}
`)
	assert.Equal(t, 3*time.Second, cfg.CollectionInterval)
	assert.Equal(t, 100*time.Millisecond, cfg.Window)
	assert.Equal(t, "/hostfs", cfg.RootPath)
	assert.Equal(t, []power.Kind{power.Package}, cfg.Zones, "a list replaces the default's, all of it")
	assert.Equal(t, cpu.KindProcfs, cfg.CPUTime)
	assert.Equal(t, units.Joule/4, cfg.Series.Limits()[identity.ProcessEntity].MinEnergy)
	assert.Equal(t, []string{"perf", "powercap"}, cfg.Meters.Use)
	assert.Zero(t, cfg.Series.Processes.Max)
	assert.True(t, cfg.Metrics.ProcessCPUTime.Enabled)
	assert.True(t, cfg.Metrics.ProcessEnergy.Enabled, "the others stay")
	assert.False(t, cfg.ResourceAttributes.ProcessPid.Enabled)
	assert.Equal(t, []ModelPoint{{Power: 40}, {Utilization: 0.5, Power: 90}, {Utilization: 1, Power: 120}}, cfg.Model.Get().Points)
}

func TestAModelIsPresentUnlessItIsNone(t *testing.T) {
	assert.True(t, mustLoad(t, "zones: [gpu]").Model.HasValue(), "a default that estimates nothing is no error")
	assert.False(t, mustLoad(t, "model: none").Model.HasValue())
	require.True(t, mustLoad(t, "model: auto").Model.HasValue())
	cfg := mustLoad(t, "model: {idle_power: 0, max_power: 120}")
	require.True(t, cfg.Model.HasValue())
	assert.InDelta(t, 120, cfg.Model.Get().MaxPower, 0)
	assert.True(t, cfg.Model.Get().IsStated())
}

func TestSeriesThatBeginInAnHourAreLimitedUnlessTheSettingsSayOtherwise(t *testing.T) {
	births := func(settings string) (named []string) {
		limits := mustLoad(t, settings).Series.Limits()
		for entity := range limits {
			if limits[entity].Births > 0 {
				named = append(named, identity.Entity(entity).String())
			}
		}
		return named
	}
	assert.Equal(t, []string{"process", "program", "container", "k8s.pod"}, births("{}"))
	assert.Equal(t, []string{"program"}, births("series: {processes: {group_by: pid}, containers: {max: 0}, pods: {max: 0}}"))
}

func TestGroupsHaveTheNamesThatAreReported(t *testing.T) {
	for settings, want := range map[string]ledger.GroupNames{
		"{}": {},
		"resource_attributes: {k8s.namespace.name: {enabled: false}}":   {Namespace: true},
		"resource_attributes: {k8s.container.name: {enabled: false}}":   {KubernetesContainer: true},
		"resource_attributes: {container.image.name: {enabled: false}}": {Image: true},
	} {
		c := mustLoad(t, settings)
		assert.Equal(t, want, c.HiddenNames(), settings)
		assert.Equal(t, want == ledger.GroupNames{}, c.SettingsOfTotals() == mustLoad(t, "{}").SettingsOfTotals(), settings)
	}
}

func TestThresholdsAreRoundedToTheMicrojoule(t *testing.T) {
	for joules, want := range map[float64]units.Energy{0: 0, 1: 1_000_000, 1e-6: 1, 0.1: 100_000, maxMinEnergy: 3_600_000_000_000_000_000} {
		s := SeriesConfig{Processes: ProcessSeriesConfig{MinEnergy: joules}}
		assert.Equal(t, want, s.Limits()[identity.ProcessEntity].MinEnergy, joules)
	}
	cfg := mustLoad(t, "{}")
	cfg.Series.Processes.MinEnergy = math.Nextafter(maxMinEnergy, math.Inf(1))
	assert.ErrorContains(t, cfg.Validate(), "series::processes::min_energy")
}

func TestValidationDoesNotDependOnTheMachine(t *testing.T) {
	mustLoad(t, "root_path: /no/such/directory")
}

func TestEveryDurationNeedsAUnit(t *testing.T) {
	keys := durationtest.NeedUnits(t, func() any { return Default() })
	for _, key := range []string{
		"collection_interval", "initial_delay", "timeout", "window", "meters::gpu::poll_interval", "meters::ipmi::poll_interval",
		"meters::redfish::poll_interval", "meters::redfish::timeout", "meters::http/NAME::poll_interval", "meters::http/NAME::timeout",
	} {
		assert.Contains(t, keys, key)
	}
}

func TestAllDurationsWithoutAUnitAreNamedAtOnce(t *testing.T) {
	_, err := load(t, "{collection_interval: 10, meters: {http/a: {poll_interval: 1s}, http/b: {poll_interval: 2}, redfish: {timeout: 3}}, windows: 1s}")
	require.Error(t, err)
	for _, want := range []string{
		"collection_interval: 10 has no unit; write 10s", "meters::http/b::poll_interval: 2 has no unit; write 2s",
		"meters::redfish::timeout: 3 has no unit; write 3s",
	} {
		assert.ErrorContains(t, err, want)
	}
	_, err = load(t, "{collection_interval: 10s, windows: 1s}")
	assert.ErrorContains(t, err, "unknown settings: windows")
}

func TestKepler09HasTheZoneOtherByDefault(t *testing.T) {
	usual := []power.Kind{power.Package, power.DRAM, power.GPU}
	for yaml, want := range map[string][]power.Kind{
		"{}": usual, "attribution: {preset: kepler}": usual, "attribution: {preset: kepler_0_9}": append(slices.Clone(usual), power.Other),
		"{zones: [package], attribution: {preset: kepler_0_9}}": {power.Package},
	} {
		cfg := mustLoad(t, yaml)
		assert.Equal(t, want, cfg.Zones, yaml)
		assert.Equal(t, slices.Contains(want, power.Other), cfg.PresetOther, yaml)
	}
}

func TestEveryPresetHasAStaticPowerModel(t *testing.T) {
	for preset := range presets {
		cfg := AttributionConfig{Preset: preset}
		assert.Contains(t, StaticModelNames, cfg.StaticModelOf(power.Package), preset)
	}
}
