// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.uber.org/goleak"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// all returns the settings of each provider of a server.
func all(endpoint string) map[string]Settings {
	em, wt, uk, region, prom := NewElectricityMaps(), NewWattTime(), NewUKCarbonIntensity(), NewUKCarbonIntensity(), NewPrometheus()
	em.Zone, em.Token = "FR", "em-token"
	wt.Region, wt.Username, wt.Password = "CAISO_NORTH", "someone", "wt-password"
	region.Region = 13
	prom.Query = "grid"
	em.Endpoint, wt.Endpoint, uk.Endpoint, region.Endpoint, prom.Endpoint = endpoint, endpoint, endpoint, endpoint, endpoint+"/prom/"
	return map[string]Settings{"electricity maps": &em, "watttime": &wt, "uk": &uk, "uk regional": &region, "prometheus": &prom}
}

// fake answers as the services do. Its documents have the shapes of their documentation, and values
// that were made up.
type fake struct {
	*httptest.Server
	logins, refused int    // tokens up to the login refused are refused
	old, changed    string // text that is replaced in the documents
}

func newFake(t *testing.T) *fake {
	f := new(fake)
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// ServeHTTP implements http.Handler. It answers exact requests only.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const minutes = "2006-01-02T15:04Z"
	now := time.Now().UTC()
	half := now.Truncate(settlementPeriod)
	begin := half.Add(-time.Hour).Format(minutes)
	halves := func(actual string) string {
		var list []string
		for i := range 48 {
			from := half.Add(time.Duration(i-2) * settlementPeriod)
			list = append(list, fmt.Sprintf(`{"from": "%s", "to": "%s", "intensity": {"forecast": %d%s, "index": "moderate"}}`,
				from.Format(minutes), from.Add(settlementPeriod).Format(minutes), 180+i, map[bool]string{true: actual, false: ""}[i < 2]))
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	document, header, credentials := "", "Accept", "application/json"
	switch r.URL.String() {
	case "/v3/carbon-intensity/latest?zone=FR":
		header, credentials = "Auth-Token", "em-token"
		document = fmt.Sprintf(`{"zone": "FR", "carbonIntensity": 61, "datetime": %q, "isEstimated": true, "temporalGranularity": "hourly"}`,
			now.Truncate(time.Hour).Format("2006-01-02T15:04:05.000Z"))
	case "/login":
		if _, password, _ := r.BasicAuth(); password != "wt-password" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		f.logins++
		document = fmt.Sprintf(`{"token": "%d"}`, f.logins)
	case "/v3/forecast?horizon_hours=6&region=CAISO_NORTH&signal_type=co2_moer":
		header, credentials = "Authorization", fmt.Sprintf("Bearer %d", max(f.logins, f.refused+1))
		document = fmt.Sprintf(`{"data": [{"point_time": %q, "value": 900.5}], "meta": {"region": "CAISO_NORTH", "signal_type": "co2_moer",
			"units": "lbs_co2_per_mwh", "data_point_period_seconds": 300}}`, now.Truncate(wattTimePeriod).Format("2006-01-02T15:04:05-07:00"))
	case "/intensity/" + begin + "/fw24h":
		document = `{"data": ` + halves(`, "actual": 150`) + `}`
	case "/regional/intensity/" + begin + "/fw24h/regionid/13":
		document = `{"data": {"regionid": 13, "data": ` + halves("") + `}}`
	case "/prom/api/v1/query?query=grid":
		document = `{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1.5, "201.25"]}]}}`
	}
	if r.Header.Get(header) != credentials {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	_, _ = io.WriteString(w, strings.ReplaceAll(document, f.old, f.changed))
}

func opening(t *testing.T) *Opening {
	return &Opening{Context: t.Context(), Host: componenttest.NewNopHost(), Telemetry: componenttest.NewNopTelemetrySettings()}
}

func open(t *testing.T, s Settings) *Source {
	t.Helper()
	source, err := s.Open(opening(t))
	require.NoError(t, err)
	t.Cleanup(source.Provider.Close)
	return source
}

// ask opens a provider and sends one request.
func ask(t *testing.T, s Settings) (signal.Answer, error) {
	t.Helper()
	return open(t, s).Provider.Ask(t.Context())
}

func TestProvidersReadThePresent(t *testing.T) {
	f := newFake(t)
	for name, want := range map[string]struct {
		region string
		mean   signal.Mean
	}{
		"electricity maps": {"FR", signal.Mean{Rate: 61_000_000, Estimated: true}},
		"watttime":         {"CAISO_NORTH", signal.Mean{Rate: 408_459_929, Estimated: true}}, // 900.5 lb/MWh
		"uk":               {"GB", signal.Mean{Rate: 182_000_000, Estimated: true}},          // the third half hour
		"uk regional":      {"GB:13", signal.Mean{Rate: 182_000_000, Estimated: true}},
		"prometheus":       {"", signal.Mean{Rate: 201_250_000}},
	} {
		source := open(t, all(f.URL)[name])
		answer, err := source.Provider.Ask(t.Context())
		require.NoError(t, err, name)
		assert.Equal(t, want.region, source.Region, name)
		line := signal.NewTimeline(0)
		require.NoError(t, line.Put(time.Now(), answer.Periods), name)
		m, ok := line.Mean(time.Now(), time.Now())
		assert.True(t, ok, name)
		assert.Equal(t, want.mean, m, name)
		wait := time.Until(answer.Next)
		assert.True(t, 0 <= wait && wait <= time.Hour, "%s: the next request is in %v", name, wait)
		if name == "uk" {
			assert.Equal(t, []any{signal.Rate(150_000_000), false}, []any{answer.Periods[0].Rate, answer.Periods[0].Estimated}, "actual")
		}
	}
}

func TestMaxAgeReplacesTheDefault(t *testing.T) {
	for name, want := range map[string]time.Duration{"watttime": 2 * time.Hour, "prometheus": 10 * time.Minute} {
		assert.Equal(t, want, open(t, all("http://host")[name]).Options.MaxAge, name)
		o := opening(t)
		o.MaxAge = time.Minute
		source, err := all("http://host")[name].Open(o)
		require.NoError(t, err)
		assert.Equal(t, time.Minute, source.Options.MaxAge, name)
	}
}

func TestWattTimeLogsInAgainWhenItsTokenIsRefused(t *testing.T) {
	f := newFake(t)
	p := open(t, all(f.URL)["watttime"]).Provider
	for login := range 3 {
		for range 3 {
			_, err := p.Ask(t.Context())
			require.NoError(t, err)
			assert.Equal(t, login+1, f.logins)
		}
		f.refused = f.logins
	}
	f.refused = 100
	_, err := p.Ask(t.Context())
	assert.EqualError(t, err, "the server answered 401 Unauthorized")
	assert.Equal(t, 4, f.logins, "one new token is tried")
}

func TestWrongCredentialsAreReportedWithoutThem(t *testing.T) {
	settings := all(newFake(t).URL)
	settings["electricity maps"].(*ElectricityMaps).Token = "wrong-secret"
	_, err := ask(t, settings["electricity maps"])
	assert.EqualError(t, err, "the server answered 401 Unauthorized")
	settings["watttime"].(*WattTime).Password = "wrong-secret"
	_, err = ask(t, settings["watttime"])
	assert.EqualError(t, err, "login: the user name or the password is wrong")
}

func TestImpossibleAnswersAreRejected(t *testing.T) {
	f := newFake(t)
	const em, wt, uk, region, prom = "electricity maps", "watttime", "uk", "uk regional", "prometheus"
	for _, test := range []struct{ provider, old, changed, want string }{
		{em, `"FR"`, `"DE"`, `the answer is for another zone than "FR"`},
		{em, `"FR"`, `null`, `the answer is for another zone than "FR"`},
		{em, "61", "-1", "carbonIntensity: the value is negative"},
		{em, "61", "3001", "carbonIntensity: the value is impossible: it must be from 0 to 3000 g/kWh"},
		{em, "61", "null", "carbonIntensity: there is no value"},
		{em, "61", "true", "carbonIntensity: the value is not a number"},
		{em, ".000Z", "", "the answer has a time that cannot be read"},
		{em, "hourly", "yearly", `the answer is for a period of an unknown length`},
		{em, "true", `"perhaps"`, "the answer is not the expected JSON"},
		{wt, "lbs_co2_per_mwh", "percentile", `the answer is for another unit than "lbs_co2_per_mwh"`},
		{wt, "co2_moer", "health_damage", `the answer is for another signal than "co2_moer"`},
		{wt, "CAISO_NORTH", "PJM", `the answer is for another region than "CAISO_NORTH"`},
		{wt, "300", "-300", "the answer has periods of an impossible length"},
		{wt, "300", "1e12", "the answer has periods of an impossible length"},
		{wt, "900.5", "6700", "value: the value is impossible: it must be from 0 to 3000 g/kWh"},
		{wt, "+00:00", "", "the answer has a time that cannot be read"},
		{wt, `"1"`, "null", "login: the answer has no token"},
		{uk, `"from": "`, `"from": "x`, "the answer has a time that cannot be read"},
		{uk, `"to": "2`, `"to": "1`, "the answer has a period that is not half an hour"},
		{uk, "150", "-1", "actual: the value is negative"},
		{uk, "190", "null", "forecast: there is no value"},
		{region, "13", "14", `the answer is for another region than "13"`},
		{region, "190", "1e9", "forecast: the value is impossible: it must be from 0 to 3000 g/kWh"},
		{prom, "success", "error", "the query failed"},
		{prom, "vector", "matrix", `the query must return a scalar or a vector`},
		{prom, `{"metric": {}, "value": [1.5, "201.25"]}`, "", "the answer has no value"},
		{prom, `"result": [`, `"result": [{}, `, "the query returns more than one series: aggregate them"},
		{prom, "201.25", "NaN", "the value is not a number"},
		{prom, "201.25", "-3", "the value is negative"},
		{prom, `[1.5, "201.25"]`, "[1]", "the answer has no value"},
		{prom, `[1.5, "201.25"]`, "null", "the answer has no value"},
	} {
		f.old, f.changed, f.logins = test.old, test.changed, 0
		_, err := ask(t, all(f.URL)[test.provider])
		assert.EqualError(t, err, test.want, "%s: %s in place of %s", test.provider, test.changed, test.old)
	}
	f.old, f.changed = `"vector", "result": [{"metric": {}, "value": [1.5, "201.25"]}]`, `"scalar", "result": [1.5, "7"]`
	answer, err := ask(t, all(f.URL)[prom])
	require.NoError(t, err)
	assert.Equal(t, signal.Rate(7_000_000), answer.Periods[0].Rate)
}

func TestNoProviderSendsItsSecretsElsewhere(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer elsewhere.Close()
	s := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusFound))
	defer s.Close()
	for name, settings := range all(s.URL) {
		_, err := ask(t, settings)
		assert.ErrorContains(t, err, "the server redirects to another one", name)
		for _, secret := range []string{"em-token", "wt-password", "someone", s.URL} {
			assert.NotContains(t, err.Error(), secret, name)
		}
	}
}

func TestAnEndpointIsAnAddress(t *testing.T) {
	for _, endpoint := range []string{"", "api.electricitymaps.com", "ftp://host", "https://", "https://host?token=secret", "https://host#x", ":"} {
		_, err := parseEndpoint(endpoint)
		assert.EqualError(t, err, "endpoint: must be an http or https address without a query", endpoint)
	}
}

func TestFilesThatAreNotRegularAreErrors(t *testing.T) {
	for _, path := range []string{"/dev/zero", t.TempDir()} {
		c := NewWattTime()
		c.PasswordFile = path
		_, err := c.password()
		assert.EqualError(t, err, "password_file: not a regular file", path)
		c.TLS.CAFile = path
		_, err = c.Open(opening(t))
		assert.ErrorContains(t, err, "tls::ca_file: ", path)
		_, err = ask(t, &File{Path: path})
		assert.ErrorContains(t, err, "not a regular file", path)
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
			for _, p := range periods {
				if err == nil && (p.Rate < 0 || p.Rate > signal.MaxRate || !p.Until.After(p.From)) {
					t.Fatalf("%q is read as %v", body, p)
				}
			}
		}
		p, err := parseElectricityMaps(body, "FR")
		check([]signal.Period{p}, err)
		check(parseWattTime(body, "FR"))
		check(parseUKCarbonIntensity(body, 0))
		check(parseUKCarbonIntensity(body, 13))
		if r, err := parsePrometheus(body); err == nil && (r < 0 || r > signal.MaxRate) {
			t.Fatalf("%q is read as %v", body, r)
		}
	})
}
