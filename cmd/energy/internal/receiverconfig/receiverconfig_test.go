// SPDX-License-Identifier: Apache-2.0

package receiverconfig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// write returns the path of a file.
func write(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

func TestTheReceiversConfigurationIsFound(t *testing.T) {
	for name, c := range map[string]struct{ content, id string }{
		"a collector's":        {"receivers: {otlp: {}, energy: {zones: [dram]}}\nservice: {}\n", ""},
		"a collector's, named": {"receivers: {energy/host: {zones: [dram]}}\n", ""},
		"one of several":       {"receivers: {energy/host: {zones: [dram]}, energy: {}}\n", "energy/host"},
		"the section":          {"zones: [dram]\n", ""},
		"the section, named":   {"energy: {zones: [dram]}\n", ""},
		"the environment's":    {"zones: [\"${env:RECEIVERCONFIG_ZONE}\"]\n", ""},
		"the default scheme's": {"zones: [\"${RECEIVERCONFIG_ZONE}\"]\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("RECEIVERCONFIG_ZONE", "dram")
			cfg, without, err := Load(t.Context(), write(t, c.content), c.id)
			require.NoError(t, err)
			assert.Empty(t, without)
			assert.Equal(t, []power.Kind{power.DRAM}, cfg.Zones)
			assert.Equal(t, energyreceiver.DefaultConfig().RootPath, cfg.RootPath, "the rest are the defaults")
		})
	}
}

func TestAConfigurationThatCannotBeTaken(t *testing.T) {
	t.Setenv("RECEIVERCONFIG_INTERVAL", "20")
	for want, c := range map[string]struct{ content, id string }{
		"there is no energy receiver":       {"receivers: {otlp: {}}\n", ""},
		"name one of energy/a, energy/b":    {"receivers: {energy/a: {}, energy/b: {}}\n", ""},
		`there is no receiver "energy/c"`:   {"receivers: {energy/a: {}}\n", "energy/c"},
		"zones: must name at least one of":  {"zones: []\n", ""},
		": unknown settings: nonsense":      {"nonsense: 1\n", ""},
		": meters::gpu: unknown settings: ": {"meters: {gpu: {nonsense: 1}}\n", ""},
		": line 1: did not find":            {"zones: [dram\n", ""},
		"root_path: stat /no/such: ":        {"root_path: /no/such\n", ""},
		"no unit; write 20s":                {"collection_interval: ${env:RECEIVERCONFIG_INTERVAL}\n", ""},
		"cannot be used as a Conf":          {"- 1\n", ""},
		`scheme "vault" is not supported`:   {"zones: [\"${vault:x}\"]\n", ""},
	} {
		t.Run(want, func(t *testing.T) {
			_, _, err := Load(t.Context(), write(t, c.content), c.id)
			require.ErrorContains(t, err, want)
			assert.ErrorContains(t, err, "config.yaml: ")
		})
	}
	_, _, err := Load(t.Context(), "/no/such/file", "")
	require.EqualError(t, err, "/no/such/file: no such file or directory")
}

func TestWhatNeedsAnExtensionIsLeftOut(t *testing.T) {
	cfg, without, err := Load(t.Context(), write(t, "meters: {gpu: {extensions: [nvml]}}\nstorage: file_storage\n"), "")
	require.NoError(t, err)
	assert.Equal(t, []string{"meters::gpu::extensions", "storage"}, without)
	assert.Empty(t, cfg.Meters.GPU.Extensions)
	assert.Empty(t, cfg.Storage)
}

func TestADirectoryOfStatesBecomesTheReceiversFile(t *testing.T) {
	for content, want := range map[string]string{
		"storage: /states\n":                     "/states/energy.state",
		"receivers: {energy/a: {storage: /a}}\n": "/a/energy%2Fa.state",
	} {
		cfg, without, err := Load(t.Context(), write(t, content), "")
		require.NoError(t, err)
		assert.Empty(t, without)
		assert.Equal(t, want, cfg.Storage)
	}
}

func TestShortFormsOfAModel(t *testing.T) {
	file := write(t, "{}")
	for value, want := range map[string]energyreceiver.ModelConfig{
		"auto": {}, "35-120": {IdlePower: 35, MaxPower: 120}, "0-9.5": {MaxPower: 9.5}, file: {File: file},
	} {
		got, err := Model(value)
		require.NoError(t, err, value)
		require.True(t, got.HasValue(), value)
		model := got.Get()
		assert.Equal(t, want, energyreceiver.ModelConfig{IdlePower: model.IdlePower, MaxPower: model.MaxPower, File: model.File}, value)
	}
	for value, want := range map[string]string{"": "is neither", "120": "is neither", "a-b": "is neither", "120-35": "max_power", "0-0": "max_power"} {
		_, err := Model(value)
		assert.ErrorContains(t, err, want, value)
	}
}
