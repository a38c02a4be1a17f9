// SPDX-License-Identifier: Apache-2.0

package oldconfig

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func parse(t *testing.T, text string) (conf map[string]any) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(text), &conf))
	return conf
}

func TestTheErrorListsEveryFormerSetting(t *testing.T) {
	assert.EqualError(t, Check(parse(t, `
powercap_path: /mnt/energy
processes: {max: 5}
attribution: {preset: accurate, split: fixed, static_power: {package: 12.5, dram: {model: fixed}}}
`)), `the configuration contains renamed or removed settings:
  powercap_path: now meters::powercap::path;
  processes: now series::processes;
  attribution::split: now attribution::static_power, with trained in place of learned;
  attribution::preset: accurate: removed: its rules are the default, and window: 100ms keeps its windows;
  attribution::static_power::package: now {model: fixed, power: 12.5}`)
	assert.EqualError(t, CheckEmissions(parse(t, `
intensity: {prometheus: {interval: 1m}, signal: marginal}
price:
`)), `the configuration contains renamed or removed settings:
  intensity::prometheus::interval: now intensity::prometheus::poll_interval;
  intensity::signal: now intensity::type;
  price: removed: Prometheus rules compute cost, see docs/carbon.md#cost`)
}

func TestNewConfigurationsPass(t *testing.T) {
	for _, text := range []string{"{}", "intensity: 56", "{intensity: , metrics: }", "{attribution: 5}"} {
		require.NoError(t, CheckEmissions(parse(t, text)), text)
		require.NoError(t, Check(parse(t, text)), text)
	}
}

func TestEveryFormerSettingIsFound(t *testing.T) {
	for _, s := range receiver {
		assert.ErrorContains(t, Check(nest(s.old)), "\n  "+s.old+": "+s.now)
	}
	for _, s := range emissions {
		assert.ErrorContains(t, CheckEmissions(nest(s.old)), "\n  "+s.old+": "+s.now)
	}
}

// nest returns a configuration with one setting.
func nest(setting string) map[string]any {
	name, rest, nested := strings.Cut(setting, "::")
	if !nested {
		return map[string]any{name: 1}
	}
	return map[string]any{name: nest(rest)}
}
