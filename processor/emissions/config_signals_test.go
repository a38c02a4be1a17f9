// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"go.yaml.in/yaml/v3"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal/provider"
)

// load returns a configuration as the collector loads it.
func load(t testing.TB, text string) (*Config, error) {
	t.Helper()
	settings := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &settings))
	c := createDefaultConfig().(*Config)
	if err := confmap.NewFromStringMap(settings).Unmarshal(c); err != nil {
		return nil, err
	}
	return c, confmap.Validate(c)
}

func TestGoodSignalsAreAccepted(t *testing.T) {
	for _, text := range []string{
		"intensity: 56",
		"intensity: 0",
		"intensity: {value: 56.5, accounting: market}",
		"intensity: {value: 0, type: marginal}",
		"intensity: {grid: FRA}",
		"intensity: {grid: fr}",
		"intensity: {grid: 'aws:eu-west-3'}",
		"intensity: {grid: West Europe}",
		"intensity: {electricity_maps: {zone: FR, token: secret}}",
		"intensity: {electricity_maps: {zone: FR, headers: {auth-token: secret}}, max_age: 3h}",
		"intensity: {watttime: {region: CAISO_NORTH, username: someone, password: secret}}",
		"intensity: {watttime: {region: CAISO_NORTH, username: someone, password_file: /run/secrets/watttime}}",
		"intensity: {uk_carbon_intensity: {}}",
		"intensity: {uk_carbon_intensity: }",
		"intensity: {uk_carbon_intensity: {region: 13, timeout: 5s, proxy_url: 'http://proxy:3128'}}",
		"intensity: {prometheus: {endpoint: 'http://localhost:9090', query: grid_intensity}, type: marginal}",
		"intensity: {file: {path: /etc/intensity.csv}, max_age: 1h}",
	} {
		_, err := load(t, text)
		assert.NoError(t, err, text)
	}
}

func TestBadSignalsAreErrorsThatNameTheSetting(t *testing.T) {
	for text, want := range map[string]string{
		"intensity: {}":                              "intensity: one of value, grid, electricity_maps,",
		"intensity: {value: }":                       "intensity: one of",
		"intensity: FRA":                             "must be a number of g/kWh, or a section such as {grid: FRA}, is FRA",
		"intensity: -1":                              "value: the value is negative, is -1",
		"intensity: .nan":                            "value: the value is not a number",
		"intensity: .inf":                            "value: the value is not a number",
		"intensity: 3001":                            "value: the value is impossible: it must be from 0 to 3000 g/kWh, is 3001",
		"intensity: {values: 5}":                     "values",
		"intensity: {value: 5, grid: FRA}":           "grid: must not be set together with value",
		"intensity: {grid: France}":                  `grid: no country or cloud region "France"; similar: FRA (France)`,
		"intensity: {grid: world}":                   `grid: no country or cloud region "world": it must be an ISO 3166 code`,
		"intensity: {grid: FRA, accounting: market}": "accounting: must not be market: grid provides the intensity of the location",
		"intensity: {grid: FRA, type: marginal}":     "type: must not be marginal: grid provides the average intensity",
		"intensity: {value: 5, type: mean}":          `type: must be one of average, marginal, is "mean"`,
		"intensity: {value: 5, accounting: x}":       `accounting: must be one of location, market, is "x"`,
		"intensity: {value: 5, max_age: -1s}":        "max_age: must not be negative",
		"intensity: {watttime: {region: A, username: b, password: c}, type: average}":           "type: must not be average: watttime provides the marginal intensity",
		"intensity: {watttime: {region: A, username: b, password: c}, uk_carbon_intensity: {}}": "uk_carbon_intensity: must not be set together with watttime",
		"intensity: {watttime: {}}": "watttime: region: must not be empty",
		"intensity: {watttime: {region: A, username: b, password: c, password_file: d}}": "password: must not be set together with password_file",
		"intensity: {electricity_maps: {zone: FR}}":                                      "token: must not be empty",
		"intensity: {electricity_maps: {token: t}}":                                      "zone: must not be empty",
		"intensity: {uk_carbon_intensity: {region: 18}}":                                 "region: must be from 1 to 17",
		"intensity: {uk_carbon_intensity: {endpoint: 'ftp://x'}}":                        "endpoint: must be an http or https address",
		"intensity: {uk_carbon_intensity: {timeout: -1s}}":                               "timeout: must not be negative",
		"intensity: {prometheus: {query: x}}":                                            "endpoint: must be an http or https address",
		"intensity: {prometheus: {endpoint: 'http://a', query: x, poll_interval: 0s}}":   "poll_interval: must be at least 1s",
		"intensity: {prometheus: {endpoint: 'http://a'}}":                                "query: must not be empty",
		"intensity: {file: {}}":                                                          "path: must not be empty",
	} {
		_, err := load(t, text)
		assert.ErrorContains(t, err, want, text)
	}
}

