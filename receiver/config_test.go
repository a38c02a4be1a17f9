// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"

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
	cfg := NewFactory().CreateDefaultConfig().(*Config)
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
	assert.Equal(t, NewFactory().CreateDefaultConfig(), cfg)
	assert.Equal(t, 10*time.Second, cfg.CollectionInterval)
	assert.Equal(t, "/", cfg.RootPath)
	assert.Equal(t, MeterAuto, cfg.Meter)
	assert.Equal(t, cpu.Auto, cfg.CPUTime)
	assert.Zero(t, cfg.SamplingInterval)
	assert.Equal(t, []power.Kind{power.Package, power.DRAM, power.GPU}, cfg.Zones)
	assert.Equal(t, ProcessesConfig{SeriesConfig: SeriesConfig{MinEnergy: 1, Max: 50}}, cfg.Processes)
	assert.Equal(t, SeriesConfig{Max: 2000}, cfg.Containers)
	assert.Equal(t, SeriesConfig{Max: 1000}, cfg.Pods)
	assert.Equal(t, SeriesConfig{Max: 500}, cfg.VMs)
	assert.False(t, cfg.Model.HasValue(), "nothing is modeled unless configured")
}

func TestABadFieldIsAnErrorThatNamesIt(t *testing.T) {
	tests := []struct {
		name, yaml string
		want       string
	}{
		{"root_path relative", "root_path: hostfs", `root_path: must be an absolute path, is "hostfs"`},
		{"root_path empty", `root_path: ""`, `root_path: must be an absolute path, is ""`},
		{"meter unknown", "meter: rapl", `meter: must be one of auto, powercap, perf, cray, hwmon, ipmi, model, is "rapl"`},
		{"meter in capitals", "meter: Auto", `meter: must be one of auto, powercap, perf, cray, hwmon, ipmi, model, is "Auto"`},
		{"meter empty", `meter: ""`, `meter: must be one of auto, powercap, perf, cray, hwmon, ipmi, model, is ""`},
		{"gpu interval too short", "gpu: {interval: 99ms}", "gpu::interval: must be from 100ms to 5s, is 99ms"},
		{"gpu interval longer than samples are kept", "gpu: {interval: 5001ms}", "gpu::interval: must be from 100ms to 5s, is 5.001s"},
		{"ipmi interval too short", "ipmi: {interval: 1s}", "ipmi::interval: must be at least 5s, is 1s"},
		{"ipmi interval negative", "ipmi: {interval: -5s}", "ipmi::interval: must be at least 5s, is -5s"},
		{"hwmon sensor without a chip", "hwmon: {sensors: [{sensor: power1, zone: platform}]}", "hwmon::sensors::0::chip: must not be empty"},
		{"hwmon chip without a sensor", "hwmon: {sensors: [{chip: ina226, zone: platform}]}", "hwmon::sensors::0::sensor: must not be empty"},
		{"hwmon sensor without a zone", "hwmon: {sensors: [{chip: ina226, sensor: power1}]}", `hwmon::sensors::0::zone: must be one of platform, package, core, uncore, dram, gpu, is ""`},
		{"hwmon sensor of what others calculate", "hwmon: {sensors: [{chip: ina226, sensor: power1, zone: other}]}", "hwmon::sensors::0::zone: must be one of"},
		{"hwmon sensor of a zone that is not named", "hwmon: {sensors: [{chip: ina226, sensor: power1, zone: core}]}", `zones: must name "core", the zone of hwmon::sensors::0`},
		{"hwmon sensor twice", "hwmon: {sensors: [{chip: a, device: b, sensor: power1, zone: platform}, {chip: a, sensor: power1, zone: platform}]}",
			`hwmon::sensors::1: the sensor "power1" of the chip "a" is named twice`},
		{"cpu_time unknown", "cpu_time: perf", `cpu_time: must be one of auto, bpf, procfs, is "perf"`},
		{"zones empty", "zones: []", "zones: must name at least one of package, core, uncore, dram, psys"},
		{"zone unknown", "zones: [package, cpu]", `zones::1: must be one of package, core, uncore, dram, psys, platform, gpu, other, is "cpu"`},
		{"zone twice", "zones: [package, dram, package]", `zones::2: "package" is named twice`},
		{"meter model without a model", "meter: model", `model: must be set when meter is "model"`},
		{"meter model with an empty model", "{meter: model, model: {}}", "model: max_power: must be more than 0 watts, is 0; the alternatives are auto, file and points"},
		{"model without the zone that it models", "{zones: [dram], model: {max_power: 1}}",
			`zones: must name "package", the zone that the model stands in for`},
		{"model of the whole machine without its zone", "model: {zone: platform, max_power: 1}",
			`zones: must name "platform", the zone that the model stands in for`},
		{"model of a zone that has no curve", "{zones: [dram], model: {zone: dram, max_power: 1}}",
			`model: zone: must be one of package, platform, is "dram"`},
		{"idle_power negative", "model: {idle_power: -1, max_power: 5}", "model: idle_power: must be between 0 and 1e+06 watts, is -1"},
		{"idle_power not a number", "model: {idle_power: .nan, max_power: 5}", "model: idle_power: must be between 0 and 1e+06 watts, is NaN"},
		{"idle_power infinite", "model: {idle_power: .inf, max_power: 5}", "model: idle_power: must be between 0 and 1e+06 watts, is +Inf"},
		{"max_power negative", "model: {idle_power: 0, max_power: -5}", "model: max_power: must be between 0 and 1e+06 watts, is -5"},
		{"max_power not a number", "model: {idle_power: 1, max_power: .nan}", "model: max_power: must be between 0 and 1e+06 watts, is NaN"},
		{"max_power infinite", "model: {idle_power: 1, max_power: .inf}", "model: max_power: must be between 0 and 1e+06 watts, is +Inf"},
		{"max_power of no machine", "model: {idle_power: 1, max_power: 1e7}", "model: max_power: must be between 0 and 1e+06 watts, is 1e+07"},
		{"max_power below idle_power", "model: {idle_power: 40, max_power: 30}", "model: max_power: must be at least idle_power, 40 watts, is 30"},
		{"max_power left out", "model: {idle_power: 40}", "model: max_power: must be more than 0 watts, is 0; the alternatives are auto, file and points"},
		{"a model that is not used is checked as well", "{meter: powercap, model: {idle_power: -1, max_power: 5}}",
			"model: idle_power: must be between 0 and 1e+06 watts, is -1"},
		{"no points", "model: {points: []}", "model: max_power: must be more than 0 watts, is 0; the alternatives are auto, file and points"},
		{"points out of order", "model: {points: [{utilization: 0.5, power: 1}, {utilization: 0.4, power: 2}]}",
			"model: points::1::utilization: must be above the 0.5 before it, is 0.4"},
		{"points at the same utilization", "model: {points: [{utilization: 0.5, power: 1}, {utilization: 0.5, power: 2}]}",
			"model: points::1::utilization: must be above the 0.5 before it, is 0.5"},
		{"point beyond full utilization", "model: {points: [{utilization: 50, power: 1}]}",
			"model: points::0::utilization: must be between 0 and 1, is 50"},
		{"point at a utilization that is no number", "model: {points: [{utilization: .nan, power: 1}]}",
			"model: points::0::utilization: must be between 0 and 1, is NaN"},
		{"point with a power that is no number", "model: {points: [{utilization: 0, power: .nan}]}",
			"model: points::0::power: must be between 0 and 1e+06 watts, is NaN"},
		{"point with a negative power", "model: {points: [{utilization: 0, power: -3}]}",
			"model: points::0::power: must be between 0 and 1e+06 watts, is -3"},
		{"points together with idle_power", "model: {idle_power: 1, points: [{utilization: 0, power: 1}]}",
			"model: points: must not be set together with idle_power and max_power"},
		{"a shape that there is not", "model: {max_power: 1, shape: round}", `model: shape: must be one of server, linear, intel-skylake, `},
		{"a shape of points", "model: {shape: server, points: [{utilization: 0, power: 1}]}", "model: shape: must not be set together with file or points"},
		{"points together with max_power", "model: {max_power: 1, points: [{utilization: 0, power: 1}]}",
			"model: points: must not be set together with idle_power and max_power"},
		{"model by a word", "model: automatic", `must be "auto" or a map of settings, is "automatic"`},
		{"model auto together with a file", "model: {auto: true, file: /models}", "model: file: must not be set together with auto"},
		{"model auto together with powers", "model: {auto: true, max_power: 120}", "model: max_power: must not be set together with auto or file"},
		{"model auto together with idle_power", "model: {auto: true, idle_power: 40}", "model: idle_power: must not be set together with auto or file"},
		{"model file together with points", "model: {file: /models, points: [{utilization: 0, power: 1}]}",
			"model: points: must not be set together with auto or file"},
		{"interrupts unknown", "attribution: {interrupts: none}", `attribution::interrupts: must be one of shared, unattributed, is "none"`},
		{"idle unknown", "model: {auto: true, idle: all}", `model: idle: must be one of share, none, is "all"`},
		{"idle of a stated curve", "model: {max_power: 120, idle: none}",
			"model: idle: must not be set without auto or file: the configuration states the idle power"},
		{"shape of a trained model", "model: {file: /models, shape: linear}", "model: shape: must not be set together with file or points"},
		{"memory_power negative", "model: {auto: true, memory_power: -1}", "model: memory_power: must be between 0 and 100 watts per GiB, is -1"},
		{"memory_power not a number", "model: {auto: true, memory_power: .nan}", "model: memory_power: must be between 0 and 100 watts per GiB, is NaN"},
		{"memory_power without its zone", "{zones: [package], model: {auto: true, memory_power: 0.3}}",
			`model::memory_power: must not be set unless zones names "dram" and the model's zone is "package"`},
		{"min_energy negative", "processes: {min_energy: -0.1}", "processes::min_energy: must be between 0 and 3.6e+12 joules, is -0.1"},
		{"min_energy not a number", "processes: {min_energy: .nan}", "processes::min_energy: must be between 0 and 3.6e+12 joules, is NaN"},
		{"min_energy infinite", "processes: {min_energy: .inf}", "processes::min_energy: must be between 0 and 3.6e+12 joules, is +Inf"},
		{"max negative", "processes: {max: -1}", "processes::max: must not be negative, is -1"},
		{"max of containers negative", "containers: {max: -1}", "containers::max: must not be negative, is -1"},
		{"max of pods negative", "pods: {max: -2}", "pods::max: must not be negative, is -2"},
		{"min_energy of VMs negative", "vms: {min_energy: -1}", "vms::min_energy: must be between 0 and 3.6e+12 joules, is -1"},
		{"sampling_interval negative", "sampling_interval: -1s", "sampling_interval: must be 0 or from 10ms to collection_interval, is -1s"},
		{"sampling_interval too short", "sampling_interval: 9ms", "sampling_interval: must be 0 or from 10ms to collection_interval, is 9ms"},
		{"sampling_interval longer than the collection", "{collection_interval: 5s, sampling_interval: 6s}",
			"sampling_interval: must be 0 or from 10ms to collection_interval, is 6s"},
		{"preset unknown", "attribution: {preset: kwollect}",
			`attribution::preset: must be one of accurate, kepler, kepler_0_9, scaphandre, smartwatts, kubewatt, kavanagh, is "kwollect"`},
		{"split unknown", "attribution: {split: half}",
			`attribution::split: must be one of utilization, fixed, minimum, resting, regression, base, learned, is "half"`},
		{"split of a zone unknown", "attribution: {splits: {dram: half}}", `attribution::splits::dram: must be one of utilization, fixed,`},
		{"split of no zone", "attribution: {splits: {cpu: fixed}}", `attribution::splits: must be one of package, core, uncore, dram, psys, platform, gpu, other, is "cpu"`},
		{"static_power of no zone", "attribution: {static_power: {cpu: 1}}",
			`attribution::static_power: must be one of package, core, uncore, dram, psys, platform, gpu, other, is "cpu"`},
		{"static_power negative", "attribution: {static_power: {dram: -1}}", "attribution::static_power::dram: must be between 0 and 1e+06 watts, is -1"},
		{"static_power not a number", "attribution: {static_power: {dram: .nan}}", "attribution::static_power::dram: must be between 0 and 1e+06 watts, is NaN"},
		{"static_power left out", "attribution: {split: fixed, static_power: {package: 3}}",
			`attribution::static_power::dram: must be set when the split of the zone is "fixed"`},
		{"rest_utilization 0", "attribution: {rest_utilization: 0}", "attribution::rest_utilization: must be above 0 and at most 1, is 0"},
		{"rest_utilization in percent", "attribution: {rest_utilization: 5}", "attribution::rest_utilization: must be above 0 and at most 1, is 5"},
		{"base_time 0", "attribution: {base_time: 0}", "attribution::base_time: must be positive, is 0s"},
		{"regression_degree 2", "attribution: {regression_degree: 2}", "attribution::regression_degree: must be 1 or 3, is 2"},
		{"regression_samples 0", "attribution: {regression_samples: 0}", "attribution::regression_samples: must be between 1 and 1000, is 0"},
		{"key unknown", "attribution: {key: power}",
			`attribution::key: must be one of cpu_time, frequency, cycles, instructions, cache_misses, memory, memory_cpu_time, is "power"`},
		{"key of a zone unknown", "attribution: {keys: {dram: power}}", `attribution::keys::dram: must be one of cpu_time, frequency,`},
		{"key of no zone", "attribution: {keys: {gpu: memory}}", `attribution::keys: must be one of package, core, uncore, dram, psys, platform, other, is "gpu"`},
		{"three keys", "{zones: [package, core, dram], attribution: {key: cycles, keys: {core: instructions, dram: cache_misses}}}",
			"attribution::keys: may have at most 2 different ones beside cpu_time, has cycles, instructions, cache_misses"},
		{"frequency_exponent negative", "attribution: {frequency_exponent: -1}", "attribution::frequency_exponent: must be 1, 2 or 3, is -1"},
		{"frequency_exponent 4", "attribution: {frequency_exponent: 4}", "attribution::frequency_exponent: must be 1, 2 or 3, is 4"},
		{"three keys, two of the preset", "{zones: [package, core, dram], attribution: {preset: accurate, keys: {core: cycles}}}",
			"attribution::keys: may have at most 2 different ones beside cpu_time, has frequency, cycles, memory_cpu_time"},
		{"keys and smt_weight", "{zones: [package, core, dram], attribution: {smt_weight: 0.6, keys: {core: cycles, dram: memory}}}",
			"attribution::keys: may have at most 2 different ones, cpu_time among them because attribution::smt_weight is below 1, has cpu_time, cycles, memory"},
		{"keys and the preset's smt_weight", "{zones: [package, core, dram], attribution: {preset: accurate, keys: {package: cpu_time}}}",
			"attribution::keys: may have at most 2 different ones, cpu_time among them because attribution::smt_weight is below 1 by the preset, has cpu_time, frequency, memory_cpu_time"},
		{"smt_weight too small", "attribution: {smt_weight: 0.4}", "attribution::smt_weight: must be between 0.5 and 1, is 0.4"},
		{"smt_weight too large", "attribution: {smt_weight: 1.2}", "attribution::smt_weight: must be between 0.5 and 1, is 1.2"},
		{"smt_weight not a number", "attribution: {smt_weight: .nan}", "attribution::smt_weight: must be between 0.5 and 1, is NaN"},
		{"memory_size unknown", "attribution: {memory_size: virtual}", `attribution::memory_size: must be one of resident, cgroup, is "virtual"`},
		{"idle unknown", "attribution: {idle: all}", `attribution::idle: must be one of none, equal, requested, used, is "all"`},
		{"idle_among unknown", "attribution: {idle_among: pods}", `attribution::idle_among: must be one of processes, containers, is "pods"`},
		{"cpu_weight unknown", "attribution: {cpu_weight: new}", `attribution::cpu_weight: must be one of linear, quadratic, is "new"`},
		{"namespace with no expression", `attribution: {exclude: {namespace: [{regexp: "("}]}}`, "attribution::exclude::namespace::0"},
		{"exclude with no expression", `attribution: {exclude: {executable_name: [{regexp: "("}]}}`, "attribution::exclude::executable_name::0"},
		{"guests without a way to tell them", "guests: {}", "guests: path: must be set where vsock_port is not"},
		{"path of guests relative", "guests: {path: guests}", `guests: path: must be an absolute path, is "guests"`},
		{"vsock_port of guests negative", "guests: {vsock_port: -1}", "guests: vsock_port: must be between 0 and 4294967294, is -1"},
		{"vsock_port of guests that means any", "guests: {vsock_port: 4294967295}",
			"guests: vsock_port: must be between 0 and 4294967294, is 4294967295"},
		{"hypervisor without a port", "hypervisor: {}", "hypervisor: vsock_port: must be between 1 and 4294967294, is 0"},
		{"port of the hypervisor negative", "hypervisor: {vsock_port: -1}", "hypervisor: vsock_port: must be between 1 and 4294967294, is -1"},
		{"port of the hypervisor that means any", "hypervisor: {vsock_port: 4294967295}",
			"hypervisor: vsock_port: must be between 1 and 4294967294, is 4294967295"},
		{"collection_interval 0", "collection_interval: 0", `"collection_interval": requires positive value`},
		{"collection_interval negative", "collection_interval: -1s", `"collection_interval": requires positive value`},
		{"collection_interval too short", "collection_interval: 9999us", "collection_interval: must be at least 10ms, is 9.999ms"},
		{"initial_delay negative", "initial_delay: -1s", "initial_delay: must not be negative, is -1s"},
		{"storage of neither form", "storage: ./state", `storage: must be the absolute path of a directory or the ID of a storage extension, is "./state"`},
		{"the removed state_file", "attribution: {state_file: /var/lib/learned}", "for example storage: /var/lib/otelcol-energy"},
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
	_, err := load(t, "{root_path: x, meter: y, cpu_time: z, zones: [w], processes: {min_energy: -1, max: -1}, model: {max_power: -1}, collection_interval: 0}")
	for _, field := range []string{"root_path: ", "meter: ", "cpu_time: ", "zones::0: ", "processes::min_energy: ",
		"processes::max: ", "model: max_power: ", "collection_interval"} {
		assert.ErrorContains(t, err, field)
	}
}

func TestAllBadFieldsOfAModelAreNamedAtOnce(t *testing.T) {
	_, err := load(t, "model: {idle_power: -1, max_power: .nan}")
	for _, field := range []string{"idle_power: ", "max_power: "} {
		assert.ErrorContains(t, err, field)
	}
	_, err = load(t, "model: {idle_power: -1, points: [{utilization: 2, power: -1}, {utilization: 0.5, power: 1}, {utilization: 0.5, power: .inf}]}")
	for _, field := range []string{"idle_power: ", "points: ", "points::0::utilization: ", "points::0::power: ", "points::1::utilization: ",
		"points::2::utilization: ", "points::2::power: "} {
		assert.ErrorContains(t, err, field)
	}
}

func TestUnknownSettingsAreRejected(t *testing.T) {
	for yaml, want := range map[string]string{
		"interval: 5s":                                       "invalid keys: interval",
		"model: {idling: 40}":                                "invalid keys: idling",
		"processes: {limit: 5}":                              "invalid keys: limit",
		"model: {points: [{utilization: 0, watts: 1}]}":      "invalid keys: watts",
		"metrics: {process.energie: {enabled: false}}":       "invalid keys: process.energie",
		"metrics: {process.energy: {on: false}}":             "invalid keys: on",
		"resource_attributes: {pid: {enabled: false}}":       "invalid keys: pid",
		"processes: {max: many}":                             "'processes.max'",
		"model: {idle_power: forty}":                         "'idle_power'",
		"collection_interval: soon":                          "'collection_interval'",
		"zones: {package: true}":                             "'zones'",
		"resource_attributes: {vm.id: {metrics_include: x}}": "'metrics_include'",
	} {
		_, err := load(t, yaml)
		assert.ErrorContains(t, err, want, yaml)
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
sampling_interval: 100ms
root_path: /hostfs
meter: auto
zones: [package]
model:
  points:
    - {utilization: 0, power: 40}
    - {utilization: 0.5, power: 90}
    - {utilization: 1, power: 120}
cpu_time: procfs
processes: {min_energy: 0.25, max: 0}
metrics: {process.cpu.time: {enabled: true}}
resource_attributes: {process.pid: {enabled: false}}
`)
	assert.Equal(t, 3*time.Second, cfg.CollectionInterval)
	assert.Equal(t, 100*time.Millisecond, cfg.SamplingInterval)
	assert.Equal(t, "/hostfs", cfg.RootPath)
	assert.Equal(t, []power.Kind{power.Package}, cfg.Zones, "a list replaces the default's, all of it")
	assert.Equal(t, cpu.KindProcfs, cfg.CPUTime)
	assert.Equal(t, units.Joule/4, cfg.Processes.limit().MinEnergy)
	assert.Zero(t, cfg.Processes.Max)
	assert.True(t, cfg.Metrics.ProcessCPUTime.Enabled)
	assert.True(t, cfg.Metrics.ProcessEnergy.Enabled, "the others stay")
	assert.False(t, cfg.ResourceAttributes.ProcessPid.Enabled)
	curve, err := cfg.Model.Get().stated()
	require.NoError(t, err)
	assert.InDelta(t, 90, curve.Curve.Watts(0.5), 1e-9)
}

func TestAModelIsPresentOnlyWhereItIsWritten(t *testing.T) {
	assert.False(t, mustLoad(t, "meter: auto").Model.HasValue())
	assert.False(t, mustLoad(t, "model:").Model.HasValue(), "a key without a value")
	cfg := mustLoad(t, "model: {idle_power: 0, max_power: 120, shape: linear}")
	require.True(t, cfg.Model.HasValue())
	curve, err := cfg.Model.Get().stated()
	require.NoError(t, err)
	assert.InDelta(t, 30, curve.Curve.Watts(0.25), 1e-9)
}

func TestThresholdsAreRoundedToTheMicrojoule(t *testing.T) {
	for joules, want := range map[float64]units.Energy{0: 0, 1: 1_000_000, 1e-6: 1, 0.1: 100_000, maxMinEnergy: 3_600_000_000_000_000_000} {
		p := SeriesConfig{MinEnergy: joules}
		assert.Equal(t, want, p.limit().MinEnergy, joules)
	}
	cfg := mustLoad(t, "{}")
	cfg.Processes.MinEnergy = math.Nextafter(maxMinEnergy, math.Inf(1))
	assert.ErrorContains(t, cfg.Validate(), "processes::min_energy")
}

func TestValidationDoesNotDependOnTheMachine(t *testing.T) {
	mustLoad(t, "root_path: /no/such/directory")
}

func TestEveryDurationNeedsAUnit(t *testing.T) {
	keys := durationtest.NeedUnits(t, func() any { return createDefaultConfig() })
	for _, key := range []string{
		"collection_interval", "initial_delay", "timeout", "sampling_interval", "attribution::base_time", "gpu::interval", "ipmi::interval",
		"http::0::interval", "http::0::timeout", "redfish::interval", "redfish::timeout",
	} {
		assert.Contains(t, keys, key)
	}
}

func TestAllDurationsWithoutAUnitAreNamedAtOnce(t *testing.T) {
	_, err := load(t, "{collection_interval: 10, http: [{name: a, interval: 1s}, {name: b, interval: 2}], redfish: {timeout: 3}, sampling_intervall: 1s}")
	require.Error(t, err)
	for _, want := range []string{
		"collection_interval: 10 has no unit; write 10s", "http::1::interval: 2 has no unit; write 2s", "redfish::timeout: 3 has no unit; write 3s",
	} {
		assert.ErrorContains(t, err, want)
	}
	_, err = load(t, "{collection_interval: 10s, sampling_intervall: 1s}")
	assert.ErrorContains(t, err, "invalid keys: sampling_intervall")
}
