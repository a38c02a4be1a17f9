// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// Language is the query language of a database.
type Language string

// The languages. In MetricsQL and Extended, a query without its own text is asked in PromQL.
const (
	PromQL    Language = "PromQL"
	MetricsQL Language = "MetricsQL"                                   // of VictoriaMetrics
	Extended  Language = "PromQL with promql-extended-range-selectors" // Prometheus with this feature
	SQL       Language = "SQL"                                         // ClickHouse, on the tables of its exporter
	Files     Language = "a command"                                   // on files of the file exporter
)

// Answer returns the correct answer at a time, by the value of an attribute.
type Answer func(t *series.Truth, at time.Time) map[string]float64

// Query is a question to a database, with the texts that ask it at the end of the hour.
type Query struct {
	// Name names the query in tables and tests.
	Name string
	// Text is the text of the query by language. A language without a text cannot express the query.
	Text map[Language]string
	// By is the attribute that distinguishes the rows of the answer, as in OTLP. It is empty if
	// there is one row.
	By string
	// Truth returns the correct answer by the value of By.
	Truth Answer
	// Within is the largest relative difference of a row, and Exact that in languages that do not
	// extrapolate, if it is another. 0 states that there is no bound: the table shows the difference.
	Within, Exact float64
	// Metered states that Truth has the counts of the machine's meters. Without storage, these include
	// energy that the receiver does not count.
	Metered bool
	// Least is the correct answer below which a row is not compared, in joules or watts.
	Least float64
	// Except, if it is set, returns the values of By that are not compared.
	Except func(*series.Truth) map[string]bool
	// Every, if it is not 0, is the time between queries from an Every after the beginning of the hour
	// to its end.
	Every time.Duration
}

// In returns the text in a language, empty if there is no text.
func (q *Query) In(l Language) string {
	if text, ok := q.Text[l]; ok || l != MetricsQL && l != Extended {
		return text
	}
	return q.Text[PromQL]
}

// within returns the bound in a language.
func (q *Query) within(l Language) float64 {
	if q.Exact > 0 && l != PromQL && l != Extended {
		return q.Exact
	}
	return q.Within
}

// moments returns the times of the query.
func (q *Query) moments(t *series.Truth) (moments []time.Time) {
	if q.Every == 0 {
		return []time.Time{t.End}
	}
	for at := t.Begin.Add(q.Every); !at.After(t.End); at = at.Add(q.Every) {
		moments = append(moments, at)
	}
	return moments
}

// Label matchers: the zone of most queries, and the zones that recipes add up.
const (
	inPackage = `energy_zone="package"`
	summed    = `energy_zone=~"package|dram|gpu|other"`
)

// The counters of the zone package.
var (
	processes  = series.Joules(series.Process, inPackage)
	containers = series.Joules(series.Container, inPackage)
	pods       = series.Joules(series.Pod, inPackage)
)

const (
	container = "container.id"
	namespace = "k8s.namespace.name"
	podUID    = "k8s.pod.uid"
)

