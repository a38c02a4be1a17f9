// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testToken    = "em-token-5b1"
	testUser     = "someone"
	testPassword = "wt-password-9c2"
)

// fake answers as the services do, over TLS on the loopback interface. Its answers have the shapes
// of their documentation, and values that were made up.
type fake struct {
	*httptest.Server
	logins  atomic.Int64
	revoked atomic.Int64 // tokens up to this login are refused
	// spoil changes an answer before it is sent. It may be nil.
	spoil func(document map[string]any)
}

func newFake(t testing.TB) *fake {
	t.Helper()
	f := new(fake)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v3/carbon-intensity/latest", f.electricityMaps)
	mux.HandleFunc("GET /login", f.login)
	mux.HandleFunc("GET /v3/forecast", f.forecast)
	mux.HandleFunc("GET /intensity/{from}/fw24h", f.national)
	mux.HandleFunc("GET /regional/intensity/{from}/fw24h/regionid/{id}", f.regional)
	mux.HandleFunc("GET /prom/api/v1/query", f.query)
	f.Server = newServerOf(t, mux)
	return f
}

// newServerOf starts a server over TLS.
func newServerOf(t testing.TB, h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (f *fake) send(w http.ResponseWriter, document map[string]any) {
	if f.spoil != nil {
		f.spoil(document)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(document)
}

func (f *fake) electricityMaps(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("auth-token") != testToken {
		http.Error(w, `{"error":"Unauthorized"}`, http.StatusUnauthorized)
		return
	}
	hour := time.Now().UTC().Truncate(time.Hour)
	f.send(w, map[string]any{
		"zone": r.FormValue("zone"), "carbonIntensity": 61, "datetime": hour.Format("2006-01-02T15:04:05.000Z"),
		"updatedAt": time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), "emissionFactorType": "lifecycle", "isEstimated": true,
		"estimationMethod": "TIME_SLICER_AVERAGE", "temporalGranularity": "hourly",
	})
}

func (f *fake) login(w http.ResponseWriter, r *http.Request) {
	if user, password, ok := r.BasicAuth(); !ok || user != testUser || password != testPassword {
		http.Error(w, "", http.StatusForbidden)
		return
	}
	f.send(w, map[string]any{"token": "wt-token-" + strconv.FormatInt(f.logins.Add(1), 10)})
}

func (f *fake) forecast(w http.ResponseWriter, r *http.Request) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer wt-token-")
	if login, err := strconv.ParseInt(token, 10, 64); !ok || err != nil || login <= f.revoked.Load() {
		http.Error(w, "", http.StatusUnauthorized)
		return
	}
	hours, _ := strconv.Atoi(r.FormValue("horizon_hours"))
	first := time.Now().UTC().Truncate(5 * time.Minute)
	var data []any
	for i := range 12*hours + 1 {
		data = append(data, map[string]any{"point_time": first.Add(time.Duration(i) * 5 * time.Minute).Format("2006-01-02T15:04:05-07:00"), "value": 900.5})
	}
	f.send(w, map[string]any{"data": data, "meta": map[string]any{
		"region": r.FormValue("region"), "signal_type": r.FormValue("signal_type"), "units": "lbs_co2_per_mwh",
		"data_point_period_seconds": 300, "generated_at": first.Format(time.RFC3339), "model": map[string]any{"date": "2023-03-01"},
		"warnings": []any{},
	}})
}

// halves returns the periods from a path's time on. Those that have ended have an actual value, if there are any.
func halves(from string, actual bool) []any {
	begin, _ := time.Parse("2006-01-02T15:04Z", from)
	var data []any
	for i := range 48 {
		at := begin.Add(time.Duration(i) * settlementPeriod)
		intensity := map[string]any{"forecast": 180 + i, "index": "moderate"}
		if actual {
			intensity["actual"] = nil
			if at.Add(settlementPeriod).Before(time.Now()) {
				intensity["actual"] = 150
			}
		}
		data = append(data, map[string]any{
			"from": at.Format("2006-01-02T15:04Z"), "to": at.Add(settlementPeriod).Format("2006-01-02T15:04Z"), "intensity": intensity,
		})
	}
	return data
}

func (f *fake) national(w http.ResponseWriter, r *http.Request) {
	f.send(w, map[string]any{"data": halves(r.PathValue("from"), true)})
}

func (f *fake) regional(w http.ResponseWriter, r *http.Request) {
	id, _ := strconv.Atoi(r.PathValue("id"))
	f.send(w, map[string]any{"data": map[string]any{
		"regionid": id, "dnoregion": "UKPN London", "shortname": "London", "data": halves(r.PathValue("from"), false),
	}})
}

func (f *fake) query(w http.ResponseWriter, r *http.Request) {
	sample := []any{float64(time.Now().UnixMilli()) / 1000, "201.25"}
	data := map[string]any{"resultType": "scalar", "result": sample}
	if strings.HasPrefix(r.FormValue("query"), "grid") {
		data = map[string]any{"resultType": "vector", "result": []any{map[string]any{"metric": map[string]any{"zone": "FR"}, "value": sample}}}
	}
	f.send(w, map[string]any{"status": "success", "data": data})
}

// table has one provider of each kind, and what it is of.
var table = map[string]func(at Server) (signal.Provider, error){
	"electricity maps": func(at Server) (signal.Provider, error) { return NewElectricityMaps(at, "FR", testToken) },
	"watttime": func(at Server) (signal.Provider, error) {
		return NewWattTime(at, "CAISO_NORTH", testUser, func() (string, error) { return testPassword, nil })
	},
	"uk":          func(at Server) (signal.Provider, error) { return NewUKCarbonIntensity(at, 0) },
	"uk regional": func(at Server) (signal.Provider, error) { return NewUKCarbonIntensity(at, 13) },
	"prometheus": func(at Server) (signal.Provider, error) {
		at.Endpoint += "/prom/"
		return NewPrometheus(at, PrometheusOptions{Query: "grid", Every: time.Minute})
	},
}

// open opens a provider of the table at a server.
func open(t testing.TB, name string, s *httptest.Server) signal.Provider {
	t.Helper()
	p, err := table[name](Server{Client: s.Client(), Endpoint: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// ask asks once, within a time.
func ask(t testing.TB, p signal.Provider, timeout time.Duration) (signal.Answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return p.Ask(ctx)
}
