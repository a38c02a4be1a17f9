// SPDX-License-Identifier: Apache-2.0

package period

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/report"
)

// values has a value for each step of both periods, whose first step is -steps.
type values func(step int) float64

func constant(v float64) values { return func(int) float64 { return v } }

// fake is a server with the API of Prometheus.
type fake struct {
	t        *testing.T
	names    []string                                                 // of metrics
	nodes    map[string]values                                        // slots with a report
	rows     map[string]values                                        // joules by namespace
	shown    int                                                      // rows
	maxBytes int64                                                    // of a response, 0 for the default
	label    func(name string) string                                 // of the database
	instead  func(w http.ResponseWriter, r *http.Request, n int) bool // responds to a request of n steps
	odd      string                                                   // value of all samples, unless it is empty
	more     string                                                   // members of all responses
	queries  []string                                                 // received
	request  *http.Request                                            // the last one
}

var from = time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)

const steps = 48 // of a period

func newFake(t *testing.T) *fake {
	return &fake{
		t: t, shown: 3, names: []string{"system_energy_joules_total"}, nodes: map[string]values{"a": constant(12), "b": constant(13)},
		rows: map[string]values{
			"shop": constant(3e6), "ci": func(step int) float64 { return 1e4 * float64(step+steps) },
		},
		label: func(name string) string { return strings.ReplaceAll(name, ".", "_") },
	}
}

// ServeHTTP implements http.Handler.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	assert.NoError(f.t, r.ParseForm())
	start, _ := strconv.ParseInt(r.Form.Get("start"), 10, 64)
	end, _ := strconv.ParseInt(r.Form.Get("end"), 10, 64)
	f.request = r
	if f.instead != nil && f.instead(w, r, int(end-start)/3600+1) {
		return
	}
	var data any = f.names
	switch query := r.Form.Get("query"); r.URL.Path {
	case "/prometheus/api/v1/query_range":
		f.queries = append(f.queries, query)
		data = map[string]any{"result": f.result(query, start, end)}
	default:
		assert.Equal(f.t, "/prometheus/api/v1/label/__name__/values", r.URL.Path)
	}
	text, err := json.Marshal(data)
	assert.NoError(f.t, err)
	fmt.Fprintf(w, `{"status": "success"%s, "data": %s}`, f.more, text)
}

func (f *fake) result(query string, start, end int64) (all []map[string]any) {
	add := func(of values, labels ...string) {
		metric, points := map[string]string{}, [][2]any{}
		for i := 0; i < len(labels); i += 2 {
			metric[f.label(labels[i])] = labels[i+1]
		}
		for at := start; at <= end; at += 3600 {
			if v := of(int(at-from.Unix())/3600 - 1); v != 0 {
				points = append(points, [2]any{at, cmp.Or(f.odd, strconv.FormatFloat(v, 'f', -1, 64))})
			}
		}
		all = append(all, map[string]any{"metric": metric, "values": points})
	}
	switch {
	case strings.HasPrefix(query, "count_over_time"):
		for name, reported := range f.nodes {
			add(reported, "host.name", name)
		}
	case strings.HasPrefix(query, "sum by ()"):
		add(constant(5e5))
	case strings.Contains(query[:60], f.label("energy.state")):
		add(constant(5e6), "energy.zone", "package", "energy.method", "measured", "energy.state", "active")
		add(constant(2e6), "energy.zone", "package", "energy.method", "measured", "energy.state", "idle")
	default:
		for name, joules := range f.rows {
			add(joules, "k8s.namespace.name", name, workload, "web")
		}
	}
	return all
}