// Queries are asked of all databases.
var Queries = []Query{
	{
		Name: "node, increase",
		Text: map[Language]string{
			PromQL: "sum(increase(" + series.Joules(series.System, inPackage) + "[1h]))",
			SQL:    increased(series.System, "", "1 HOUR"),
			Files:  added(series.System, ""),
		},
		Truth: func(t *series.Truth, at time.Time) map[string]float64 {
			return map[string]float64{"": t.Meter("package", at.Add(-time.Hour), at)}
		},
		Metered: true,
		Within:  0.005,
	},
	{
		Name: "processes, Σ increase",
		Text: map[Language]string{
			PromQL: "sum(increase(" + processes + "[1h]))",
			SQL:    increased(series.Process, "", "1 HOUR"),
			Files:  added(series.Process, ""),
		},
		Truth: during(series.Process, "", "package", time.Hour),
		Exact: 0.005,
	},
	{
		Name:   "processes, Σ of last less first",
		Text:   map[Language]string{PromQL: "sum(" + used(processes, "1h") + ")"},
		Truth:  during(series.Process, "", "package", time.Hour),
		Within: 0.005,
	},
	{
		Name: "processes, Σ of five minutes each",
		Text: map[Language]string{
			PromQL:    "sum_over_time(sum(" + used(processes, "5m") + ")[1h:5m])",
			MetricsQL: "", // a subquery may include both ends of the range
		},
		Truth:  during(series.Process, "", "package", time.Hour),
		Within: 0.005,
	},
	{
		Name: "containers, Σ increase",
		Text: map[Language]string{
			PromQL: "sum(increase(" + containers + "[1h]))",
			SQL:    increased(series.Container, "", "1 HOUR"),
			Files:  added(series.Container, ""),
		},
		Truth: during(series.Container, "", "package", time.Hour),
		Exact: 0.005,
	},
	{
		Name:  "containers, Σ increase, anchored",
		Text:  map[Language]string{Extended: "sum(increase(" + containers + "[1h] anchored))"},
		Truth: during(series.Container, "", "package", time.Hour),
	},
	{
		Name:   "containers, Σ of last less first",
		Text:   map[Language]string{PromQL: "sum(" + used(containers, "1h") + ")"},
		Truth:  during(series.Container, "", "package", time.Hour),
		Within: 0.005,
	},
	{
		Name: "containers, each increase",
		Text: map[Language]string{
			PromQL: "sum by (container_id) (increase(" + containers + "[1h]))",
			SQL:    increased(series.Container, container, "1 HOUR"),
			Files:  added(series.Container, container),
		},
		By:    container,
		Truth: during(series.Container, container, "package", time.Hour),
		Exact: 0.001,
		Least: 1,
	},
	{
		Name:  "containers, each increase, anchored",
		Text:  map[Language]string{Extended: "sum by (container_id) (increase(" + containers + "[1h] anchored))"},
		By:    container,
		Truth: during(series.Container, container, "package", time.Hour),
		Least: 1,
	},
	{
		Name:   "containers, each last less first",
		Text:   map[Language]string{PromQL: "sum by (container_id) (" + used(containers, "1h") + ")"},
		By:     container,
		Truth:  during(series.Container, container, "package", time.Hour),
		Except: restarted(series.Container, container),
		Within: 0.001,
		Least:  1,
	},
	{
		Name:   "namespaces, each last less first",
		Text:   map[Language]string{PromQL: "sum by (k8s_namespace_name) (" + used(pods, "1h") + ")"},
		By:     namespace,
		Truth:  during(series.Pod, namespace, "package", time.Hour),
		Within: 0.005,
	},
	{
		Name: "processes, Σ increase, as power",
		Text: map[Language]string{
			PromQL: "sum(increase(" + processes + "[5m])) / 300",
			SQL:    strings.Replace(increased(series.Process, "", "5 MINUTE"), "sum(increase)", "sum(increase) / 300", 1),
		},
		Truth: powerOfProcesses,
		Exact: 0.005,
		Every: 5 * time.Minute,
	},
	{
		Name:  "processes, Σ rate",
		Text:  map[Language]string{PromQL: "sum(rate(" + processes + "[5m]))"},
		Truth: powerOfProcesses,
		Every: 15 * time.Minute,
	},
	{
		Name:  "processes, Σ rate, anchored",
		Text:  map[Language]string{Extended: "sum(rate(" + processes + "[5m] anchored))"},
		Truth: powerOfProcesses,
		Every: 15 * time.Minute,
	},
	{
		Name:  "processes, Σ of last less first, as power",
		Text:  map[Language]string{PromQL: "sum(" + used(processes, "5m") + ") / 300"},
		Truth: powerOfProcesses,
		Every: 15 * time.Minute,
	},
}

// The counters of the recipes.
var (
	allContainers = series.Joules(series.Container, summed)
	allPods       = series.Joules(series.Pod, summed)
)

