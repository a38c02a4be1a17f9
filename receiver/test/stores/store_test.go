// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// store is a database with one way to receive metrics: a row of the table.
type store struct {
	name     string // of the database and the way in
	language Language
	// open starts it with an empty database below dir, on loopback. The end of the test stops it.
	// The error is errLacks if this machine lacks a requirement.
	open func(t *testing.T, dir string) (backend, error)
}

// backend is a running database.
type backend interface {
	// send sends the collection of a time, and returns when it is accepted. Collections are in
	// order of time.
	send(at time.Time, md pmetric.Metrics) error
	// settle is called after the last collection, and returns when queries return all data.
	settle() error
	// Query returns the answer at a time.
	Query(text string, at time.Time) ([]series.Row, error)
}

// errLacks is wrapped by errors that name a missing requirement.
var errLacks = errors.New("lacks")

// storesTable are all stores, in the order of the table.
var storesTable = []store{
	{"Prometheus 3.15, OTLP", PromQL, openPrometheus()},
	{"Prometheus 3.15 with range selectors, OTLP", Extended, openPrometheus("promql-extended-range-selectors")},
	{"Prometheus 3.15 with start timestamps, OTLP", PromQL, openPrometheus("st-storage", "use-start-timestamps")},
	{"Prometheus 3.15, scraped", PromQL, openScraped},
	{"Prometheus 3.15, remote write", PromQL, openPrometheusRemoteWrite},
	{"VictoriaMetrics 1.137, OTLP", MetricsQL, openVictoriaMetrics("-opentelemetry.usePrometheusNaming")},
	{"VictoriaMetrics 1.137, remote write", MetricsQL, openVictoriaMetricsRemoteWrite},
	{"VictoriaMetrics 1.79, remote write", MetricsQL, openVictoriaMetrics179},
	{"Mimir 3.0, OTLP", PromQL, openMimir()},
	{"ClickHouse 26.7", SQL, openClickHouse},
	{"OTLP file", Files, openFile},
}

// looser has the bounds of databases that do not meet the table's, by the names of store and query.
var looser = map[[2]string]float64{
	// The last scrape is up to 15 s old. No scrape contains the last collection of a collector, and
	// after a change of settings its totals restart.
	{"Prometheus 3.15, scraped", "node, increase"}: 0.01,
}

// programs is the directory of the built programs: build/integration.
func programs(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../build/integration")
	require.NoError(t, err)
	return dir
}

// program returns the path of a program below programs, or errLacks.
func program(t *testing.T, elements ...string) (string, error) {
	path := filepath.Join(append([]string{programs(t)}, elements...)...)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w %s", errLacks, path)
	}
	return path, nil
}

// start starts a program until the end of the test, and waits until a URL answers.
func start(t *testing.T, cmd *exec.Cmd, log, url string) error {
	t.Helper()
	p := &series.Program{Command: cmd, Log: log}
	t.Cleanup(func() { p.End(unix.SIGTERM) })
	return p.Start(url)
}

// post sends OTLP over HTTP.
func post(url string, md pmetric.Metrics) error {
	packed, _, err := series.Pack(md)
	if err != nil {
		return err
	}
	_, err = series.Export(context.Background(), http.DefaultClient, url, packed)
	return err
}

var (
	storeNames   = flag.String("stores", "", "run the stores whose names contain one of these, divided by |; all if it is 'all'")
	variantNames = flag.String("stores.variants", "three restarts", "run these variants of the hour, divided by |; all if it is 'all'")
)

// variants are the hours. The receiver runs for ten minutes before the hour.
var variants = []struct {
	name string
	series.Hour
}{
	{"no restart", series.Hour{Seed: 1, Length: 70 * time.Minute, Stored: true}},
	{"three restarts", series.Hour{Seed: 1, Length: 70 * time.Minute, Interruptions: interruptions, Stored: true}},
	{"without storage", series.Hour{Seed: 1, Length: 70 * time.Minute, Interruptions: interruptions}},
}

var interruptions = []series.Interruption{
	{Kind: series.Stop, After: 25*time.Minute + 3700*time.Millisecond, Down: 20 * time.Second},
	{Kind: series.Crash, After: 40*time.Minute + 8200*time.Millisecond, Down: 45 * time.Second},
	{Kind: series.Change, After: 55*time.Minute + 5500*time.Millisecond, Down: 30 * time.Second},
}

func chosen(names, name string) bool {
	return names == "all" || slices.ContainsFunc(strings.Split(names, "|"), func(n string) bool {
		return n != "" && strings.Contains(strings.ToLower(name), strings.ToLower(n))
	})
}

