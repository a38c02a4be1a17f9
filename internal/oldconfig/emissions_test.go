// SPDX-License-Identifier: Apache-2.0

package oldconfig

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func emissions(t *testing.T, text string) error {
	t.Helper()
	config := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &config))
	return CheckEmissions(config)
}

func TestOneErrorListsEveryOldKey(t *testing.T) {
	assert.EqualError(t, emissions(t, `
intensity: {prometheus: {endpoint: http://a, query: x, interval: 1m}, signal: marginal}
price: {value: 0.31, currency: EUR}
forget_after: 30m
metrics: {electricity.pue: {enabled: false}}
`), `the configuration contains renamed or removed settings, which `+"`energy convert FILE`"+` converts:
  forget_after: now max_staleness
  intensity::prometheus::interval: now intensity::prometheus::poll_interval
  intensity::signal: now intensity::type
  metrics::electricity.pue: removed: the gauge repeated pue
  price::currency: removed: the label currency of the rule electricity:price:per_kwh
  price::value: removed: edit deploy/prometheus/price-fixed.yaml
Cost is computed by Prometheus rules: docs/carbon.md#cost`)
}

func TestAPriceWithoutASectionIsFound(t *testing.T) {
	for _, text := range []string{"price: 0.31", "price: "} {
		assert.ErrorContains(t, emissions(t, text), "\n  price: removed", text)
	}
}

func TestNewConfigurationsPass(t *testing.T) {
	for _, text := range []string{"{}", "intensity: 56", "intensity: {grid: FRA, type: average}", "{intensity: , metrics: }"} {
		assert.NoError(t, emissions(t, text), text)
	}
}

func TestEveryOldKeyIsFound(t *testing.T) {
	for _, keys := range []map[string]string{Emissions, EmissionsRemoved} {
		for key := range keys {
			assert.ErrorContains(t, CheckEmissions(nest(key)), "\n  "+key+": ", key)
		}
	}
}

// nest returns a configuration with one key.
func nest(key string) map[string]any {
	name, rest, nested := strings.Cut(key, "::")
	if !nested {
		return map[string]any{name: 1}
	}
	return map[string]any{name: nest(rest)}
}
