// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

var (
	_ signal.Provider = (*ElectricityMaps)(nil)
	_ signal.Provider = (*WattTime)(nil)
	_ signal.Provider = (*UKCarbonIntensity)(nil)
	_ signal.Provider = (*Prometheus)(nil)
	_ signal.Provider = (*File)(nil)
)

// TestProvidersTellThePresent asks each provider, and looks up the present in a timeline.
func TestProvidersTellThePresent(t *testing.T) {
	f := newFake(t)
	for name, want := range map[string]signal.Mean{
		"electricity maps": {Rate: 61_000_000, Estimated: true},
		"watttime":         {Rate: 408_459_929, Estimated: true}, // 900.5 lb/MWh
		"uk":               {Rate: 182_000_000, Estimated: true}, // the third half hour
		"uk regional":      {Rate: 182_000_000, Estimated: true},
		"prometheus":       {Rate: 201_250_000},
	} {
		answer, err := ask(t, open(t, name, f.Server), 10*time.Second)
		require.NoError(t, err, name)
		line := signal.NewTimeline(0)
		require.NoError(t, line.Put(time.Now(), answer.Periods), name)
		m, ok := line.Mean(time.Now(), time.Now())
		assert.True(t, ok, name)
		assert.Equal(t, want, m, name)
		wait := time.Until(answer.Next)
		assert.True(t, 0 <= wait && wait <= time.Hour, "%s: the next is in %v", name, wait)
	}
}

func TestGreatBritainTellsTheActualValuesOfThePast(t *testing.T) {
	f := newFake(t)
	answer, err := ask(t, open(t, "uk", f.Server), 10*time.Second)
	require.NoError(t, err)
	require.Len(t, answer.Periods, 48)
	assert.Equal(t, signal.Rate(150_000_000), answer.Periods[0].Rate)
	assert.False(t, answer.Periods[0].Estimated)
	assert.True(t, answer.Periods[47].Until.After(time.Now().Add(22*time.Hour)), "an outage of a day is bridged")
}

func TestWattTimeLogsInAgainWhenItsTokenIsRefused(t *testing.T) {
	f := newFake(t)
	p := open(t, "watttime", f.Server)
	for login := range int64(3) {
		for range 3 {
			_, err := ask(t, p, 10*time.Second)
			require.NoError(t, err)
			assert.Equal(t, login+1, f.logins.Load())
		}
		f.revoked.Store(f.logins.Load())
	}
	f.revoked.Store(1 << 60)
	before := f.logins.Load()
	_, err := ask(t, p, 10*time.Second)
	assert.EqualError(t, err, "the server answered 401 Unauthorized")
	assert.Equal(t, before+1, f.logins.Load(), "one new token is tried")
}

func TestWrongCredentialsAreToldWithoutThem(t *testing.T) {
	f := newFake(t)
	at := Server{Client: f.Client(), Endpoint: f.URL}
	em, err := NewElectricityMaps(at, "FR", "wrong-secret")
	require.NoError(t, err)
	_, err = ask(t, em, 10*time.Second)
	assert.EqualError(t, err, "the server answered 401 Unauthorized")
	wt, err := NewWattTime(at, "CAISO_NORTH", testUser, func() (string, error) { return "wrong-secret", nil })
	require.NoError(t, err)
	_, err = ask(t, wt, 10*time.Second)
	assert.EqualError(t, err, "login: the user name or the password is wrong")
}

