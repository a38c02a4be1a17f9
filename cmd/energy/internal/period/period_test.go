// SPDX-License-Identifier: Apache-2.0

package period

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/report"
)

var from = time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)

const steps = 48 // of a period

// values returns the values of the steps of both periods, the first of which is -steps.
func values(of func(step int) number) (all []number) {
	for step := -steps; step < steps; step++ {
		all = append(all, of(step))
	}
	return all
}

func constant(v number) []number { return values(func(int) number { return v }) }

// newTestReading returns a reading of two days by namespace.
func newTestReading(t *testing.T, server string, match ...string) *reading {
	t.Helper()
	s, err := newServer(server, http.Header{"X-Scope-Orgid": {"team"}, "X-Token": {"Token a-long-token"}})
	require.NoError(t, err)
	grams, price := 400.0, 0.3
	return newReading(s, Options{
		By: "namespace", Span: Span{from, from.Add(steps * time.Hour)}, Match: match, Rows: 3,
		Rates: report.Rates{Grams: &grams, Grid: "FRA", Price: &price, Currency: "EUR"},
	})
}

// newExample returns the data of two nodes that always report.
func newExample(t *testing.T) *reading {
	t.Helper()
	r := newTestReading(t, "http://user:secret@host/prometheus")
	r.takeNodes(map[string]string{"energy_zone": "package", "energy_method": "measured"}, 0, constant(5e6))
	r.takeNodes(map[string]string{"energy_zone": "package", "energy_method": "measured", "energy_state": "idle"}, 0, constant(2e6))
	r.takeUnattributed(nil, 0, constant(5e5))
	r.takeRow(map[string]string{"k8s_namespace_name": "shop", workload: "web"}, 0, constant(3e6))
	r.takeRow(map[string]string{"k8s_namespace_name": "ci"}, 0, values(func(step int) number { return 1e4 * number(step+steps) }))
	r.takeSlots(map[string]string{"host_name": "a"}, 0, constant(12))
	r.takeSlots(map[string]string{"host_name": "b"}, 0, constant(13))
	return r
}

// about asserts that two numbers differ only by rounding.
func about(t *testing.T, want, got number, more ...any) {
	t.Helper()
	assert.InDelta(t, float64(want), float64(got), 1e-9*max(1, math.Abs(float64(want))), more...)
}

func TestRowsAndRestAddUpToTheActiveEnergy(t *testing.T) {
	d := newExample(t).document()
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
	assert.Equal(t, "http://host/prometheus", d.Source)
}

func TestStepsWithoutDataAreGapsAndAreNotFilled(t *testing.T) {
	r := newExample(t)
	away := func(first, last int) []number {
		return values(func(step int) number {
			if step >= first && step <= last {
				return 0
			}
			return 12
		})
	}
	r.takeSlots(map[string]string{"host_name": "a"}, 0, away(10, 12))
	r.takeSlots(map[string]string{"host_name": "b"}, 0, away(11, 14))
	r.takeSlots(map[string]string{"host_name": "born"}, 0, values(func(step int) number {
		return number(min(12, max(0, 6*(step-20)))) // at first for half an hour
	}))
	d := r.document()
	assert.Equal(t, []Span{{from.Add(11 * time.Hour), from.Add(13 * time.Hour)}}, d.Gaps)
	for _, v := range []number{d.Steps[11].Active, d.Rows[0].Steps[12], d.Rest.Steps[11]} {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		assert.Equal(t, "null", string(text))
	}
	about(t, 0.5, d.Steps[10].Covered)
	about(t, 1, d.Steps[21].Covered)
	assert.Equal(t, "99.9 %", covered(0.99996), "a coverage is rounded down")
	about(t, (48-2-0.5-2*0.5)/48, d.Coverage, "a node is not expected before its first report")
	assert.Nil(t, d.Before)
	notes := strings.Join(d.Notes, "\n")
	assert.Contains(t, notes, "No change is shown: the coverage is 92.7 %, and 100.0 % in the period before")
	assert.Contains(t, notes, "a from 2026-10-01 10:00 to 2026-10-01 11:00, b from 2026-10-01 13:00 to 2026-10-01 15:00, "+
		"born from 2026-10-01 00:00 to 2026-10-01 11:00")
}

