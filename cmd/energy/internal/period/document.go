// SPDX-License-Identifier: Apache-2.0

package period

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	zonekind "github.com/energyreceiver/energyreceiver/internal/zone"
)

// SchemaVersion is the version of the JSON document, which docs/command-line.md describes.
const SchemaVersion = 1

// Document is a report, with its names in JSON. Energies are in joules.
type Document struct {
	Schema int    `json:"schema"`
	By     string `json:"by"`
	Span
	StepSeconds float64   `json:"step_seconds"`
	BeforeFrom  time.Time `json:"before_from"` // the period before has the same length
	Zones       []Zone    `json:"zones"`
	Source      string    `json:"source"`
	Sums
	Before *Sums `json:"before"` // nil if it is not comparable
	Applied
	Rows  []Row    `json:"rows"` // largest first
	Rest  Rest     `json:"rest"`
	Steps []Step   `json:"steps"`
	Gaps  []Span   `json:"gaps"` // without data of any node
	Notes []string `json:"notes"`
}

// Span is a time range.
type Span struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Zone is a zone kind whose energy is added, with the source of its energy.
type Zone struct {
	Zone   string  `json:"zone"`
	Source string  `json:"source"`
	Joules float64 `json:"joules"`
}

// Sums are the energies of all nodes. The active energy includes the unattributed energy.
type Sums struct {
	Joules       float64 `json:"joules"`
	Active       float64 `json:"active_joules"`
	Idle         float64 `json:"idle_joules"`
	Unattributed float64 `json:"unattributed_joules"`
	Coverage     float64 `json:"coverage"` // mean of Step.Covered
	Nodes        int     `json:"nodes"`    // that reported
}

// Applied has the emissions and the cost of all energy, nil without a rate.
type Applied struct {
	CO2e  *Emissions `json:"co2e,omitempty"`
	Price *Cost      `json:"price,omitempty"`
}

// Emissions are grams of CO2 equivalent.
type Emissions struct {
	PerKWh float64 `json:"per_kwh"`
	Grid   string  `json:"grid"`
	Grams  float64 `json:"grams"`
}

// Cost is an amount of money.
type Cost struct {
	PerKWh   float64 `json:"per_kwh"`
	Currency string  `json:"currency"`
	Cost     float64 `json:"cost"`
}

// Row is the active energy of a namespace, node, user and so on.
type Row struct {
	Name   string     `json:"name"`
	Joules float64    `json:"joules"`
	Share  float64    `json:"share"` // of the active energy
	Before *float64   `json:"before_joules"`
	Grams  *float64   `json:"grams,omitempty"`
	Cost   *float64   `json:"cost,omitempty"`
	Parts  []Part     `json:"parts"` // the largest
	Steps  []*float64 `json:"steps"` // nil without data
}

// Part is a part of a row.
type Part struct {
	Name   string  `json:"name"`
	Joules float64 `json:"joules"`
}

// Rest is the active energy that no row has.
type Rest struct {
	Joules float64    `json:"joules"`
	Steps  []*float64 `json:"steps"`
}

// Step is the energy of all nodes in a step, nil without data.
type Step struct {
	Start   time.Time `json:"start"`
	Joules  *float64  `json:"joules"`
	Active  *float64  `json:"active_joules"`
	Idle    *float64  `json:"idle_joules"`
	Covered float64   `json:"covered"` // share of the expected reports of nodes
}

// Limits of a document.
const (
	maxPartsShown = 20
	maxMovers     = 5
	maxNamed      = 5 // nodes in notes
)

// comparable is the maximum difference of the coverages of two periods that are compared.
const comparable = 0.02

