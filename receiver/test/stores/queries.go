// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"strings"
	"time"
)

// Language is the query language of a database.
type Language string

// The languages. MetricsQL is VictoriaMetrics's; a query without a text of its own in it is asked in PromQL.
const (
	PromQL    Language = "PromQL"
	MetricsQL Language = "MetricsQL"
	Extended  Language = "PromQL with promql-extended-range-selectors" // of Prometheus with this feature, and PromQL otherwise
	SQL       Language = "SQL"                                         // of ClickHouse, on the tables of its exporter
	Files     Language = "a command"                                   // on files of the file exporter
)

// Query is a question to a database, with the texts that ask it at the end of the hour. The texts are those of
// docs/prometheus.md: a test compares them.
type Query struct {
	// Name names it in tables and tests.
	Name string
	// Question is the question that the query answers, in a user's words.
	Question string
	// Text is the text of the query by language. A language without a text cannot express the
	// query.
	Text map[Language]string
	// By is the attribute by which the rows of the answer differ, as in OTLP. It is empty where there is one row.
	By string
	// Truth returns the correct answer at a time, by the value of By.
	Truth func(t *Truth, at time.Time) map[string]float64
	// Within is the largest relative difference of a row. 0 states that there is no bound: the
	// query is in the table to show what it gives.
	Within float64
	// WithinIn is the same in languages in which it is another one.
	WithinIn map[Language]float64
	// Least is the truth below which a row is not compared, in joules or watts.
	Least float64
	// Except, if it is set, is which values of By are not compared.
	Except func(*Truth) map[string]bool
	// Every, if it is not 0, has the query asked at times so far apart, from an Every after the
	// beginning of the hour to its end.
	Every time.Duration
}

// In returns the text in a language, empty if there is none.
func (q *Query) In(l Language) string {
	if text, ok := q.Text[l]; ok || l != MetricsQL && l != Extended {
		return text
	}
	return q.Text[PromQL]
}

// within returns the bound in a language.
func (q *Query) within(l Language) float64 {
	if bound, ok := q.WithinIn[l]; ok {
		return bound
	}
	return q.Within
}

// moments returns when the query is asked.
func (q *Query) moments(t *Truth) (moments []time.Time) {
	if q.Every == 0 {
		return []time.Time{t.End}
	}
	for at := t.Begin.Add(q.Every); !at.After(t.End); at = at.Add(q.Every) {
		moments = append(moments, at)
	}
	return moments
}

// Queries are all questions.
var Queries = []Query{
	{
		Name:     "node, increase",
		Question: "How many joules did the node's package use in the last hour?",
		Text: map[Language]string{
			PromQL: `sum(increase(system_energy_joules_total{energy_zone="package"}[1h]))`,
			SQL:    increased("system.energy", "", "1 HOUR"),
			Files:  added("system.energy", ""),
		},
		Truth:  meter("package", time.Hour),
		Within: 0.005,
	},
	{
		Name:     "processes, Σ increase",
		Question: "How many of them did all processes?",
		Text: map[Language]string{
			PromQL: `sum(increase(process_energy_joules_total{energy_zone="package"}[1h]))`,
			SQL:    increased("process.energy", "", "1 HOUR"),
			Files:  added("process.energy", ""),
		},
		Truth:    each("process.energy", "", time.Hour),
		WithinIn: map[Language]float64{MetricsQL: 0.005, SQL: 0.005, Files: 0.005},
	},
	{
		Name:     "processes, Σ of last less first",
		Question: "How many of them did all processes, without extrapolation?",
		Text:     map[Language]string{PromQL: "sum(" + used(`process_energy_joules_total{energy_zone="package"}`, "1h") + ")"},
		Truth:    each("process.energy", "", time.Hour),
		Within:   0.005,
	},
	{
		Name:     "processes, Σ of five minutes each",
		Question: "How many of them did all processes, added up of five minutes each?",
		Text: map[Language]string{
			PromQL:    "sum_over_time(sum(" + used(`process_energy_joules_total{energy_zone="package"}`, "5m") + ")[1h:5m])",
			MetricsQL: "", // its subqueries may have a step more: both ends of the range
		},
		Truth:  each("process.energy", "", time.Hour),
		Within: 0.005,
	},
	{
		Name:     "containers, Σ increase",
		Question: "How many did all containers?",
		Text: map[Language]string{
			PromQL: `sum(increase(container_energy_joules_total{energy_zone="package"}[1h]))`,
			SQL:    increased("container.energy", "", "1 HOUR"),
			Files:  added("container.energy", ""),
		},
		Truth:    each("container.energy", "", time.Hour),
		WithinIn: map[Language]float64{MetricsQL: 0.005, SQL: 0.005, Files: 0.005},
	},
	{
		Name:     "containers, Σ increase, anchored",
		Question: "How many did all containers?",
		Text:     map[Language]string{Extended: `sum(increase(container_energy_joules_total{energy_zone="package"}[1h] anchored))`},
		Truth:    each("container.energy", "", time.Hour),
	},
	{
		Name:     "containers, Σ of last less first",
		Question: "How many did all containers, without extrapolation?",
		Text:     map[Language]string{PromQL: "sum(" + used(`container_energy_joules_total{energy_zone="package"}`, "1h") + ")"},
		Truth:    each("container.energy", "", time.Hour),
		Within:   0.005,
	},
	{
		Name:     "containers, each increase",
		Question: "How many did each container?",
		Text: map[Language]string{
			PromQL: `sum by (container_id) (increase(container_energy_joules_total{energy_zone="package"}[1h]))`,
			SQL:    increased("container.energy", "container.id", "1 HOUR"),
			Files:  added("container.energy", "container.id"),
		},
		By:       "container.id",
		Truth:    each("container.energy", "container.id", time.Hour),
		WithinIn: map[Language]float64{MetricsQL: 0.001, SQL: 0.001, Files: 0.001},
		Least:    1,
	},
	{
		Name:     "containers, each increase, anchored",
		Question: "How many did each container?",
		Text:     map[Language]string{Extended: `sum by (container_id) (increase(container_energy_joules_total{energy_zone="package"}[1h] anchored))`},
		By:       "container.id",
		Truth:    each("container.energy", "container.id", time.Hour),
		Least:    1,
	},
	{
		Name:     "containers, each last less first",
		Question: "How many did each container, without extrapolation?",
		Text:     map[Language]string{PromQL: "sum by (container_id) (" + used(`container_energy_joules_total{energy_zone="package"}`, "1h") + ")"},
		By:       "container.id",
		Truth:    each("container.energy", "container.id", time.Hour),
		Except:   beganAgain("container.energy", "container.id"),
		Within:   0.001,
		Least:    1,
	},
	{
		Name:     "namespaces, each last less first",
		Question: "How many did the pods of each namespace?",
		Text:     map[Language]string{PromQL: "sum by (k8s_namespace_name) (" + used(`k8s_pod_energy_joules_total{energy_zone="package"}`, "1h") + ")"},
		By:       "k8s.namespace.name",
		Truth:    each("k8s.pod.energy", "k8s.namespace.name", time.Hour),
		Within:   0.005,
	},
	{
		Name:     "processes, Σ increase, as power",
		Question: "How many watts do all processes draw?",
		Text: map[Language]string{
			PromQL: `sum(increase(process_energy_joules_total{energy_zone="package"}[5m])) / 300`,
			SQL:    strings.Replace(increased("process.energy", "", "5 MINUTE"), "sum(increase)", "sum(increase) / 300", 1),
		},
		Truth:    powerOfProcesses,
		WithinIn: map[Language]float64{MetricsQL: 0.005, SQL: 0.005},
		Every:    5 * time.Minute,
	},
	{
		Name:     "processes, Σ rate",
		Question: "How many watts do all processes draw?",
		Text:     map[Language]string{PromQL: `sum(rate(process_energy_joules_total{energy_zone="package"}[5m]))`},
		Truth:    powerOfProcesses,
		Every:    15 * time.Minute,
	},
	{
		Name:     "processes, Σ rate, anchored",
		Question: "How many watts do all processes draw?",
		Text:     map[Language]string{Extended: `sum(rate(process_energy_joules_total{energy_zone="package"}[5m] anchored))`},
		Truth:    powerOfProcesses,
		Every:    15 * time.Minute,
	},
	{
		Name:     "processes, Σ of last less first, as power",
		Question: "How many watts do all processes draw, without extrapolation?",
		Text:     map[Language]string{PromQL: "sum(" + used(`process_energy_joules_total{energy_zone="package"}`, "5m") + ") / 300"},
		Truth:    powerOfProcesses,
		Every:    15 * time.Minute,
	},
}