// opened opens a section of a configuration, closes it after the test, and returns what was logged.
func opened(t testing.TB, text string) (*source, *observer.ObservedLogs) {
	t.Helper()
	c, err := load(t, text)
	require.NoError(t, err, text)
	core, logs := observer.New(zapcore.DebugLevel)
	set := componenttest.NewNopTelemetrySettings()
	set.Logger = zap.New(core)
	s, err := c.Intensity.Get().open(context.Background(), componenttest.NewNopHost(), set)
	require.NoError(t, err)
	if s.close != nil {
		t.Cleanup(s.close)
	}
	return s, logs
}

// known waits until a source reports a current value.
func known(t testing.TB, s *source) signal.Mean {
	t.Helper()
	var m signal.Mean
	require.Eventually(t, func() (ok bool) {
		m, ok = s.Mean(time.Now(), time.Now())
		return ok
	}, 10*time.Second, time.Millisecond, "%v", s.Signal)
	return m
}

func TestSourcesSayWhatTheyAre(t *testing.T) {
	file := filepath.Join(t.TempDir(), "intensity")
	require.NoError(t, os.WriteFile(file, []byte("12.5"), 0o600))
	for text, want := range map[string]struct {
		provider, region, accounting, intensityType string
		rate                                        signal.Rate
	}{
		"intensity: 56": {"number", "", location, provider.Average, 56_000_000},
		"intensity: {value: 56.1, accounting: market}": {"number", "", market, provider.Average, 56_100_000},
		"intensity: {grid: fr}":                        {"grid", "FRA", location, provider.Average, 56_000_000},
		"intensity: {file: {path: " + file + "}}":      {"file", "", location, provider.Average, 12_500_000},
		"intensity: {grid: 'azure:Finland Central'}":   {"grid", "azure:finlandcentral", location, provider.Average, 77_000_000},
	} {
		s, logs := opened(t, text)
		assert.Equal(t, signal.Mean{Rate: want.rate}, known(t, s), text)
		assert.Equal(t, []string{want.provider, want.region, want.accounting, want.intensityType},
			[]string{s.provider, s.region, s.accounting, s.intensityType}, text)
		assert.NotZero(t, logs.Len(), text)
	}
	_, logs := opened(t, "intensity: {grid: fr}")
	assert.Equal(t, "2023", logs.FilterMessage("Carbon intensity is a yearly mean").All()[0].ContextMap()["year"])
}

// TestAProviderIsAskedThroughTheCollectorsClient has a service over TLS that fails, answers, and
// fails again.
func TestAProviderIsAskedThroughTheCollectorsClient(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("auth-token") != "em-secret" || r.Header.Get("X-Team") != "blue" || r.FormValue("zone") != "FR" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = fmt.Fprintf(w, `{"zone": "FR", "carbonIntensity": 61, "datetime": %q}`, time.Now().UTC().Truncate(time.Hour).Format(time.RFC3339))
	}))
	defer s.Close()
	settings := func(token string) string {
		return fmt.Sprintf("intensity: {electricity_maps: {endpoint: %q, zone: FR, token: %q, headers: {X-Team: blue}, tls: {insecure_skip_verify: true}}}", s.URL, token)
	}
	good, logs := opened(t, settings("em-secret"))
	assert.Equal(t, signal.Mean{Rate: 61_000_000}, known(t, good))
	assert.NoError(t, good.err())
	assert.Equal(t, []string{"electricity_maps", "FR", location, provider.Average}, []string{good.provider, good.region, good.accounting, good.intensityType})
	assert.NotContains(t, fmt.Sprint(logs.All()), "em-secret")

	bad, _ := opened(t, settings("another-secret"))
	require.Eventually(t, func() bool { return bad.err() != nil }, 10*time.Second, time.Millisecond)
	assert.EqualError(t, bad.err(), "the server answered 401 Unauthorized; no value is known")
}

func TestSecretsAreNotShown(t *testing.T) {
	for _, text := range []string{
		"intensity: {electricity_maps: {zone: FR, token: TOPSECRET, headers: {x: TOPSECRET}}}",
		"intensity: {watttime: {region: CAISO_NORTH, username: someone, password: TOPSECRET}}",
	} {
		c, err := load(t, text)
		require.NoError(t, err)
		shown := confmap.New()
		require.NoError(t, shown.Marshal(c))
		assert.NotContains(t, fmt.Sprint(shown.ToStringMap()), "TOPSECRET")
	}
	c, err := load(t, "intensity: {uk_carbon_intensity: {proxy_url: 'http://user:TOPSECRET@bad host'}}")
	require.NoError(t, err)
	_, err = c.Intensity.Get().open(t.Context(), componenttest.NewNopHost(), componenttest.NewNopTelemetrySettings())
	assert.EqualError(t, err, "intensity::uk_carbon_intensity: proxy_url: must be an address")
}
