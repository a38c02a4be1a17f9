// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// simpleConfig returns a configuration without a power model, with the rules of Kepler.
func simpleConfig() *config.Config {
	cfg := config.Default()
	cfg.Attribution.Preset, cfg.Model = config.PresetKepler, configoptional.None[config.ModelConfig]()
	return cfg
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

var plugID = component.MustNewIDWithName("http", "a")

// cloudCPU is in the catalog.
const cloudCPU = "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"