// read reads a report by namespace of two days.
func (f *fake) read(match ...string) (*Document, error) {
	web := httptest.NewServer(f)
	f.t.Cleanup(web.Close)
	address := strings.Replace(web.URL, "http://", "http://user:secret@", 1) + "/prometheus"
	s, err := newServer(address, http.Header{"X-Scope-Orgid": {"team"}})
	require.NoError(f.t, err)
	if f.maxBytes > 0 {
		s.maxBytes = f.maxBytes
	}
	grams, price := 400.0, 0.3
	return s.read(f.t.Context(), Options{
		By: "namespace", Span: Span{from, from.Add(steps * time.Hour)}, Match: match, Rows: f.shown,
		Rates: report.Rates{Grams: &grams, Grid: "FRA", Price: &price, Currency: "EUR"},
	})
}

func (f *fake) document(match ...string) *Document {
	f.t.Helper()
	d, err := f.read(match...)
	require.NoError(f.t, err)
	return d
}

// about asserts that two numbers differ only by rounding.
func about(t *testing.T, want, got number, more ...any) {
	t.Helper()
	assert.InDelta(t, float64(want), float64(got), 1e-9*max(1, math.Abs(float64(want))), more...)
}

func TestRowsAndRestAddUpToTheActiveEnergy(t *testing.T) {
	f := newFake(t)
	d := f.document()
	assert.Equal(t, Energies{336e6, 240e6, 96e6, 24e6}, d.Energies)
	about(t, 1, d.Coverage)
	assert.Equal(t, d.Sums, *d.Before)
	assert.Equal(t, 2, d.Nodes)
	assert.Equal(t, []Zone{{"package", "measured", 336e6}}, d.Zones)
	assert.Equal(t, []string{"shop", "ci"}, []string{d.Rows[0].Name, d.Rows[1].Name})
	about(t, 0.6, d.Rows[0].Share)
	about(t, 11.28e6, d.Rows[1].Before)
	about(t, 34.32e6, d.Rows[1].Joules)
	about(t, d.Active, d.Rest.Joules+d.Rows[0].Joules+d.Rows[1].Joules)
	for i, s := range d.Steps {
		about(t, s.Active, d.Rest.Steps[i]+d.Rows[0].Steps[i]+d.Rows[1].Steps[i])
	}
	about(t, 336e6/3.6e6*400, d.CO2e["grams"].(number))
	assert.Equal(t, []Part{{"web", 144e6}}, d.Rows[0].Parts)
	assert.Equal(t, "team", f.request.Header.Get("X-Scope-OrgID"))
	user, password, _ := f.request.BasicAuth()
	assert.Equal(t, []string{"user", "secret"}, []string{user, password})
	assert.NotContains(t, d.Source, "user")
}

func TestAQueryThatExceedsALimitIsDivided(t *testing.T) {
	whole := newFake(t).document()
	refusing, large := newFake(t), newFake(t)
	refusing.instead = func(w http.ResponseWriter, _ *http.Request, n int) bool {
		if n > 5 && n <= 24 {
			http.Error(w, `{"error": "too many samples"}`, http.StatusUnprocessableEntity)
		}
		return n > 5 && n <= 24
	}
	large.maxBytes = 700
	for _, f := range []*fake{refusing, large} {
		d := f.document()
		assert.Greater(t, len(f.queries), 4*4)
		d.Source = whole.Source
		assert.Equal(t, whole, d)
	}
	large.maxBytes = 100
	_, err := large.read()
	assert.ErrorContains(t, err, "the response has more than")
}