// document returns the report.
func (r *reading) document() *Document {
	n := r.steps
	covered, nodes := r.covered()
	before, now := r.sums(0, covered[:n]), r.sums(n, covered[n:])
	d := &Document{
		Schema: SchemaVersion, By: r.By, Span: Span{r.From, r.To}, StepSeconds: r.Step.Seconds(),
		BeforeFrom: r.begin, Source: r.server.String(), Sums: now, Before: &before,
		Zones: []Zone{}, Rows: []Row{}, Steps: []Step{}, Gaps: []Span{},
	}
	switch {
	case before.Nodes == 0:
		d.Before = nil
		r.note("No change is shown: there is no data of the period before")
	case math.Abs(before.Coverage-now.Coverage) > comparable:
		d.Before = nil
		r.note("No change is shown: the coverage of the period before is %s, and of this period %s",
			percent(before.Coverage), percent(now.Coverage))
	}
	if rate := r.Rates.Grams; rate != nil {
		d.CO2e = &Emissions{*rate, r.Rates.Grid, *perKWh(now.Joules, rate)}
	}
	if rate := r.Rates.Price; rate != nil {
		d.Price = &Cost{*rate, r.Rates.Currency, *perKWh(now.Joules, rate)}
	}
	r.addZones(d)
	r.addRows(d, covered[n:])
	for i, c := range covered[n:] {
		start := r.From.Add(time.Duration(i) * r.Step)
		step := Step{Start: start, Covered: rounded(float64(c))}
		if c > 0 {
			step.Joules, step.Active, step.Idle = milli(r.active[n+i]+r.idle[n+i]), milli(r.active[n+i]), milli(r.idle[n+i])
		} else {
			d.Gaps = append(d.Gaps, Span{start, start.Add(r.Step)})
		}
		d.Steps = append(d.Steps, step)
	}
	d.Gaps = joined(d.Gaps)
	r.noteNodes(nodes, covered)
	d.Notes = append(append([]string{}, r.notes...), r.server.warnings...)
	return d
}

// node is a node with the time of its reports.
type node struct {
	name        string
	first, last int // steps
	covered     []float32
}

// covered returns the coverage of each step of both periods, and the nodes. A node is expected from
// its first to its last step. It may have reported during a part of these two.
func (r *reading) covered() (steps []float32, nodes []node) {
	got, expected := make([]float32, 2*r.steps), make([]float32, 2*r.steps)
	for name, covered := range r.nodes {
		n := node{name, slices.IndexFunc(covered, func(c float32) bool { return c > 0 }), len(covered) - 1, covered}
		for n.last > n.first && covered[n.last] == 0 {
			n.last--
		}
		if n.first < 0 {
			continue
		}
		nodes = append(nodes, n)
		for i := n.first; i <= n.last; i++ {
			got[i] += covered[i]
			expected[i]++
			if i == n.first || i == n.last {
				expected[i] += covered[i] - 1
			}
		}
	}
	for i := range got {
		if expected[i] > 0 {
			got[i] /= expected[i]
		}
	}
	slices.SortFunc(nodes, func(a, b node) int { return cmp.Compare(a.name, b.name) })
	return got, nodes
}

// sums returns the sums of a period from a step on.
func (r *reading) sums(from int, covered []float32) (s Sums) {
	to := from + r.steps
	s.Active, s.Idle, s.Unattributed = sum(r.active[from:to]), sum(r.idle[from:to]), sum(r.unattributed[from:to])
	s.Joules = rounded(s.Active + s.Idle)
	for _, c := range covered {
		s.Coverage += float64(c) / float64(len(covered))
	}
	s.Coverage = rounded(s.Coverage)
	for _, steps := range r.nodes {
		if slices.ContainsFunc(steps[from:to], func(c float32) bool { return c > 0 }) {
			s.Nodes++
		}
	}
	return s
}

func (r *reading) addZones(d *Document) {
	modeled := 0.0
	for z, joules := range r.zones {
		d.Zones = append(d.Zones, Zone{z.Zone, z.Source, rounded(joules)})
		if z.Source == "modeled" {
			modeled += joules
		}
	}
	slices.SortFunc(d.Zones, func(a, b Zone) int {
		return cmp.Or(zonekind.Compare(a.Zone, b.Zone), cmp.Compare(a.Source, b.Source))
	})
	if modeled > 0 {
		r.note("%s of the energy is estimated by power models, not measured", percent(modeled/d.Joules))
	}
}

