// SPDX-License-Identifier: Apache-2.0

package oldconfig_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"golang.org/x/tools/txtar"

	"github.com/energyreceiver/energyreceiver/internal/oldconfig"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// sections returns the sections of energy receivers in a document.
func sections(t *testing.T, document string) map[string]*confmap.Conf {
	t.Helper()
	retrieved, err := confmap.NewRetrievedFromYAML([]byte(document))
	require.NoError(t, err, document)
	conf, err := retrieved.AsConf()
	require.NoError(t, err, document)
	if conf.IsSet("receivers") {
		conf, err = conf.Sub("receivers")
		require.NoError(t, err)
	}
	found := map[string]*confmap.Conf{}
	for key := range conf.ToStringMap() {
		if key == "energy" || strings.HasPrefix(key, "energy/") {
			found[key], err = conf.Sub(key)
			require.NoError(t, err)
		}
	}
	if len(found) == 0 {
		found["energy"] = conf
	}
	return found
}

// load decodes and validates the section of an energy receiver as a collector does.
func load(conf *confmap.Conf) (*energyreceiver.Config, error) {
	cfg := energyreceiver.DefaultConfig()
	if err := conf.Unmarshal(cfg); err != nil {
		return nil, err
	}
	return cfg, confmap.Validate(cfg)
}

// The archive has all examples of the files and pages that were shipped with the former configuration.
func TestFormerExamplesAreRefusedAndConvertToValidOnes(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/examples.txtar")
	require.NoError(t, err)
	require.Greater(t, len(archive.Files), 15)
	for _, file := range archive.Files {
		t.Run(file.Name, func(t *testing.T) {
			old := 0
			for _, conf := range sections(t, string(file.Data)) {
				if oldconfig.Check(conf.ToStringMap()) != nil {
					old++
				}
			}
			assert.Positive(t, old)
			converted, _, err := oldconfig.Convert(file.Data)
			require.NoError(t, err)
			for id, conf := range sections(t, string(converted)) {
				_, err := load(conf)
				assert.NoError(t, err, "%s in\n%s", id, converted)
			}
			again, notes, err := oldconfig.Convert(converted)
			require.NoError(t, err)
			assert.Equal(t, string(converted), string(again))
			assert.Empty(t, notes)
		})
	}
}

func TestTheErrorListsEveryFormerSettingWithItsPlace(t *testing.T) {
	for id, conf := range sections(t, "powercap_path: /mnt/energy\nprocesses: {max: 5}\nattribution: {split: fixed, static_power: {package: 12.5}}\n") {
		_, err := load(conf)
		assert.ErrorContains(t, err, "the configuration contains renamed or removed settings, which `energy convert FILE` converts:\n"+
			"  powercap_path: now meters::powercap::path;\n"+
			"  processes: now series::processes;\n"+
			"  attribution::split: now attribution::static_power, with trained in place of learned;\n"+
			"  attribution::static_power::package: now {model: fixed, power: 12.5}", id)
	}
}

