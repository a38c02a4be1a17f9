// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// loaded returns a valid configuration that is read like a collector reads it: the YAML over the
// defaults.
func loaded(t *testing.T, yaml string) *Config {
	t.Helper()
	retrieved, err := confmap.NewRetrievedFromYAML([]byte(yaml))
	require.NoError(t, err)
	conf, err := retrieved.AsConf()
	require.NoError(t, err)
	cfg := config.Default()
	require.NoError(t, conf.Unmarshal(cfg))
	require.NoError(t, confmap.Validate(cfg))
	return cfg
}