func TestWithoutEnergyThereAreNoShares(t *testing.T) {
	r := newTestReading(t, "http://host")
	r.takeNodes(map[string]string{"energy_zone": "dram", "energy_method": "modeled"}, 0, constant(0))
	r.takeNodes(map[string]string{"energy_zone": "package", "energy_method": "modeled"}, 0, constant(0))
	r.takeRow(map[string]string{"k8s_namespace_name": "shop"}, 0, constant(3))
	r.takeSlots(map[string]string{"host_name": "a"}, 0, constant(12))
	var b strings.Builder
	d := r.document()
	require.NoError(t, d.WriteJSON(&b))
	assert.Contains(t, b.String(), `"share": null`)
	assert.Regexp(t, "^package .*dram ", strings.Join(d.Notes, " "))
}

func TestAReportWithoutRowsNamesTheMissingSeriesOrLabels(t *testing.T) {
	names := " (see https://github.com/energyreceiver/energyreceiver/blob/main/docs/configuration.md#names-of-containers)"
	for by, want := range map[string]string{
		"container": "the series of container_energy_joules_total have no label k8s_container_name or container_name" + names,
		"workload":  "the series of k8s_pod_energy_joules_total have no label k8s_pod_name" + names,
		"vm":        "the series of vm_energy_joules_total have no label vm_name",
	} {
		r := newExample(t)
		r.By, r.grouping, r.rows = by, groupings[by], map[string]*Row{}
		assert.Contains(t, r.document().Notes, "There are no rows by "+by+": no series of "+r.metric(r.energy))
		r.notes = nil
		r.takeRow(map[string]string{"k8s_namespace_name": "shop"}, 0, constant(1))
		assert.Contains(t, r.document().Notes, "There are no rows by "+by+": "+want)
	}
}

func TestSmallRowsAreInTheRest(t *testing.T) {
	r := newExample(t)
	r.Rows = 1
	r.takeRow(map[string]string{"k8s_namespace_name": "ended"}, 0, slices.Concat(constant(1e4)[:steps], make([]number, steps)))
	for i := range 2 * maxRows {
		r.takeRow(map[string]string{"k8s_namespace_name": fmt.Sprint("small", i)}, steps+i%steps, []number{1})
	}
	d := r.document()
	require.Len(t, d.Rows, 1+maxNamed, "the largest row, and the largest changes")
	assert.Equal(t, []string{"shop", "ci"}, []string{d.Rows[0].Name, d.Rows[1].Name})
	assert.Equal(t, "ended", d.Rows[maxNamed].Name)
	about(t, 144e6, d.Rows[0].Joules)
	assert.Contains(t, strings.Join(d.Notes, "\n"), "the smallest are part of (rest)")
}

func TestHostileNamesAreTexts(t *testing.T) {
	r := newExample(t)
	r.takeRow(map[string]string{"k8s_namespace_name": "a|`<b>\x1b[2J\u202e\n"}, 0, constant(1e6))
	r.note("%s", "a \x1b[2J warning")
	d := r.document()
	for want, write := range map[string]func(io.Writer) error{
		"a|`<b>?[2J? ":                      d.WriteText,
		"| `` a\\|`<b>?[2J? `` |":           d.WriteMarkdown,
		",row,a|`<b>?[2J?,48000000,":        d.WriteCSV,
		`"a|` + "`" + `\u003cb\u003e?[2J?"`: d.WriteHTML,
	} {
		var b strings.Builder
		require.NoError(t, write(&b))
		assert.Contains(t, b.String(), want)
		assert.False(t, strings.ContainsAny(b.String(), "\x1b\u202e"))
	}
}