func TestConversions(t *testing.T) {
	for old, want := range map[string]string{
		"meter: model\nmodel: {auto: true}\n":                                                  "meters:\n  use: []\nmodel: auto\n",
		"meter: perf\n":                                                                        "meters:\n  use: [perf]\n",
		"meter: auto\nzones: [package]\n":                                                      "zones: [package]\n",
		"model: {auto: true, idle: none}\n":                                                    "model: {idle: none}\n",
		"model: {idle_power: 10, max_power: 30, shape: linear}\n":                              "model:\n  points:\n    - {utilization: 0, power: 10}\n    - {utilization: 1, power: 30}\n",
		"model: {idle_power: 10, max_power: 30, shape: server}\n":                              "model: {idle_power: 10, max_power: 30}\n",
		"names: {from: [kubelet, containerd, cri-o, docker]}\n":                                "names:\n  paths:\n    podman: \"\"\n",
		"redfish: {username: b, interval: 0s, endpoint: 'https://b', password: c}\n":           "meters:\n  redfish: {username: b, endpoint: 'https://b', password: c}\n",
		"attribution: {split: learned, splits: {dram: minimum}}\n":                             "attribution:\n  static_power: {all: trained, dram: minimum}\n",
		"attribution: {split: learned}\n":                                                      "attribution:\n  static_power: trained\n",
		"attribution: {key: frequency, frequency_exponent: 3}\n":                               "attribution:\n  weight: frequency_cubed\n",
		"attribution: {key: cycles, keys: {dram: memory}}\n":                                   "attribution:\n  weight: {all: cycles, dram: memory}\n",
		"attribution: {preset: accurate, frequency_exponent: 1}\n":                             "window: 100ms\nattribution: {weight: {all: frequency, dram: memory_cpu_time}}\n",
		"attribution: {preset: accurate, frequency_exponent: 0}\n":                             "window: 100ms\n",
		"attribution: {preset: accurate, split: fixed, static_power: {package: 9, dram: 2}}\n": "window: 100ms\nattribution: {static_power: {gpu: utilization, package: {model: fixed, power: 9}, dram: {model: fixed, power: 2}}}\n",
		"attribution: {idle: equal, idle_among: containers}\n":                                 "attribution: {idle: equal_containers}\n",
		"attribution: {preset: kepler_0_9, idle_among: containers}\n":                          "attribution: {preset: kepler_0_9, idle: equal_containers}\n",
		"attribution: {preset: kavanagh, idle_among: processes}\n":                             "attribution: {preset: kavanagh, idle: equal}\n",
		"attribution: {preset: kavanagh}\nzero_points: true\n":                                 "attribution: {preset: kavanagh}\n",
		"attribution: {idle: requested, cpu_weight: linear}\n":                                 "attribution: {idle: requested_linear}\n",
		"attribution: {preset: kubewatt, regression_degree: 3}\n":                              "attribution: {preset: kubewatt, static_power: regression_cubic}\n",
		"# all\nprocesses: # many\n  max: 5 # five\nroot_path: /h\n":                           "series:\n  # all\n  processes: # many\n    max: 5 # five\nroot_path: /h\n",
	} {
		converted, notes, err := oldconfig.Convert([]byte(old))
		require.NoError(t, err, old)
		assert.Equal(t, want, string(converted), old)
		assert.Empty(t, notes, old)
		for _, conf := range sections(t, string(converted)) {
			_, err := load(conf)
			assert.NoError(t, err, want)
		}
	}
}

func TestAliasesAndMergedSettingsAreWrittenOut(t *testing.T) {
	for old, want := range map[string]string{
		"receivers:\n  energy/a: &a {containers: {max: 3}}\n  energy/b: {<<: *a, processes: {max: 4}}\n":                                              "receivers:\n  energy/a: &a {series: {containers: {max: 3}}}\n  energy/b: {series: {processes: {max: 4}, containers: {max: 3}}}\n",
		"x: &x {sampling_interval: 1s, zones: [dram]}\nreceivers:\n  energy: *x # both\n  energy/b: *x\n":                                             "x: &x {sampling_interval: 1s, zones: [dram]}\nreceivers:\n  energy: {window: 1s, zones: [dram]} # both\n  energy/b: {window: 1s, zones: [dram]}\n",
		"x: &x {max: 1}\ny: &y {processes: *x, meter: perf}\nreceivers:\n  energy:\n    meter: ipmi\n    <<: [*y, {pods: *x, processes: {max: 2}}]\n": "x: &x {max: 1}\ny: &y {processes: *x, meter: perf}\nreceivers:\n  energy:\n    meters:\n      use: [ipmi]\n    series:\n      processes: {max: 1}\n      pods: {max: 1}\n",
		"x: &x {weight: cycles}\nreceivers:\n  energy:\n    attribution: *x\n":                                                                        "x: &x {weight: cycles}\nreceivers:\n  energy:\n    attribution: *x\n",
		"x: &x {forget_after: 5m}\nprocessors:\n  emissions: {<<: *x}\n":                                                                              "x: &x {forget_after: 5m}\nprocessors:\n  emissions: {max_staleness: 5m}\n",
	} {
		converted, notes, err := oldconfig.Convert([]byte(old))
		require.NoError(t, err, old)
		assert.Equal(t, want, string(converted), old)
		assert.Empty(t, notes, old)
	}
}

func TestFormerHTTPSectionsKeepDifferentKeys(t *testing.T) {
	const section = "endpoint: http://a, unit: W}"
	converted, notes, err := oldconfig.Convert([]byte("receivers: {energy: {http: [{name: a b, " + section + ", {name: a-b, zone: dram, " + section + ", {zone: platform, " + section + "]}}\n"))
	require.NoError(t, err)
	assert.Equal(t, []string{
		`energy: http::0: the name "a b" cannot be a key: hw.id changes to http:a-b`,
		`energy: http::1: the name "a-b" cannot be a key: hw.id changes to http:a-b-2`,
		`energy: http::2: the name "" cannot be a key: hw.id changes to http:2`,
	}, notes)
	for _, conf := range sections(t, string(converted)) {
		cfg, err := load(conf)
		require.NoError(t, err, "%s", converted)
		assert.Len(t, cfg.Meters.HTTP, 3)
	}
}

