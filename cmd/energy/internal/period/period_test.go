// SPDX-License-Identifier: Apache-2.0

package period

import (
	"encoding/json"
	"fmt"
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

// fake is a server with the API of Prometheus, whose nodes have constant power.
type fake struct {
	t       *testing.T
	names   []string                          // of metrics
	zones   []string                          // of nodes
	most    int                               // steps of a query, 0 without a limit
	nodes   map[string]func(step int) float64 // slots with a report
	rows    map[string]func(step int) float64 // joules by namespace
	refuse  func(w http.ResponseWriter) bool  // reports whether it has responded
	queries []string                          // received
	request *http.Request                     // the last one
	label   func(name string) string          // of the database
	odd     string                            // value of all samples, unless it is empty
	more    string                            // members of all responses
}

var from = time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)

const steps = 48 // of a period

func newFake(t *testing.T) *fake {
	constant := func(v float64) func(int) float64 { return func(int) float64 { return v } }
	return &fake{
		t: t, names: []string{"system_energy_joules_total"}, zones: []string{"package"},
		nodes: map[string]func(int) float64{"a": constant(12), "b": constant(13)},
		rows: map[string]func(int) float64{
			"shop": constant(3e6), "ci": func(step int) float64 { return 1e4 * float64(step) },
		},
		label: func(name string) string { return strings.ReplaceAll(name, ".", "_") },
	}
}

