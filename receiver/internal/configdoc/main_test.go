// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func TestGeneratedFilesAreCurrent(t *testing.T) {
	t.Chdir("../..")
	for file, generate := range map[string]func() ([]byte, error){schemaFile: schemaText, referenceFile: pageText} {
		want, err := generate()
		require.NoError(t, err, file)
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), "run go generate in receiver")
	}
}

func TestExamplesAreValid(t *testing.T) {
	for section, example := range examples {
		retrieved, err := confmap.NewRetrievedFromYAML([]byte(example))
		require.NoError(t, err, section)
		conf, err := retrieved.AsConf()
		require.NoError(t, err, section)
		require.True(t, conf.IsSet(section), section)
		cfg := config.Default()
		require.NoError(t, conf.Unmarshal(cfg), section)
		assert.NoError(t, confmap.Validate(cfg), section)
	}
}

// A setting is required if an empty section is invalid without it.
func TestRequiredSettings(t *testing.T) {
	required, err := missing("meters::http/NAME")
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"meters::http/NAME::endpoint", "meters::http/NAME::unit"}, required)
	required, err = missing("meters::ipmi")
	require.NoError(t, err)
	assert.Empty(t, required)
}

// The settings of the collector, of HTTP clients, of single metrics and of resource attributes do
// not count. A setting that several meters share, such as poll_interval, counts once. Six are the
// parameters of SmartWatts.
func TestTheReceiverHasAtMost61SettingsOfItsOwn(t *testing.T) {
	root, err := describe(config.Default())
	require.NoError(t, err)
	paths, declared := []string{}, map[string]bool{}
	for _, s := range root.below() {
		isPart := s.element != nil && s.element.isSection() // its settings count
		if s.isSection() || isPart {
			continue
		}
		paths = append(paths, s.path)
		declared[s.declared] = true
	}
	t.Logf("%d settings, %d with shared ones counted each time: %q", len(declared), len(paths), paths)
	assert.LessOrEqual(t, len(declared), 61)
	assert.Contains(t, paths, "meters::http/NAME::poll_interval")
	assert.Contains(t, paths, "attribution::static_power::package::power")
}
