// SPDX-License-Identifier: Apache-2.0

package period

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/report"
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
	Rest  Row      `json:"rest"` // active energy without a row
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

// Sums are energies of all nodes. The active energy includes the unattributed energy.
type Sums struct {
	Joules       float64 `json:"joules"`
	Active       float64 `json:"active_joules"`
	Idle         float64 `json:"idle_joules"`
	Unattributed float64 `json:"unattributed_joules"`
	Coverage     float64 `json:"coverage"` // mean of Step.Covered
	Nodes        int     `json:"nodes"`    // with data
}

// Applied has the emissions and the cost of all energy, nil without a rate.
type Applied struct {
	CO2e  object `json:"co2e,omitempty"`
	Price object `json:"price,omitempty"`
	rates report.Rates
}

type object map[string]any

// Row is the active energy of a namespace, node, user and so on.
type Row struct {
	Name   string     `json:"name,omitempty"`
	Joules float64    `json:"joules"`
	Share  float64    `json:"share"` // of the active energy
	Before *float64   `json:"before_joules"`
	Grams  *float64   `json:"grams,omitempty"`
	Cost   *float64   `json:"cost,omitempty"`
	Parts  []Part     `json:"parts,omitempty"` // the largest
	Steps  []*float64 `json:"steps"`           // nil without data
	kind   string     // in tables
}

// Part is a part of a row.
type Part struct {
	Name   string  `json:"name"`
	Joules float64 `json:"joules"`
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
	maxNamed      = 5    // nodes or gaps in a sentence
	maxDifference = 0.02 // of the coverages of periods that are compared
)

// document returns the report.
func (r *reading) document() *Document {
	n, covered := r.steps, r.covered()
	before, now := r.sums(covered, 0), r.sums(covered, n)
	d := &Document{
		Schema: SchemaVersion, By: r.By, Span: r.Span, StepSeconds: StepLength.Seconds(), BeforeFrom: r.both.From,
		Source: r.server.String(), Sums: now, Zones: []Zone{}, Rows: []Row{}, Steps: []Step{}, Gaps: []Span{},
	}
	if math.Abs(before.Coverage-now.Coverage) <= maxDifference && before.Nodes > 0 {
		d.Before = &before
	} else {
		r.note("No change is shown: the coverage is %s, and %s in the period before",
			percent(now.Coverage), percent(before.Coverage))
	}
	d.rates = r.Rates
	if rate := r.Rates.Grams; rate != nil {
		d.CO2e = object{"per_kwh": *rate, "grid": r.Rates.Grid, "grams": perKWh(now.Joules, rate)}
	}
	if rate := r.Rates.Price; rate != nil {
		d.Price = object{"per_kwh": *rate, "currency": r.Rates.Currency, "cost": perKWh(now.Joules, rate)}
	}
	for z, joules := range r.zones {
		if d.Zones = append(d.Zones, Zone{z.Zone, z.Source, rounded(joules)}); z.Source == "modeled" {
			r.note("%s is estimated by a power model, not measured: %s of the energy", z.Zone, percent(joules/d.Joules))
		}
	}
	slices.SortFunc(d.Zones, func(a, b Zone) int {
		return cmp.Or(zonekind.Compare(a.Zone, b.Zone), cmp.Compare(a.Source, b.Source))
	})
	r.addRows(d, covered[n:])
	for i, c := range covered[n:] {
		step := Step{Start: r.From.Add(time.Duration(i) * StepLength), Covered: rounded(c)}
		if c > 0 {
			step.Joules, step.Active, step.Idle = milli(r.active[n+i]+r.idle[n+i]), milli(r.active[n+i]), milli(r.idle[n+i])
		}
		d.Steps = append(d.Steps, step)
	}
	d.Gaps = append(d.Gaps, r.without(covered[n:], nil)...)
	r.noteNodes(covered)
	d.Notes = append(append([]string{}, r.notes...), r.server.warnings...)
	return d
}

// life returns the first and the last step with a report of a node, or false.
func life(covered []float64) (first, last int, reported bool) {
	for i, c := range covered {
		if c > 0 && !reported {
			first, reported = i, true
		}
		if c > 0 {
			last = i
		}
	}
	return first, last, reported
}

// covered returns the coverage of each step of both periods. A node is expected from its first to
// its last step, and may have reported during a part of these two.
func (r *reading) covered() []float64 {
	got, expected := make([]float64, 2*r.steps), make([]float64, 2*r.steps)
	for _, covered := range r.nodes {
		first, last, reported := life(covered)
		for i := first; reported && i <= last; i++ {
			got[i] += covered[i]
			if expected[i]++; i == first || i == last {
				expected[i] += covered[i] - 1
			}
		}
	}
	for i := range got {
		if expected[i] > 0 {
			got[i] /= expected[i]
		}
	}
	return got
}