// ServeHTTP implements http.Handler.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.request = r; f.refuse != nil && f.refuse(w) {
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/prometheus")
	assert.NoError(f.t, r.ParseForm())
	var data any
	switch path {
	case "/api/v1/label/__name__/values":
		data = f.names
	case "/api/v1/query_range":
		start, _ := strconv.ParseInt(r.Form.Get("start"), 10, 64)
		end, _ := strconv.ParseInt(r.Form.Get("end"), 10, 64)
		if n := int(end-start)/3600 + 1; f.most > 0 && n > f.most {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"status": "error", "errorType": "execution", "error": "too many samples"}`)
			return
		}
		f.queries = append(f.queries, r.Form.Get("query"))
		data = map[string]any{"result": f.result(r.Form.Get("query"), start, end)}
	default:
		data = f.zones
	}
	text, err := json.Marshal(data)
	assert.NoError(f.t, err)
	fmt.Fprintf(w, `{"status": "success"%s, "data": %s}`, f.more, text)
}

func (f *fake) result(query string, start, end int64) (all []series) {
	add := func(value func(step int) float64, labels ...string) {
		s := series{Metric: map[string]string{}}
		for i := 0; i < len(labels); i += 2 {
			s.Metric[f.label(labels[i])] = labels[i+1]
		}
		for at := start; at <= end; at += 3600 {
			step := int(at-from.Unix())/3600 + steps - 1
			if v := value(step); v != 0 {
				text := strconv.FormatFloat(v, 'f', -1, 64)
				if f.odd != "" {
					text = f.odd
				}
				s.Values = append(s.Values, [2]any{float64(at), text})
			}
		}
		all = append(all, s)
	}
	switch {
	case strings.HasPrefix(query, "count_over_time"), strings.HasPrefix(query, "max by"):
		for name, slots := range f.nodes {
			add(slots, "host.name", name)
		}
	case strings.HasPrefix(query, "sum by ()"):
		add(func(int) float64 { return 5e5 }, "", "")
	case strings.Contains(query[:60], f.label("energy.state")):
		add(func(int) float64 { return 5e6 }, "energy.zone", "package", "energy.method", "measured", "energy.state", "active")
		add(func(int) float64 { return 2e6 }, "energy.zone", "package", "energy.method", "measured", "energy.state", "idle")
	default:
		for name, joules := range f.rows {
			add(joules, "k8s.namespace.name", name, workload, "web")
		}
	}
	return all
}

// read reads a report by namespace of two days.
func (f *fake) read(change func(o *Options)) (*Document, error) {
	server := httptest.NewServer(f)
	f.t.Cleanup(server.Close)
	address := strings.Replace(server.URL, "http://", "http://user:secret@", 1) + "/prometheus"
	s, err := NewServer(address, http.Header{"X-Scope-Orgid": {"team"}})
	require.NoError(f.t, err)
	grams, price := 400.0, 0.3
	o := Options{
		By: "namespace", Span: Span{from, from.Add(steps * time.Hour)}, Rows: 20,
		Rates: report.Rates{Grams: &grams, Grid: "FRA", Price: &price, Currency: "EUR"},
	}
	if change != nil {
		change(&o)
	}
	return Read(f.t.Context(), s, o)
}

func (f *fake) document(change func(o *Options)) *Document {
	f.t.Helper()
	d, err := f.read(change)
	require.NoError(f.t, err)
	return d
}

func TestRowsAndRestAddUpToTheActiveEnergy(t *testing.T) {
	f := newFake(t)
	d := f.document(nil)
	assert.Equal(t, Sums{Joules: 336e6, Active: 240e6, Idle: 96e6, Unattributed: 24e6, Coverage: 1, Nodes: 2}, d.Sums)
	assert.Equal(t, d.Sums, *d.Before)
	assert.Equal(t, []Zone{{"package", "measured", 336e6}}, d.Zones)
	sum := d.Rest.Joules
	for _, r := range d.Rows {
		sum += r.Joules
		for i, v := range r.Steps {
			*d.Rest.Steps[i] += *v
		}
	}
	assert.InDelta(t, d.Active, sum, 1e-3)
	for i, s := range d.Steps {
		assert.InDelta(t, *s.Active, *d.Rest.Steps[i], 1e-3)
	}
	assert.Equal(t, []string{"shop", "ci"}, []string{d.Rows[0].Name, d.Rows[1].Name})
	assert.InDelta(t, 0.6, d.Rows[0].Share, 1e-9)
	assert.InDelta(t, 11.28e6, *d.Rows[1].Before, 1)
	assert.InDelta(t, 34.32e6, d.Rows[1].Joules, 1)
	assert.InDelta(t, 336e6/3.6e6*400, *d.CO2e["grams"].(*float64), 1e-3)
	assert.Equal(t, []Part{{"web", 144e6}}, d.Rows[0].Parts)
	assert.Empty(t, d.Gaps)
	assert.Equal(t, "team", f.request.Header.Get("X-Scope-OrgID"))
	user, password, _ := f.request.BasicAuth()
	assert.Equal(t, []string{"user", "secret"}, []string{user, password})
	assert.NotContains(t, d.Source, "user")
}

func TestAQueryThatExceedsALimitIsDivided(t *testing.T) {
	whole := newFake(t).document(nil)
	f := newFake(t)
	f.most = 5
	d := f.document(nil)
	whole.Source = d.Source
	assert.Equal(t, whole, d)
	f.most = -1
	f.refuse = func(w http.ResponseWriter) bool {
		if strings.HasSuffix(f.request.URL.Path, "query_range") {
			http.Error(w, "too busy", http.StatusServiceUnavailable)
			return true
		}
		return false
	}
	_, err := f.read(nil)
	assert.ErrorContains(t, err, "503 Service Unavailable: too busy")
}

func TestErrorsHaveTheTextOfTheServerAndNoCredentials(t *testing.T) {
	for want, refuse := range map[string]func(w http.ResponseWriter){
		"401 Unauthorized: no org id": func(w http.ResponseWriter) { http.Error(w, "no org id", http.StatusUnauthorized) },
		"400 Bad Request: unexpected ?[2J character": func(w http.ResponseWriter) {
			http.Error(w, `{"error": "unexpected \u001b[2J character"}`, http.StatusBadRequest)
		},
		"this is not the API of Prometheus": func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") },
		"redirects": func(w http.ResponseWriter) {
			w.Header().Set("Location", "/login")
			w.WriteHeader(http.StatusFound)
		},
		"EOF": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		f := newFake(t)
		f.refuse = func(w http.ResponseWriter) bool { refuse(w); return true }
		_, err := f.read(nil)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "user")
		assert.NotContains(t, err.Error(), "secret")
	}
	for _, odd := range []string{"NaN", "+Inf", "x"} {
		f := newFake(t)
		f.odd = odd
		_, err := f.read(nil)
		assert.ErrorContains(t, err, "invalid value")
	}
	f := newFake(t)
	f.names = nil
	_, err := f.read(nil)
	assert.ErrorIs(t, err, errNoData)
	_, err = NewServer("ftp://user:secret@host\x7f", nil)
	assert.NotContains(t, err.Error(), "secret")
}

func TestAResponseHasALimit(t *testing.T) {
	f := newFake(t)
	server := httptest.NewServer(f)
	defer server.Close()
	s, err := NewServer(server.URL, http.Header{})
	require.NoError(t, err)
	s.maxBytes = 1000
	query := "sum by (energy_zone, energy_method, energy_state) (a rate of some counter)"
	_, err = s.query(t.Context(), query, Span{from, from.Add(24 * time.Hour)}, StepLength)
	assert.ErrorIs(t, err, errTooMuch)
}

func TestStepsWithoutDataAreGapsAndAreNotFilled(t *testing.T) {
	f := newFake(t)
	away := func(first, last int) func(int) float64 {
		return func(step int) float64 {
			if step >= first && step <= last {
				return 0
			}
			return 12
		}
	}
	f.nodes = map[string]func(int) float64{
		"a": away(steps+10, steps+12), "b": away(steps+11, steps+14),
		"born": func(step int) float64 { return float64(min(12, max(0, 6*(step-steps-20)))) }, // at first for half an hour
	}
	d := f.document(nil)
	assert.Equal(t, []Span{{from.Add(11 * time.Hour), from.Add(13 * time.Hour)}}, d.Gaps)
	assert.Nil(t, d.Steps[11].Active)
	assert.Nil(t, d.Rows[0].Steps[12])
	assert.InDelta(t, 0.5, d.Steps[10].Covered, 1e-6)
	assert.InDelta(t, 1, d.Steps[21].Covered, 1e-6)
	assert.InDelta(t, (48-2-0.5-2*0.5)/48, d.Coverage, 1e-6, "a node is not expected before its first report")
	assert.Nil(t, d.Before)
	notes := strings.Join(d.Notes, "\n")
	assert.Contains(t, notes, "No change is shown: the coverage is 92.7 %, and 100.0 % in the period before")
	assert.Contains(t, notes, "a from 2026-10-01 10:00 to 2026-10-01 13:00")
	assert.Contains(t, notes, "born from 2026-10-01 00:00 to 2026-10-01 21:00")
}

func TestOverlappingZonesAndGuestsAreNotAddedTwice(t *testing.T) {
	f := newFake(t)
	f.document(nil)
	assert.NotContains(t, strings.Join(f.queries, "\n"), "unless")
	assert.NotContains(t, strings.Join(f.queries, "\n"), "reported")
	f = newFake(t)
	f.zones, f.names = []string{"package", "psys"}, append(f.names, "vm_energy_joules_total")
	f.document(func(o *Options) { o.Match = []string{`cluster="a"`, `x!="%d"`} })
	for i, q := range f.queries[:3] {
		assert.Contains(t, q, "unless on (host_name, energy_zone)")
		assert.Contains(t, q, `,cluster="a",x!="%d"}`)
		assert.Equal(t, i < 2, strings.Contains(q, `energy_method!="reported"`), "workloads of guests are rows")
	}
}

func TestEachTranslationOfNamesIsRead(t *testing.T) {
	for i, n := range translations {
		name := []string{"system_energy_joules_total", "system.energy_joules_total", "system_energy", "system.energy"}[i]
		assert.Equal(t, name, n.metric("system.energy"))
		f := newFake(t)
		f.names = []string{name}
		if i%2 == 1 {
			f.label = func(name string) string { return name }
		}
		d := f.document(nil)
		assert.Len(t, d.Rows, 2)
		assert.Contains(t, f.queries[0], fmt.Sprintf("__name__=%q", name))
	}
	f := newFake(t)
	d := f.document(func(o *Options) { o.Rules = true })
	assert.Len(t, d.Rows, 2)
	assert.Contains(t, f.queries[2],
		`sum_over_time({__name__="pod:energy_joules:increase5m",energy_state!="idle"}[3599s])`)
	_, err := f.read(func(o *Options) { o.By, o.Rules = "unit", true })
	assert.ErrorContains(t, err, "there are no recording rules for --by unit")
}

func TestWorkloadsHaveTheNamesOfTheRecordingRules(t *testing.T) {
	rules, err := os.ReadFile("../../../../deploy/prometheus/rules.yaml")
	require.NoError(t, err)
	assert.Contains(t, string(rules), `"`+workloadOfPod+`"`)
}

func TestManyRowsAreInTheRest(t *testing.T) {
	f := newFake(t)
	for i := range 2 * maxRows {
		f.rows[fmt.Sprint("small", i)] = func(step int) float64 {
			if step == i%steps {
				return 1
			}
			return 0
		}
	}
	d := f.document(func(o *Options) { o.Rows = 1 })
	require.Len(t, d.Rows, 1+maxMovers, "the largest row, and the largest changes")
	assert.Equal(t, "shop", d.Rows[0].Name)
	assert.InDelta(t, 144e6, d.Rows[0].Joules, 1)
	assert.Contains(t, strings.Join(d.Notes, "\n"), "the smallest are in the rest")
}

func TestHostileNamesAreTexts(t *testing.T) {
	f := newFake(t)
	f.rows = map[string]func(int) float64{"a|`<b>\x1b[2J\u202e\n": func(int) float64 { return 1e6 }}
	f.more = `, "warnings": ["a \u001b[2J warning"]`
	d := f.document(nil)
	var text, markdown, table, page strings.Builder
	require.NoError(t, d.WriteText(&text))
	require.NoError(t, d.WriteMarkdown(&markdown))
	require.NoError(t, d.WriteCSV(&table))
	require.NoError(t, d.WriteHTML(&page))
	assert.Contains(t, text.String(), "a|`<b>?[2J? ")
	assert.Contains(t, markdown.String(), "| `` a\\|`<b>?[2J? `` |")
	assert.Contains(t, table.String(), ",row,a|`<b>?[2J?,48000000,")
	assert.Contains(t, page.String(), `"a|`+"`"+`\u003cb\u003e?[2J?"`)
	for _, written := range []string{text.String(), markdown.String(), table.String(), page.String()} {
		assert.False(t, strings.ContainsAny(written, "\x1b\u202e"))
	}
}

