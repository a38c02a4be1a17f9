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