// TestStores sends the hour to each store and prints the store's answers.
func TestStores(t *testing.T) {
	if *storeNames == "" {
		t.Skip("make stores runs it")
	}
	for _, v := range variants {
		if !chosen(*variantNames, v.name) {
			continue
		}
		h, _ := v.Record(t)
		t.Run(v.name, func(t *testing.T) {
			var table []string
			for _, s := range storesTable {
				if chosen(*storeNames, s.name) {
					t.Run(s.name, func(t *testing.T) { table = append(table, runStore(t, s, h, uncounted(v.Hour))...) })
				}
			}
			fmt.Printf("\n%s\n\n| store | query | truth | Σ | worst row |\n|---|---|---|---|---|\n%s\n", v.name, strings.Join(table, "\n"))
		})
	}
}

// uncounted returns the part of the hour whose energy the receiver does not count. Without storage,
// this is each downtime and the time since the last collection before it.
func uncounted(h series.Hour) float64 {
	if h.Stored {
		return 0
	}
	var lost time.Duration
	for _, i := range h.Interruptions {
		lost += series.Interval + i.Down
	}
	return lost.Hours()
}

// runStore returns the rows of the table. It adds lost to the bounds of queries with metered truth.
func runStore(t *testing.T, s store, h *series.Recording, lost float64) (table []string) {
	b, err := s.open(t, t.TempDir())
	if errors.Is(err, errLacks) {
		t.Skip(err)
	}
	require.NoError(t, err)
	h.EndAt(time.Now().Add(-time.Minute).Truncate(5 * time.Minute))
	began := time.Now()
	for _, c := range h.Collections {
		md, err := h.Metrics(c)
		require.NoError(t, err)
		require.NoError(t, b.send(c.At, md), "the collection at %v", c.At)
	}
	require.NoError(t, b.settle())
	t.Logf("sent in %v", time.Since(began).Round(time.Second))
	for _, q := range slices.Concat(Queries, Recipes, ruleQueries(t)) {
		text := q.In(s.language)
		if text == "" {
			continue
		}
		began := time.Now()
		r, err := ask(b, &q, text, h.Truth)
		if !assert.NoError(t, err, text) {
			continue
		}
		t.Logf("%s: %v (%v) %s", q.Name, r, time.Since(began).Round(time.Millisecond), r.worstRow)
		table = append(table, fmt.Sprintf("| %s | %s | %s |", s.name, q.Name, r))
		bound := q.within(s.language)
		if looser, ok := looser[[2]string{s.name, q.Name}]; ok {
			bound = looser
		}
		if q.Metered {
			bound += lost
		}
		if bound > 0 {
			assert.LessOrEqual(t, r.worst, bound, "%s: %v", q.Name, r)
		}
	}
	if s.language == PromQL {
		logSeries(t, b, h.Truth.End)
	}
	return table
}

// logSeries prints the number of series of each name in a database, for the hour and its end.
func logSeries(t *testing.T, b backend, end time.Time) {
	t.Helper()
	for what, query := range map[string]string{
		"in the hour": `count by (__name__) (last_over_time({__name__=~".+"}[1h]))`,
		"at its end":  `count by (__name__) (last_over_time({__name__=~".+"}[15s]))`,
	} {
		rows, err := b.Query(query, end)
		require.NoError(t, err)
		for _, r := range rows {
			t.Logf("series %s: %s %.0f", what, r.Labels["__name__"], r.Value)
		}
	}
}

// result compares answers with the truth.
type result struct {
	truth, answer  float64 // sums of all rows
	worst          float64 // the largest relative difference of a row
	worstRow       string
	missing, extra int // rows
}

func (r result) String() string {
	text := fmt.Sprintf("%.0f | %+.3f %% | %.3f %%", r.truth, 100*(r.answer/r.truth-1), 100*r.worst)
	if r.missing+r.extra > 0 {
		text += fmt.Sprintf(", %d missing, %d too many", r.missing, r.extra)
	}
	return text
}

// ask runs a query at all of its times.
func ask(b backend, q *Query, text string, truth *series.Truth) (r result, err error) {
	var except map[string]bool
	if q.Except != nil {
		except = q.Except(truth)
	}
	for _, at := range q.moments(truth) {
		rows, err := b.Query(text, at)
		if err != nil {
			return r, err
		}
		r.compare(q, rows, q.Truth(truth, at), except)
	}
	return r, nil
}

// compare adds an answer.
func (r *result) compare(q *Query, rows []series.Row, want map[string]float64, except map[string]bool) {
	got := map[string]float64{}
	for _, row := range rows {
		got[row.Labels[q.By]+row.Labels[series.Label(q.By)]] += row.Value
	}
	for key, joules := range want {
		if except[key] {
			continue
		}
		r.truth += joules
		if joules < q.Least {
			continue
		}
		value, found := got[key]
		if !found {
			r.missing++
		}
		if off := math.Abs(value/joules - 1); off > r.worst || math.IsNaN(off) {
			r.worst, r.worstRow = off, key
		}
	}
	for key, value := range got {
		if except[key] {
			continue
		}
		r.answer += value
		if _, known := want[key]; !known && value > q.Least {
			r.extra++
		}
	}
}