func TestTheTextNamesEnergyChangeAndCoverage(t *testing.T) {
	var b strings.Builder
	require.NoError(t, newFake(t).document(nil).WriteText(&b))
	for _, want := range []string{
		"Energy from 2026-10-01 00:00 to 2026-10-03 00:00: 93.3 kWh, 37.3 kg CO2e, 28.00\n" +
			"  EUR, nodes: 2, +0.0 % compared with the 2 days before.\n",
		"\nNAMESPACE    ENERGY    SHARE    CHANGE     EMISSIONS       COST\n",
		"\nci         9.53 kWh   14.3 %  +204.3 %  3.81 kg CO2e   2.86 EUR\n",
		"\n(rest)     17.1 kWh   25.7 %   -27.2 %  6.85 kg CO2e   5.14 EUR\n",
		"Largest changes: ci +6.40 kWh (+204.3 %).\nCoverage: 100.0 %.\nRates: 400 g/kWh (FRA), 0.3 EUR per kWh.\n",
	} {
		assert.Contains(t, b.String(), want)
	}
}

func TestThePageHasEveryFieldOfTheReport(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/command-line.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "## energy report")
	section, _, _ = strings.Cut(section, "\n## ")
	var check func(value any)
	check = func(value any) {
		switch v := value.(type) {
		case []any:
			for _, item := range v[:min(1, len(v))] {
				check(item)
			}
		case map[string]any:
			for name, item := range v {
				assert.True(t, strings.Contains(section, "`"+name+"`") || strings.Contains(section, "`"+name+"[]`"), name)
				check(item)
			}
		}
	}
	var b strings.Builder
	require.NoError(t, newFake(t).document(nil).WriteJSON(&b))
	var d any
	require.NoError(t, json.Unmarshal([]byte(b.String()), &d))
	check(d)
	assert.Contains(t, section, "`"+strings.Join(csvHead, ",")+"`")
	for _, by := range Groupings() {
		assert.True(t, slices.ContainsFunc(strings.Split(section, "\n"), func(line string) bool {
			return strings.HasPrefix(line, "| `--by`") && strings.Contains(line, "`"+by+"`")
		}), by)
	}
}