func TestTheTextNamesEnergyChangeAndCoverage(t *testing.T) {
	var b strings.Builder
	require.NoError(t, newExample(t).document().WriteText(&b))
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

func TestTheTextNamesTheLengthOfThePeriodAndNoNegativeZero(t *testing.T) {
	for hours, want := range map[time.Duration]string{1: "hour", 3: "3 hours", 48: "2 days", 24: "day", 720: "30 days", 745: "31 days"} {
		d := &Document{Span: Span{from, from.Add(hours * time.Hour)}, Before: &Sums{Energies: Energies{Joules: 1e5}}}
		d.Joules = 1e5 - 1
		assert.Contains(t, d.sentences()[0], ", +0.0 % compared with the "+want+" before")
	}
}

func TestThePageHasTheFieldsOfTheReport(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/command-line.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "## energy report")
	section, _, _ = strings.Cut(section, "\n## ")
	var b strings.Builder
	require.NoError(t, newExample(t).document().WriteJSON(&b))
	field := regexp.MustCompile(`"(\w+)":`)
	assert.Subset(t, field.FindAllString(section, -1), field.FindAllString(b.String(), -1))
	assert.Subset(t, field.FindAllString(b.String(), -1), field.FindAllString(section, -1))
	for _, by := range Groupings() {
		assert.Contains(t, section, "`"+by+"`")
	}
}

func TestWorkloadsHaveTheNamesOfTheRecordingRules(t *testing.T) {
	rules, err := os.ReadFile("../../../../deploy/prometheus/rules.yaml")
	require.NoError(t, err)
	assert.Contains(t, string(rules), `"`+workloadOfPod+`"`)
}

// fake is a server with the API of Prometheus. All of its series have the same value.
type fake struct {
	names   []string                                // of metrics
	value   string                                  // of all series
	instead func(w http.ResponseWriter, n int) bool // may respond to a query of n steps
	queries []string                                // received
	request *http.Request                           // the last one
}

// ServeHTTP implements http.Handler.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start, _ := strconv.Atoi(r.FormValue("start"))
	end, _ := strconv.Atoi(r.FormValue("end"))
	f.request = r
	var data any = f.names
	if r.URL.Path == "/prometheus/api/v1/query_range" {
		f.queries = append(f.queries, r.FormValue("query"))
		if f.instead != nil && f.instead(w, (end-start)/3600+1) {
			return
		}
		points := [][2]any{}
		for at := start; at <= end; at += 3600 {
			points = append(points, [2]any{at, f.value})
		}
		labels := map[string]string{"host_name": "a", "k8s_namespace_name": "shop"}
		data = map[string]any{"result": []any{map[string]any{"metric": labels, "values": points}}}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"data": data, "warnings": []string{"slow"}})
}

// read reads a report from the server, whose responses are bounded unless most is 0.
func (f *fake) read(t *testing.T, most int64, match ...string) (*Document, error) {
	t.Helper()
	if f.value = cmp.Or(f.value, "12"); f.names == nil {
		f.names = []string{"system_energy_joules_total"}
	}
	web := httptest.NewServer(f)
	defer web.Close()
	r := newTestReading(t, strings.Replace(web.URL, "http://", "http://user:secret@", 1)+"/prometheus", match...)
	r.maxBytes = cmp.Or(most, r.maxBytes)
	if r.read(t.Context()); r.err != nil {
		return nil, r.err
	}
	return r.document(), nil
}

