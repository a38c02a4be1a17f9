// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configauth"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/meters"
)

var plugID = component.MustNewIDWithName("http", "a")

func TestHTTPIsReadWhateverMeterSays(t *testing.T) {
	for _, used := range [][]config.MeterKind{config.LocalMeters, only(config.MeterPowercap)} {
		cfg := simpleConfig()
		cfg.Meters.Use, cfg.Meters.HTTP = used, map[component.ID]config.HTTPConfig{plugID: {Unit: "W"}}
		set, err := meters.Open(t.Context(), cfg, componenttest.NewNopHost(), componenttest.NewNopTelemetrySettings())
		require.NoError(t, err)
		assert.Equal(t, string(config.MeterHTTP), set.Status()[0].Name, "it is preferred")
		require.NoError(t, set.Close())
	}
}

func TestAnAuthenticatorThatIsNotThereIsAnErrorAtStart(t *testing.T) {
	cfg := simpleConfig()
	plug := config.HTTPConfig{Unit: "W"}
	plug.Auth = configoptional.Some(configauth.Config{AuthenticatorID: component.MustNewID("basicauth")})
	cfg.Meters.HTTP = map[component.ID]config.HTTPConfig{plugID: plug}
	_, err := meters.Open(t.Context(), cfg, componenttest.NewNopHost(), componenttest.NewNopTelemetrySettings())
	assert.ErrorContains(t, err, "open meter http: meters::http/a: ")
}

func TestWrongSettingsOfHTTPAreNamed(t *testing.T) {
	valid := func() map[string]any {
		return map[string]any{"endpoint": "http://plug.example/status", "pointer": "/total", "unit": "Wh"}
	}
	plug := func(settings map[string]any) map[string]any {
		return map[string]any{"meters": map[string]any{"http/a": settings}}
	}
	for setting, values := range map[string][]any{
		"endpoint":      {"", "plug.example/secret", "ftp://plug.example/secret", "http:///secret", "http://plug.example/secret\x7f"},
		"pointer":       {"total", "/a~2"},
		"unit":          {"", "VA"},
		"zone":          {"psys"},
		"poll_interval": {"-1s", "999ms", "0s"},
		"timeout":       {"-1s"},
	} {
		for _, value := range values {
			entry := valid()
			entry[setting] = value
			err := validated(t, plug(entry))
			assert.ErrorContains(t, err, "meters::http/a::"+setting+": ", "%s: %v", setting, value)
			assert.NotContains(t, err.Error(), "secret")
		}
	}
	require.NoError(t, validated(t, plug(valid())))
	memory := valid()
	memory["zone"] = "dram"
	settings := plug(memory)
	settings["zones"] = []any{"package"}
	assert.ErrorContains(t, validated(t, settings), `zones: must contain "dram", the zone of meters::http/a::zone`)
}

// validated loads settings over the defaults and validates them.
func validated(t *testing.T, settings map[string]any) error {
	t.Helper()
	cfg := simpleConfig()
	require.NoError(t, confmap.NewFromStringMap(settings).Unmarshal(cfg))
	return confmap.Validate(cfg)
}