// used returns what counters increased by within a window that ends now, as the rules of
// deploy/prometheus have it, in words that PromQL and MetricsQL have in common. It extrapolates
// only what began again in the window, and adds up from window to window.
func used(counters, window string) string {
	return strings.NewReplacer("X", counters, "W", window).Replace(
		"(increase(X[W]) and resets(X[W]) > 0" +
			" or last_over_time(X[W]) - last_over_time(X[1h] offset W) >= 0" +
			" or last_over_time(X[W]) and on (host_name) last_over_time(system_energy_joules_total[1h] offset W)" +
			" or last_over_time(X[W]) - min_over_time(X[W]))")
}

// beganAgain is which values of an attribute have a series that began again at 0.
func beganAgain(metric, attribute string) func(*Truth) map[string]bool {
	return func(t *Truth) map[string]bool {
		again := map[string]bool{}
		for _, s := range t.Match(metric, nil) {
			if s.Resets > 0 {
				again[s.Attributes[attribute]] = true
			}
		}
		return again
	}
}

// meter returns the energy that the machine's meters counted in a window.
func meter(kind string, window time.Duration) func(*Truth, time.Time) map[string]float64 {
	return func(t *Truth, at time.Time) map[string]float64 {
		return map[string]float64{"": t.Meter(kind, at.Add(-window), at)}
	}
}

// each is the energy of the series of a metric in a window, of the zone package, by the value of an attribute.
func each(metric, attribute string, window time.Duration) func(*Truth, time.Time) map[string]float64 { //nolint:unparam // each query states its window
	return func(t *Truth, at time.Time) map[string]float64 { return t.By(metric, attribute, at.Add(-window), at) }
}

// powerOfProcesses is the mean power of all processes over five minutes, of the zone package.
func powerOfProcesses(t *Truth, at time.Time) map[string]float64 {
	const window = 5 * time.Minute
	by := t.By("process.energy", "", at.Add(-window), at)
	for key := range by {
		by[key] /= window.Seconds()
	}
	return by
}

// By returns the energy of the zone package that the series of a metric had between two times, by
// the value of an attribute.
func (t *Truth) By(metric, attribute string, from, to time.Time) map[string]float64 {
	sums := map[string]float64{}
	for _, s := range t.Match(metric, map[string]string{"energy.zone": "package"}) {
		if joules := s.Increase(from, to); joules > 0 {
			sums[s.Attributes[attribute]] += joules
		}
	}
	return sums
}