func TestAQueryThatExceedsALimitIsDivided(t *testing.T) {
	refusing := &fake{instead: func(w http.ResponseWriter, n int) bool {
		if n > 2 {
			http.Error(w, `{"error": "too many samples"}`, http.StatusUnprocessableEntity)
		}
		return n > 2
	}}
	large := &fake{}
	for f, most := range map[*fake]int64{{}: 0, refusing: 0, large: 300} {
		d, err := f.read(t, most)
		require.NoError(t, err)
		assert.Equal(t, most != 0 || f == refusing, len(f.queries) > 4*4)
		about(t, 12*steps, d.Joules)
		about(t, 12*steps, d.Rows[0].Joules)
		about(t, 1, d.Coverage)
		assert.Equal(t, []string{"slow"}, d.Notes)
		assert.Equal(t, "team", f.request.Header.Get("X-Scope-OrgID"))
		user, password, _ := f.request.BasicAuth()
		assert.Equal(t, []string{"user", "secret"}, []string{user, password})
	}
	_, err := large.read(t, 100)
	assert.ErrorContains(t, err, "the response has more than")
}

func TestErrorsHaveTheTextOfTheServerAndNoCredentials(t *testing.T) {
	for want, respond := range map[string]func(w http.ResponseWriter){
		"401 Unauthorized: no org id":       func(w http.ResponseWriter) { http.Error(w, "no org id", http.StatusUnauthorized) },
		"503 Service Unavailable: too busy": func(w http.ResponseWriter) { http.Error(w, "too busy", http.StatusServiceUnavailable) },
		"400 Bad Request: unexpected ?[2J letter": func(w http.ResponseWriter) {
			http.Error(w, `{"error": "unexpected \u001b[2J letter"}`, http.StatusBadRequest)
		},
		"this is not the API of Prometheus": func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") },
		"403 Forbidden: no … for …, team": func(w http.ResponseWriter) {
			http.Error(w, "no a-long-token for secret, team", http.StatusForbidden)
		},
		"302 Found": func(w http.ResponseWriter) {
			w.Header().Set("Location", "/login")
			w.WriteHeader(http.StatusFound)
		},
		"EOF": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		f := &fake{instead: func(w http.ResponseWriter, _ int) bool { respond(w); return true }}
		_, err := f.read(t, 0)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "user")
		assert.NotContains(t, err.Error(), "secret")
	}
	for value, want := range map[string]string{"NaN": "invalid number", "x": "invalid number", "1e999": "invalid value"} {
		_, err := (&fake{value: value}).read(t, 0)
		assert.ErrorContains(t, err, want)
	}
	_, err := (&fake{names: []string{"up"}}).read(t, 0)
	require.ErrorIs(t, err, errNoData)
	assert.NotContains(t, err.Error(), "--match")
	_, err = (&fake{names: []string{"up"}}).read(t, 0, `k8s_namespace_name="shop"`)
	require.ErrorContains(t, err, "--match also selects the series of nodes")
	err = CheckServer("http://user:%zsecret@host")
	require.ErrorContains(t, err, "must be percent-encoded")
	assert.NotContains(t, err.Error(), "secret")
	assert.NotContains(t, CheckServer("http://host?a=b").Error(), "percent-encoded")
}

func TestEachTranslationOfNamesIsReadAndGuestsAreNotAddedTwice(t *testing.T) {
	for i, n := range translations {
		name := []string{"system_energy_joules_total", "system.energy_joules_total", "system_energy", "system.energy"}[i]
		f := &fake{names: []string{name}}
		_, err := f.read(t, 0)
		require.NoError(t, err)
		for _, q := range f.queries {
			assert.Contains(t, q, fmt.Sprintf("{__name__=%q,%s!~", name, n.quoted("energy.zone")))
			assert.NotContains(t, q, "reported")
		}
	}
	f := &fake{names: []string{"system_energy_joules_total", "vm_energy_joules_total"}}
	_, err := f.read(t, 0, `cluster="a"`, `x!="%d"`)
	require.NoError(t, err)
	for i, q := range f.queries[:3] {
		assert.Contains(t, q, `,cluster="a",x!="%d"}`)
		assert.Equal(t, i < 2, strings.Contains(q, `energy_method!="reported"`), "workloads of guests are rows")
	}
}
