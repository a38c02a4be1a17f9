// SPDX-License-Identifier: Apache-2.0

package training

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/internal/pack"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// simpleConfig returns a configuration without a power model, with the rules of Kepler.
func simpleConfig() *config.Config {
	cfg := config.Default()
	cfg.Attribution.Preset, cfg.Model = config.PresetKepler, configoptional.None[config.ModelConfig]()
	return cfg
}

// allStatic returns the setting attribution::static_power with one model for all zones.
func allStatic(model config.StaticModel) map[power.Kind]config.StaticPowerConfig {
	return map[power.Kind]config.StaticPowerConfig{config.AllZones: {Model: model}}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// restored returns models after they were packed and unpacked.
func restored(t *testing.T, models Models) (again Models) {
	t.Helper()
	w := pack.NewWriter(nil)
	models.Pack(w)
	r := pack.NewReader(w.Bytes())
	again.Pack(r)
	require.NoError(t, r.End())
	return again
}

// trainedModelNames returns the static power models that are trained.
func trainedModelNames() (names []config.StaticModel) {
	for _, name := range config.StaticModelNames {
		cfg := config.AttributionConfig{StaticPower: allStatic(name)}
		if cfg.Trains([]power.Kind{power.Package}) {
			names = append(names, name)
		}
	}
	return names
}
