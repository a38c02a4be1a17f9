// SPDX-License-Identifier: Apache-2.0

// Package configtest reads configurations for tests.
package configtest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// Load reads YAML over the settings of cfg, as a collector does, validates and returns cfg.
func Load(t testing.TB, cfg *config.Config, yaml string) *config.Config {
	t.Helper()
	retrieved, err := confmap.NewRetrievedFromYAML([]byte(yaml))
	require.NoError(t, err)
	conf, err := retrieved.AsConf()
	require.NoError(t, err)
	require.NoError(t, conf.Unmarshal(cfg))
	require.NoError(t, confmap.Validate(cfg))
	return cfg
}