// addRows adds the largest rows and those with the largest changes.
func (r *reading) addRows(d *Document, covered []float32) {
	names := r.ordered(func(t *total) float64 { return t.joules })
	rest := slices.Clone(r.active[r.steps:])
	chosen := map[string]bool{}
	for _, name := range names[:min(r.Rows, len(names))] {
		chosen[name] = true
	}
	if d.Before != nil {
		movers := r.ordered(func(t *total) float64 { return math.Abs(t.joules - t.before) })
		for _, name := range movers[:min(maxMovers, len(movers))] {
			chosen[name] = true
		}
	}
	d.Rest.Joules = d.Active
	for _, name := range names {
		if !chosen[name] {
			continue
		}
		t := r.rows[name]
		row := Row{
			Name: name, Joules: rounded(t.joules), Steps: withData(t.steps, covered), Parts: t.largest(),
			Grams: perKWh(t.joules, r.Rates.Grams), Cost: perKWh(t.joules, r.Rates.Price),
		}
		if d.Active > 0 {
			row.Share = rounded(t.joules / d.Active)
		}
		if d.Before != nil {
			row.Before = milli(t.before)
		}
		d.Rows = append(d.Rows, row)
		d.Rest.Joules -= t.joules
		for i := range rest {
			rest[i] -= t.steps[i]
		}
	}
	if math.Abs(d.Rest.Joules) < 1e-9*d.Active { // an error of rounding
		d.Rest.Joules = 0
	}
	d.Rest.Joules, d.Rest.Steps = rounded(d.Rest.Joules), withData(rest, covered)
	if d.Rest.Joules < -0.01*d.Active {
		r.note("The rows have %s more energy than the nodes: their counters are not from the same nodes",
			percent(-d.Rest.Joules/d.Active))
	}
}

func (t *total) largest() []Part {
	parts := []Part{}
	for name, joules := range t.parts {
		parts = append(parts, Part{name, rounded(joules)})
	}
	slices.SortFunc(parts, func(a, b Part) int {
		return cmp.Or(cmp.Compare(b.Joules, a.Joules), cmp.Compare(a.Name, b.Name))
	})
	return parts[:min(maxPartsShown, len(parts))]
}

// noteNodes adds notes on nodes that reported during a part of the period.
func (r *reading) noteNodes(nodes []node, covered []float32) {
	var began, ended, away []string
	at := func(step int) string { return r.begin.Add(time.Duration(step) * r.Step).Format(timeFormat) }
	for _, n := range nodes {
		if n.first > r.steps {
			began = append(began, fmt.Sprintf("%s from %s", n.name, at(n.first)))
		}
		if n.last >= r.steps-1 && n.last < 2*r.steps-1 {
			ended = append(ended, fmt.Sprintf("%s until %s", n.name, at(n.last+1)))
		}
		for i := max(n.first, r.steps); i < n.last; i++ {
			from, othersReport := i, false
			for ; i < n.last && n.covered[i] == 0; i++ {
				othersReport = othersReport || covered[i] > 0
			}
			if othersReport {
				away = append(away, fmt.Sprintf("%s from %s to %s", n.name, at(from), at(i)))
			}
		}
	}
	for _, c := range []struct {
		text  string
		names []string
	}{{"No data from", away}, {"Nodes without earlier data", began}, {"Nodes without later data", ended}} {
		if more := len(c.names) - maxNamed; more > 0 {
			c.names = append(c.names[:maxNamed], fmt.Sprintf("%d more", more))
		}
		if len(c.names) > 0 {
			r.note("%s: %s", c.text, strings.Join(c.names, ", "))
		}
	}
}

// joined joins neighbors.
func joined(spans []Span) []Span {
	all := []Span{}
	for _, s := range spans {
		if n := len(all); n > 0 && all[n-1].To.Equal(s.From) {
			all[n-1].To = s.To
		} else {
			all = append(all, s)
		}
	}
	return all
}

// withData returns the values of steps with data.
func withData(steps []float64, covered []float32) []*float64 {
	values := make([]*float64, len(steps))
	for i, v := range steps {
		if covered[i] > 0 {
			values[i] = milli(v)
		}
	}
	return values
}

func sum(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return rounded(sum)
}

// perKWh returns the emissions or the cost of an energy, nil without a rate.
func perKWh(joules float64, rate *float64) *float64 {
	if rate == nil {
		return nil
	}
	value := rounded(joules / 3.6e6 * *rate)
	return &value
}

// rounded returns a value with six decimals, as other documents of energy have.
func rounded(v float64) float64 { return math.Round(v*1e6) / 1e6 }

// milli returns a value with three decimals, which keeps documents small.
func milli(v float64) *float64 {
	v = math.Round(v*1e3) / 1e3
	return &v
}
