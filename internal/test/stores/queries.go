// SPDX-License-Identifier: Apache-2.0

package stores

import "time"

// Language is what a database is asked in.
type Language string

// The languages. MetricsQL is VictoriaMetrics's; a query without a text of its own in it is asked in PromQL.
const (
	PromQL    Language = "PromQL"
	MetricsQL Language = "MetricsQL"
	SQL       Language = "SQL" // of ClickHouse, on the tables of its exporter
	Files     Language = ""    // an OTLP file is read, and asked by FromFile
)

// Query is a question to a database, with the texts that ask it at the end of the hour. The texts are those of
// docs/queries.md: a test compares them.
type Query struct {
	// Name names it in tables and tests.
	Name string
	// Question is what it answers, in a user's words.
	Question string
	// Text is how it is asked. A language without a text cannot ask it.
	Text map[Language]string
	// By is the attribute by which the rows of the answer differ, as in OTLP. It is empty where there is one row.
	By string
	// Truth is what the answer must be, by the value of By.
	Truth func(*Truth) map[string]float64
	// Within is the largest relative difference of a row. 0 states that there is no bound: the query is in the table to show
	// what it gives.
	Within float64
	// Least is the truth below which a row is not compared, in joules.
	Least float64
}

// In returns the text in a language, empty if there is none.
func (q *Query) In(l Language) string {
	if text, ok := q.Text[l]; ok || l != MetricsQL {
		return text
	}
	return q.Text[PromQL]
}

// Queries are all questions.
var Queries = []Query{
	{
		Name:     "node, increase",
		Question: "How many joules did the node's package use in the last hour?",
		Text:     map[Language]string{PromQL: `sum(increase(system_energy_joules_total{energy_zone="package"}[1h]))`},
		Truth:    meter("package"),
	},
	{
		Name:     "processes, Σ increase",
		Question: "How many of them did all processes?",
		Text:     map[Language]string{PromQL: `sum(increase(process_energy_joules_total{energy_zone="package"}[1h]))`},
		Truth:    total("process.energy"),
	},
	{
		Name:     "containers, Σ increase",
		Question: "How many did all containers?",
		Text:     map[Language]string{PromQL: `sum(increase(container_energy_joules_total{energy_zone="package"}[1h]))`},
		Truth:    total("container.energy"),
	},
	{
		Name:     "containers, each increase",
		Question: "How many did each container?",
		Text:     map[Language]string{PromQL: `sum by (container_id) (increase(container_energy_joules_total{energy_zone="package"}[1h]))`},
		By:       "container.id",
		Truth:    each("container.energy", "container.id"),
		Least:    1,
	},
}

// meter is what the machine's meters counted in the hour.
func meter(kind string) func(*Truth) map[string]float64 {
	return func(t *Truth) map[string]float64 { return map[string]float64{"": t.Meter(kind, t.Begin, t.End)} }
}

// total is what the series of a metric had in the hour, of the zone package.
func total(metric string) func(*Truth) map[string]float64 { return each(metric, "") }

// each is the same by the value of an attribute.
func each(metric, attribute string) func(*Truth) map[string]float64 {
	return func(t *Truth) map[string]float64 { return t.By(metric, attribute, t.Begin, t.End) }
}

// By returns the energy of the zone package that the series of a metric had between two times, by the value of an attribute.
func (t *Truth) By(metric, attribute string, from, to time.Time) map[string]float64 {
	sums := map[string]float64{}
	for _, s := range t.Match(metric, map[string]string{"energy.zone": "package"}) {
		if joules := s.Increase(from, to); joules > 0 {
			sums[s.Attributes[attribute]] += joules
		}
	}
	return sums
}