func TestErrorsHaveTheTextOfTheServerAndNoCredentials(t *testing.T) {
	for want, respond := range map[string]func(w http.ResponseWriter){
		"401 Unauthorized: no org id":             func(w http.ResponseWriter) { http.Error(w, "no org id", http.StatusUnauthorized) },
		"503 Service Unavailable: too busy":       func(w http.ResponseWriter) { http.Error(w, "too busy", http.StatusServiceUnavailable) },
		"400 Bad Request: unexpected ?[2J letter": func(w http.ResponseWriter) { http.Error(w, `{"error": "unexpected \u001b[2J letter"}`, 400) },
		"this is not the API of Prometheus":       func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") },
		"302 Found": func(w http.ResponseWriter) {
			w.Header().Set("Location", "/login")
			w.WriteHeader(http.StatusFound)
		},
		"EOF": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		f := newFake(t)
		f.instead = func(w http.ResponseWriter, _ *http.Request, _ int) bool { respond(w); return true }
		_, err := f.read()
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "user")
		assert.NotContains(t, err.Error(), "secret")
	}
	for odd, want := range map[string]string{"NaN": "invalid number", "x": "invalid number", "1e999": "invalid value"} {
		f := newFake(t)
		f.odd = odd
		_, err := f.read()
		assert.ErrorContains(t, err, want)
	}
	f := newFake(t)
	f.names = nil
	_, err := f.read()
	assert.ErrorIs(t, err, errNoData)
	_, err = newServer("ftp://user:secret@host\x7f", nil)
	assert.NotContains(t, err.Error(), "secret")
}

func TestStepsWithoutDataAreGapsAndAreNotFilled(t *testing.T) {
	f := newFake(t)
	away := func(first, last int) values {
		return func(step int) float64 {
			if step >= first && step <= last {
				return 0
			}
			return 12
		}
	}
	f.nodes = map[string]values{
		"a": away(10, 12), "b": away(11, 14),
		"born": func(step int) float64 { return float64(min(12, max(0, 6*(step-20)))) }, // at first for half an hour
	}
	d := f.document()
	assert.Equal(t, []Span{{from.Add(11 * time.Hour), from.Add(13 * time.Hour)}}, d.Gaps)
	for _, v := range []number{d.Steps[11].Active, d.Rows[0].Steps[12], d.Rest.Steps[11]} {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		assert.Equal(t, "null", string(text))
	}
	about(t, 0.5, d.Steps[10].Covered)
	about(t, 1, d.Steps[21].Covered)
	about(t, (48-2-0.5-2*0.5)/48, d.Coverage, "a node is not expected before its first report")
	assert.Nil(t, d.Before)
	notes := strings.Join(d.Notes, "\n")
	assert.Contains(t, notes, "No change is shown: the coverage is 92.7 %, and 100.0 % in the period before")
	assert.Contains(t, notes, "a from 2026-10-01 10:00 to 2026-10-01 11:00, b from 2026-10-01 13:00 to 2026-10-01 15:00, "+
		"born from 2026-10-01 00:00 to 2026-10-01 11:00")
}

func TestEachTranslationOfNamesIsReadAndGuestsAreNotAddedTwice(t *testing.T) {
	for i, n := range translations {
		name := []string{"system_energy_joules_total", "system.energy_joules_total", "system_energy", "system.energy"}[i]
		assert.Equal(t, name, n.metric("system.energy"))
		f := newFake(t)
		f.names = []string{name}
		if i%2 == 1 {
			f.label = func(name string) string { return name }
		}
		assert.Len(t, f.document().Rows, 2)
		assert.Contains(t, f.queries[0], fmt.Sprintf("__name__=%q", name))
		assert.NotContains(t, strings.Join(f.queries, "\n"), "reported")
	}
	f := newFake(t)
	f.names = append(f.names, "vm_energy_joules_total")
	f.document(`cluster="a"`, `x!="%d"`)
	for i, q := range f.queries[:3] {
		assert.Contains(t, q, `,cluster="a",x!="%d"}`)
		assert.Equal(t, i < 2, strings.Contains(q, `energy_method!="reported"`), "workloads of guests are rows")
	}
}

func TestWorkloadsHaveTheNamesOfTheRecordingRules(t *testing.T) {
	rules, err := os.ReadFile("../../../../deploy/prometheus/rules.yaml")
	require.NoError(t, err)
	assert.Contains(t, string(rules), `"`+workloadOfPod+`"`)
}