// TestLiesAreErrors spoils each answer of each provider.
func TestLiesAreErrors(t *testing.T) {
	set := func(path string, value any) func(map[string]any) {
		return func(document map[string]any) {
			keys := strings.Split(path, "/")
			var at any = document
			for _, key := range keys[:len(keys)-1] {
				if list, ok := at.([]any); ok {
					at = list[len(list)/2]
				}
				m, ok := at.(map[string]any)
				if !ok {
					return
				}
				at = m[key]
			}
			if list, ok := at.([]any); ok {
				at = list[len(list)/2]
			}
			if m, ok := at.(map[string]any); ok {
				m[keys[len(keys)-1]] = value
			}
		}
	}
	for _, test := range []struct {
		provider, path string
		value          any
		want           string
	}{
		{"electricity maps", "zone", "DE", `the answer is for another zone than "FR"`},
		{"electricity maps", "zone", nil, `the answer is for another zone than "FR"`},
		{"electricity maps", "carbonIntensity", -1, "carbonIntensity: the value is negative"},
		{"electricity maps", "carbonIntensity", 3001, "carbonIntensity: the value is impossible: it must be from 0 to 3000 g/kWh"},
		{"electricity maps", "carbonIntensity", nil, "carbonIntensity: there is no value"},
		{"electricity maps", "carbonIntensity", true, "carbonIntensity: the value is not a number"},
		{"electricity maps", "datetime", "yesterday", "the answer has a time that cannot be read"},
		{"electricity maps", "datetime", "2026-01-02T15:00:00", "the answer has a time that cannot be read"},
		{"electricity maps", "temporalGranularity", "yearly", `the answer is for a period of an unknown length`},
		{"electricity maps", "isEstimated", "perhaps", "the answer is not the expected JSON"},
		{"watttime", "meta/units", "kg_co2_per_mwh", `the answer is for another unit than "lbs_co2_per_mwh"`},
		{"watttime", "meta/units", "percentile", `the answer is for another unit than "lbs_co2_per_mwh"`},
		{"watttime", "meta/signal_type", "health_damage", `the answer is for another signal than "co2_moer"`},
		{"watttime", "meta/region", "PJM", `the answer is for another region than "CAISO_NORTH"`},
		{"watttime", "meta/data_point_period_seconds", -300, "the answer has periods of an impossible length"},
		{"watttime", "meta/data_point_period_seconds", 1e12, "the answer has periods of an impossible length"},
		{"watttime", "data/value", 6700, "value: the value is impossible: it must be from 0 to 3000 g/kWh"},
		{"watttime", "data/value", -1, "value: the value is negative"},
		{"watttime", "data/point_time", "", "the answer has a time that cannot be read"},
		{"watttime", "token", "", "login: the answer has no token"},
		{"uk", "data/from", "", "the answer has a time that cannot be read"},
		{"uk", "data/to", "2026-01-01T00:00Z", "the answer has a period that is not half an hour"},
		{"uk", "data/intensity/actual", -1, "actual: the value is negative"},
		{"uk", "data/intensity/forecast", nil, "forecast: there is no value"},
		{"uk", "data", nil, ""},
		{"uk regional", "data/regionid", 14, `the answer is for another region than "13"`},
		{"uk regional", "data/data/intensity/forecast", 1e9, "forecast: the value is impossible: it must be from 0 to 3000 g/kWh"},
		{"prometheus", "status", "error", "the query failed"},
		{"prometheus", "data/resultType", "matrix", `the query must return a scalar or a vector`},
		{"prometheus", "data/result", []any{}, "the answer has no value"},
		{"prometheus", "data/result", []any{map[string]any{}, map[string]any{}}, "the query returns more than one series: aggregate them"},
		{"prometheus", "data/result/value", []any{1, "NaN"}, "the value is not a number"},
		{"prometheus", "data/result/value", []any{1, "+Inf"}, "the value is not a number"},
		{"prometheus", "data/result/value", []any{1, "-3"}, "the value is negative"},
		{"prometheus", "data/result/value", []any{1}, "the answer has no value"},
		{"prometheus", "data/result/value", nil, "the answer has no value"},
	} {
		f := newFake(t)
		f.spoil = set(test.path, test.value)
		answer, err := ask(t, open(t, test.provider, f.Server), 10*time.Second)
		if test.want == "" {
			assert.NoError(t, err)
			assert.Empty(t, answer.Periods, "which the poller refuses")
			continue
		}
		assert.EqualError(t, err, test.want, "%s: %s = %v", test.provider, test.path, test.value)
	}
}

// TestEveryProviderBearsABadServer has servers that misbehave in the same ways for all providers.
func TestEveryProviderBearsABadServer(t *testing.T) {
	elsewhere := newServerOf(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("followed to another server, with %v", r.Header)
	}))
	for name, bad := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"hangs":  {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, fetch.ErrTimeout.Error()},
		"broken": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, "500 Internal Server Error"},
		"a page": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>Sign in")) }, "JSON"},
		"redirects": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusFound)
		}, "the server redirects to another one"},
		"hangs up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServerOf(t, bad.answer)
			for provider := range table {
				timeout := 10 * time.Second
				if name == "hangs" {
					timeout = 50 * time.Millisecond
				}
				_, err := ask(t, open(t, provider, s), timeout)
				require.ErrorContains(t, err, bad.want, provider)
				for _, secret := range []string{testToken, testPassword, testUser, s.URL} {
					assert.NotContains(t, strings.ReplaceAll(err.Error(), elsewhere.URL, ""), secret, provider)
				}
			}
		})
	}
}

func TestAnEndpointIsAnAddress(t *testing.T) {
	for _, endpoint := range []string{"", "api.electricitymaps.com", "ftp://host", "https://", "https://host?token=secret", "https://host#x", ":"} {
		for name, open := range table {
			if name == "prometheus" {
				continue // it adds a path
			}
			_, err := open(Server{Client: http.DefaultClient, Endpoint: endpoint})
			assert.EqualError(t, err, "endpoint: must be an http or https address without a query", "%s: %s", name, endpoint)
		}
	}
}

func FuzzProviders(f *testing.F) {
	for _, seed := range []string{
		`{"zone":"FR","carbonIntensity":61,"datetime":"2026-01-02T15:00:00.000Z","isEstimated":true,"temporalGranularity":"hourly"}`,
		`{"data":[{"point_time":"2026-01-02T15:00:00+00:00","value":900.5}],"meta":{"region":"FR","signal_type":"co2_moer","units":"lbs_co2_per_mwh","data_point_period_seconds":300}}`,
		`{"data":[{"from":"2026-01-02T15:00Z","to":"2026-01-02T15:30Z","intensity":{"forecast":180,"actual":null,"index":"low"}}]}`,
		`{"data":{"regionid":13,"data":[{"from":"2026-01-02T15:00Z","to":"2026-01-02T15:30Z","intensity":{"forecast":180}}]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1767366000.1,"201.25"]}]}}`,
		`{"status":"success","data":{"resultType":"scalar","result":[1767366000.1,"201.25"]}}`,
		`null`, `[]`, `{"data":null}`, `{"data":[null]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		check := func(periods []signal.Period, err error) {
			if err != nil {
				return
			}
			for _, p := range periods {
				if p.Rate < 0 || p.Rate > signal.MaxRate || !p.Until.After(p.From) {
					t.Fatalf("%q is told as %v", body, p)
				}
			}
		}
		p, err := parseElectricityMaps(body, "FR")
		check([]signal.Period{p}, err)
		check(parseWattTime(body, "FR"))
		check(parseUKCarbonIntensity(body, 0))
		check(parseUKCarbonIntensity(body, 13))
		if r, err := parsePrometheus(body); err == nil && (r < 0 || r > signal.MaxRate) {
			t.Fatalf("%q is told as %v", body, r)
		}
	})
}