// sums returns the sums of the period that begins at a step.
func (r *reading) sums(covered []float64, from int) (s Sums) {
	to := from + r.steps
	s.Active, s.Idle, s.Unattributed = sum(r.active[from:to]), sum(r.idle[from:to]), sum(r.unattributed[from:to])
	s.Joules, s.Coverage = rounded(s.Active+s.Idle), rounded(sum(covered[from:to])/float64(r.steps))
	for _, steps := range r.nodes {
		if _, _, reported := life(steps[from:to]); reported {
			s.Nodes++
		}
	}
	return s
}

// addRows adds the largest rows and the rows with the largest changes.
func (r *reading) addRows(d *Document, covered []float64) {
	rest, before, restSteps := d.Active, 0.0, slices.Clone(r.active[r.steps:])
	chosen := r.largest(r.Rows, func(t *total) float64 { return t.joules })
	if d.Before != nil {
		chosen = append(chosen, r.largest(maxMovers, func(t *total) float64 { return math.Abs(t.joules - t.before) })...)
	}
	for _, name := range r.largest(len(r.rows), func(t *total) float64 { return t.joules }) {
		if !slices.Contains(chosen, name) {
			continue
		}
		t := r.rows[name]
		row := Row{Name: name, Parts: t.largestParts(), kind: ofRow}
		row.fill(d, t.joules, t.steps, covered)
		if d.Before != nil {
			row.Before = milli(t.before)
		}
		d.Rows = append(d.Rows, row)
		rest, before = rest-t.joules, before+t.before
		for i := range restSteps {
			restSteps[i] -= t.steps[i]
		}
	}
	if math.Abs(rest) < 1e-9*d.Active { // an error of rounding
		rest = 0
	}
	if d.Rest.fill(d, rest, restSteps, covered); d.Before != nil {
		d.Rest.Before = milli(d.Before.Active - before)
	}
	if rest < -0.01*d.Active {
		r.note("The rows have %s more energy than the nodes: their counters are not from the same nodes",
			percent(-rest/d.Active))
	}
	if len(d.Rows) == 0 {
		r.note("There are no rows by %s: no series of %s", r.By, r.metric(r.energy))
	}
}

// fill sets the figures of a row.
func (row *Row) fill(d *Document, joules float64, steps, covered []float64) {
	row.Joules, row.Grams, row.Cost = rounded(joules), perKWh(joules, d.rates.Grams), perKWh(joules, d.rates.Price)
	if d.Active > 0 {
		row.Share = rounded(joules / d.Active)
	}
	row.Steps = make([]*float64, len(steps))
	for i, v := range steps {
		if covered[i] > 0 {
			row.Steps[i] = milli(v)
		}
	}
}

func (t *total) largestParts() (parts []Part) {
	for name, joules := range t.parts {
		parts = append(parts, Part{name, rounded(joules)})
	}
	slices.SortFunc(parts, func(a, b Part) int {
		return cmp.Or(cmp.Compare(b.Joules, a.Joules), cmp.Compare(a.Name, b.Name))
	})
	return parts[:min(maxPartsShown, len(parts))]
}

// without returns the time ranges of the period without data. Ranges without any data of all are
// left out, unless all is nil.
func (r *reading) without(covered, all []float64) (spans []Span) {
	for i := 0; i < len(covered); i++ {
		from, isGap := i, all == nil
		for ; i < len(covered) && covered[i] == 0; i++ {
			isGap = isGap || all[i] > 0
		}
		if isGap && from < i {
			spans = append(spans, Span{r.From.Add(time.Duration(from) * StepLength), r.From.Add(time.Duration(i) * StepLength)})
		}
	}
	return spans
}

// noteNodes adds notes on nodes without data in a part of the period.
func (r *reading) noteNodes(covered []float64) {
	var away []string
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		for _, s := range r.without(r.nodes[name][r.steps:], covered[r.steps:]) {
			away = append(away, name+" "+s.String())
		}
	}
	if len(away) > 0 {
		r.note("Nodes without data: %s", some(away))
	}
}

// String returns the time range for people.
func (s Span) String() string {
	return "from " + s.From.Format("2006-01-02 15:04") + " to " + s.To.Format("2006-01-02 15:04")
}

// some returns the first of several texts.
func some(texts []string) string {
	if more := len(texts) - maxNamed; more > 0 {
		texts = append(slices.Clone(texts[:maxNamed]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ", ")
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