func TestEmissionsProcessorsAreConverted(t *testing.T) {
	converted, notes, err := oldconfig.Convert([]byte(`processors:
  emissions/a:
    forget_after: 5m
    intensity: {signal: marginal, prometheus: {query: q, interval: 1m}} # from Prometheus
    price: {value: 0.3, currency: EUR}
`))
	require.NoError(t, err)
	assert.Equal(t, `processors:
  emissions/a:
    max_staleness: 5m
    intensity: {prometheus: {query: q, poll_interval: 1m}, type: marginal} # from Prometheus
`, string(converted))
	assert.Equal(t, []string{
		"emissions/a: price::value: left out: removed: edit deploy/prometheus/price-fixed.yaml",
		"emissions/a: price::currency: left out: removed: the label currency of the rule electricity:price:per_kwh",
	}, notes)
}

func TestWhatChangesItsMeaningIsNoted(t *testing.T) {
	for old, want := range map[string]string{
		"containers: {min_energy: 5}\n":                            "containers::min_energy: left out: only processes have it",
		"meter: powercap\nmodel: auto\n":                           "model: left out: a configuration with one meter had no use for it",
		"attribution: {base_time: 1m}\n":                           "attribution::base_time: left out: it cannot be set any more",
		"attribution: {static_power: {package: 4}}\n":              "attribution::static_power::package: left out: it had no effect",
		"attribution: {state_file: /var/lib/a/learned}\n":          "attribution::state_file: the state is in the directory of the file, under another name: training starts over",
		"attribution: {exclude: {pod_uid: [{regexp: x}]}}\n":       "attribution::exclude::pod_uid::0: left out: write a pattern of attribution::exclude::cgroup, which matches from the root of the path on",
		"http: [{name: a b, endpoint: http://a, unit: W}]\n":       `http::0: the name "a b" cannot be a key: hw.id changes to http:a-b`,
		"model: {auto: true, shape: linear}\n":                     "model::shape: left out: auto has the curve of the CPU",
		"attribution: {exclude: {container_id: [{strict: ab}]}}\n": "attribution::exclude::container_id::0: the pattern of attribution::exclude::cgroup matches any path with the ID: begin it with the path that only the runtime can create",
	} {
		converted, notes, err := oldconfig.Convert([]byte("receivers: {energy/a: " + strings.ReplaceAll("{"+strings.TrimSpace(strings.ReplaceAll(old, "\n", ", "))+"}", ",}", "}") + "}\n"))
		require.NoError(t, err, old)
		assert.Equal(t, []string{"energy/a: " + want}, notes, old)
		for _, conf := range sections(t, string(converted)) {
			_, err := load(conf)
			assert.NoError(t, err, "%s", converted)
		}
	}
}

func TestOneWindowPerCollectionIsNoted(t *testing.T) {
	converted, notes, err := oldconfig.Convert([]byte("sampling_interval: 0s\n"))
	require.NoError(t, err)
	assert.Equal(t, "{}\n", string(converted))
	assert.Equal(t, []string{"energy: sampling_interval: left out: a window of the length of collection_interval makes one window per collection"}, notes)
}

func TestThePresetAccurateIsConverted(t *testing.T) {
	require.ErrorContains(t, oldconfig.Check(map[string]any{"attribution": map[string]any{"preset": "accurate"}}), "attribution::preset: accurate: removed")
	for old, want := range map[string]string{
		"attribution: {preset: accurate}\n":                                                             "window: 100ms\n",
		"{collection_interval: 50ms, attribution: {preset: accurate}}\n":                                "{collection_interval: 50ms}\n",
		"receivers:\n  energy/a: {attribution: &a {preset: accurate}}\n  energy/b: {attribution: *a}\n": "receivers:\n  energy/a: {window: 100ms}\n  energy/b: {window: 100ms}\n",
		"attribution: {split: fixed, static_power: {package: 40}}\n":                                    "attribution:\n  static_power: {gpu: utilization, package: {model: fixed, power: 40}}\n",
	} {
		converted, _, err := oldconfig.Convert([]byte(old))
		require.NoError(t, err, old)
		assert.Equal(t, want, string(converted), old)
	}
}

func TestReceiversAnywhereInADocumentAreConverted(t *testing.T) {
	const old = "config:\n  receivers:\n    otlp: {}\n    energy: {sampling_interval: 1s}\n    energy/b:\n      # often\n      sampling_interval: 2s\n---\nhttp: {}\n"
	converted, notes, err := oldconfig.Convert([]byte(old))
	require.NoError(t, err)
	assert.Empty(t, notes)
	assert.Contains(t, string(converted), "    energy: {window: 1s}\n    energy/b:\n      # often\n      window: 2s\n")
	_, _, err = oldconfig.Convert([]byte("a: [\n"))
	assert.Error(t, err)
}