func TestSmallRowsAreInTheRest(t *testing.T) {
	f := newFake(t)
	for i := range 2 * maxRows {
		f.rows[fmt.Sprint("small", i)] = func(step int) float64 {
			if step == i%steps {
				return 1
			}
			return 0
		}
	}
	f.rows["ended"] = func(step int) float64 {
		if step < 0 {
			return 1e4
		}
		return 0
	}
	f.shown = 1
	d := f.document()
	require.Len(t, d.Rows, 1+maxNamed, "the largest row, and the largest changes")
	assert.Equal(t, []string{"shop", "ci"}, []string{d.Rows[0].Name, d.Rows[1].Name})
	assert.Equal(t, "ended", d.Rows[maxNamed].Name)
	about(t, 144e6, d.Rows[0].Joules)
	assert.Contains(t, strings.Join(d.Notes, "\n"), "the smallest are in the rest")
}

func TestHostileNamesAreTexts(t *testing.T) {
	f := newFake(t)
	f.rows = map[string]values{"a|`<b>\x1b[2J\u202e\n": constant(1e6)}
	f.more = `, "warnings": ["a \u001b[2J warning"]`
	d := f.document()
	for want, write := range map[string]func(*strings.Builder) error{
		"a|`<b>?[2J? ":                      func(b *strings.Builder) error { return d.WriteText(b) },
		"| `` a\\|`<b>?[2J? `` |":           func(b *strings.Builder) error { return d.WriteMarkdown(b) },
		",row,a|`<b>?[2J?,48000000,":        func(b *strings.Builder) error { return d.WriteCSV(b) },
		`"a|` + "`" + `\u003cb\u003e?[2J?"`: func(b *strings.Builder) error { return d.WriteHTML(b) },
	} {
		var b strings.Builder
		require.NoError(t, write(&b))
		assert.Contains(t, b.String(), want)
		assert.False(t, strings.ContainsAny(b.String(), "\x1b\u202e"))
	}
}

func TestTheTextNamesEnergyChangeAndCoverage(t *testing.T) {
	var b strings.Builder
	require.NoError(t, newFake(t).document().WriteText(&b))
	for _, want := range []string{
		"Energy from 2026-10-01 00:00 to 2026-10-03 00:00 (UTC): 93.3 kWh, 37.3 kg CO2e,\n" +
			"  28.00 EUR, +0.0 % compared with the 2 days before.\n",
		"\nNAMESPACE    ENERGY    SHARE    CHANGE     EMISSIONS       COST\n",
		"\nci         9.53 kWh   14.3 %  +204.3 %  3.81 kg CO2e   2.86 EUR\n",
		"\n(rest)     17.1 kWh   25.7 %   -27.2 %  6.85 kg CO2e   5.14 EUR\n",
		"Largest changes: ci +6.40 kWh (+204.3 %).\nCoverage: 100.0 %, nodes: 2.\nRates: 400 g/kWh (FRA), 0.3 EUR per kWh.\n",
	} {
		assert.Contains(t, b.String(), want)
	}
}

func TestThePageHasEveryFieldOfTheReport(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/command-line.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "## energy report")
	section, _, _ = strings.Cut(section, "\n## ")
	var b strings.Builder
	require.NoError(t, newFake(t).document().WriteJSON(&b))
	for line := range strings.Lines(b.String()) {
		if name, _, isField := strings.Cut(strings.TrimLeft(line, ` "`), `": `); isField {
			assert.True(t, strings.Contains(section, "`"+name+"`") || strings.Contains(section, "`"+name+"[]`"), name)
		}
	}
	assert.Contains(t, section, "`"+strings.Join(csvHead, ",")+"`")
	for _, by := range Groupings() {
		assert.True(t, slices.ContainsFunc(strings.Split(section, "\n"), func(line string) bool {
			return strings.HasPrefix(line, "| `--by`") && strings.Contains(line, "`"+by+"`")
		}), by)
	}
}