// Recipes are the queries of docs/prometheus.md that the hour can answer. They are asked of all
// databases.
var Recipes = []Query{
	{
		Name:   "recipe: containers, last value",
		Text:   map[Language]string{PromQL: "sum by (container_id) (last_over_time(" + allContainers + "[1d]))"},
		By:     container,
		Truth:  during(series.Container, container, "", 24*time.Hour),
		Except: restarted(series.Container, container),
		Within: 0.001,
		Least:  1,
	},
	{
		Name: "recipe: containers, with restarts",
		Text: map[Language]string{
			PromQL: strings.ReplaceAll(`sum by (container_id) (last_over_time(X[2h]))
+ (sum by (container_id) (sum_over_time(
    (last_over_time(X[1h] offset 10s) > X)[2h:10s]))
  or 0 * sum by (container_id) (last_over_time(X[2h])))`, "X", allContainers),
			MetricsQL: "sum by (container_id) (increase_pure(" + allContainers + "[2h]))",
		},
		By:     container,
		Truth:  during(series.Container, container, "", 2*time.Hour),
		Within: 0.25,
		Least:  1,
	},
	{
		Name:   "recipe: pods, last value",
		Text:   map[Language]string{PromQL: "sum by (k8s_pod_uid) (last_over_time(" + allPods + "[1d]))"},
		By:     podUID,
		Truth:  during(series.Pod, podUID, "", 24*time.Hour),
		Except: restarted(series.Pod, podUID),
		Within: 0.001,
		Least:  1,
	},
	{
		Name:   "recipe: namespaces, an hour",
		Text:   map[Language]string{PromQL: "sum by (k8s_namespace_name) (\n" + series.Increase(allPods, "1h") + ")"},
		By:     namespace,
		Truth:  during(series.Pod, namespace, "", time.Hour),
		Within: 0.005,
	},
	{
		Name:   "recipe: namespaces, watts",
		Text:   map[Language]string{PromQL: "sum by (k8s_namespace_name) (\n" + series.Increase(allPods, "5m") + ") / 300"},
		By:     namespace,
		Truth:  per(300, during(series.Pod, namespace, "", 5*time.Minute)),
		Every:  5 * time.Minute,
		Within: 0.03, // extrapolated if the series of short-lived pods restarts
	},
	{
		Name: "recipe: containers, the largest",
		Text: map[Language]string{PromQL: "topk(10, sum by (k8s_namespace_name, k8s_pod_name, container_id) (\n" +
			series.Increase(series.Joules(series.Container, `container_id!="",`+summed), "1h") + "))"},
		By:    container,
		Truth: largest(10, during(series.Container, container, "", time.Hour)),
	},
	{
		Name: "recipe: exited workloads",
		Text: map[Language]string{PromQL: "sum by (k8s_namespace_name) (\n  last_over_time(" + allContainers +
			"[1d]) unless last_over_time(" + series.Stored(series.Container, "J", true) + "[1m]))"},
		By:    namespace,
		Truth: gone(series.Container, namespace, time.Minute),
	},
}

// used returns a query for the increase of counters within a window that ends at the time of the
// query, like the rules of deploy/prometheus, in the common syntax of PromQL and MetricsQL. It
// extrapolates only counters that restarted in the window. Successive windows add up.
func used(counters, window string) string {
	return strings.NewReplacer("X", counters, "W", window, "NODE", series.Stored(series.System, "J", true)).Replace(
		"(increase(X[W]) and resets(X[W]) > 0" +
			" or last_over_time(X[W]) - last_over_time(X[1h] offset W) >= 0" +
			" or last_over_time(X[W]) and on (host_name) last_over_time(NODE[1h] offset W)" +
			" or last_over_time(X[W]) - min_over_time(X[W]))")
}

// restarted returns the values of an attribute that have a series that restarted at 0.
func restarted(metric, attribute string) func(*series.Truth) map[string]bool {
	return func(t *series.Truth) map[string]bool {
		values := map[string]bool{}
		for _, s := range t.Match(metric, "") {
			if s.Resets > 0 {
				values[s.Attributes[attribute]] = true
			}
		}
		return values
	}
}

// during is the energy of the series of a metric within a window, by the value of an attribute. An
// empty zone selects all zones.
func during(metric, attribute, zone string, window time.Duration) Answer {
	return func(t *series.Truth, at time.Time) map[string]float64 {
		return t.By(metric, attribute, zone, at.Add(-window), at)
	}
}

// powerOfProcesses is the mean power of all processes over five minutes.
var powerOfProcesses = per(300, during(series.Process, "", "package", 5*time.Minute))

// per divides the values of an answer.
func per(divisor float64, truth Answer) Answer {
	return func(t *series.Truth, at time.Time) map[string]float64 {
		values := truth(t, at)
		for key := range values {
			values[key] /= divisor
		}
		return values
	}
}

// largest limits an answer to its n largest values, without the value for an empty attribute.
func largest(n int, truth Answer) Answer {
	return func(t *series.Truth, at time.Time) map[string]float64 {
		values := truth(t, at)
		delete(values, "")
		keys := slices.SortedFunc(maps.Keys(values), func(a, b string) int { return cmp.Compare(values[b], values[a]) })
		for _, key := range keys[min(n, len(keys)):] {
			delete(values, key)
		}
		return values
	}
}

// gone is the total energy of the series that have had no point for a time.
func gone(metric, attribute string, since time.Duration) Answer {
	return func(t *series.Truth, at time.Time) map[string]float64 {
		sums := map[string]float64{}
		for _, s := range t.Match(metric, "") {
			if last := s.Last(); !last.At.After(at.Add(-since)) {
				sums[s.Attributes[attribute]] += last.Value
			}
		}
		return sums
	}
}
