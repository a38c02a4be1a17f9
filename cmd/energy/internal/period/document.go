// SPDX-License-Identifier: Apache-2.0

package period

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/report"
	zonekind "github.com/energyreceiver/energyreceiver/internal/zone"
)

// SchemaVersion is the version of the JSON document, which docs/command-line.md describes.
const SchemaVersion = 1

// number is a figure, such as an energy in joules. JSON has it with few decimals, or null.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	if n.isMissing() {
		return []byte("null"), nil
	}
	return []byte(n.decimal()), nil
}

// isMissing reports whether the figure is not available, such as a share if the sum is zero.
func (n number) isMissing() bool { return math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) }

// decimal returns a number with up to three decimals, or six below 1. It is empty if it is missing.
func (n number) decimal() string {
	scale := 1e3
	switch v := math.Abs(float64(n)); {
	case n.isMissing():
		return ""
	case v < 1:
		scale = 1e6
	}
	return strconv.FormatFloat(math.Round(float64(n)*scale)/scale, 'f', -1, 64)
}

var missing = number(math.NaN())

// Document is a report, with its names in JSON. Energies are in joules.
type Document struct {
	Schema int    `json:"schema"`
	By     string `json:"by"`
	Span
	StepSeconds number    `json:"step_seconds"`
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
	Zone   string `json:"zone"`
	Source string `json:"source"`
	Joules number `json:"joules"`
}

// Energies are energies of all nodes. The active energy includes the unattributed energy.
type Energies struct {
	Joules       number `json:"joules"`
	Active       number `json:"active_joules"`
	Idle         number `json:"idle_joules"`
	Unattributed number `json:"unattributed_joules"`
}

var notAvailable = Energies{missing, missing, missing, missing}

// Sums are the sums of a period.
type Sums struct {
	Energies
	Coverage number `json:"coverage"` // mean of Step.Covered
	Nodes    int    `json:"nodes"`    // with data
}

// Step is the energy of all nodes in a step.
type Step struct {
	Start time.Time `json:"start"`
	Energies
	Covered number `json:"covered"` // share of the expected slots of nodes
}

// Applied has the emissions and the cost of all energy, which are nil without a rate.
type Applied struct {
	CO2e  map[string]any `json:"co2e,omitempty"`
	Price map[string]any `json:"price,omitempty"`
	rates report.Rates
}

// Row is the active energy of a namespace, node, user and so on.
type Row struct {
	Name   string   `json:"name,omitempty"`
	Joules number   `json:"joules"`
	Share  number   `json:"share"` // of the active energy
	Before number   `json:"before_joules"`
	Parts  []Part   `json:"parts,omitempty"` // the largest
	Steps  []number `json:"steps"`
	parts  map[string]number
}

// Part is a part of a row.
type Part struct {
	Name   string `json:"name"`
	Joules number `json:"joules"`
}

// Limits of a document.
const (
	maxPartsShown = 20
	maxNamed      = 5    // rows, nodes or gaps in a sentence
	maxDifference = 0.02 // of the coverages of periods that are compared
)

// document returns the report.
func (r *reading) document() *Document {
	n := r.steps
	r.cover()
	before, now := r.sums(0), r.sums(n)
	d := &Document{
		Schema: SchemaVersion, By: r.By, Span: r.Span, StepSeconds: number(StepLength.Seconds()), BeforeFrom: r.all[0].Start,
		Source: fmt.Sprint(r.server), Sums: now, Zones: []Zone{}, Rows: []Row{}, Steps: r.all[n:],
	}
	d.rates = r.Rates
	if rate := r.Rates.Grams; rate != nil {
		d.CO2e = map[string]any{"per_kwh": *rate, "grid": r.Rates.Grid, "grams": perKWh(now.Joules, rate)}
	}
	if rate := r.Rates.Price; rate != nil {
		d.Price = map[string]any{"per_kwh": *rate, "currency": r.Rates.Currency, "cost": perKWh(now.Joules, rate)}
	}
	if math.Abs(float64(before.Coverage-now.Coverage)) <= maxDifference && before.Nodes > 0 {
		d.Before = &before
	} else {
		r.note("No change is shown: the coverage is %s, and %s in the period before",
			covered(now.Coverage), covered(before.Coverage))
	}
	for z, joules := range r.zones {
		d.Zones = append(d.Zones, Zone{z.Zone, z.Source, joules})
	}
	slices.SortFunc(d.Zones, func(a, b Zone) int {
		return cmp.Or(zonekind.Compare(a.Zone, b.Zone), cmp.Compare(a.Source, b.Source))
	})
	for _, z := range d.Zones {
		if z.Source == "modeled" {
			r.note("%s is estimated by a power model, not measured: %s of the energy", z.Zone, percent(z.Joules/d.Joules))
		}
	}
	r.addRows(d)
	d.Gaps = append([]Span{}, d.gaps(func(step int) bool { return d.Steps[step].Covered == 0 })...)
	for i := range d.Steps {
		if d.Steps[i].Covered == 0 {
			d.Steps[i].Energies = notAvailable
		}
	}
	r.noteNodes(d)
	d.Notes = append([]string{}, r.notes...)
	return d
}

// cover sets the coverage of all steps. A node is expected from its first to its last step, and may
// have reported during a part of these two.
func (r *reading) cover() {
	expected := make([]number, len(r.all))
	for _, reported := range r.nodes {
		first, last := slices.IndexFunc(reported, isSome), len(reported)-1
		for last > first && reported[last] == 0 {
			last--
		}
		for i := max(0, first); i <= last; i++ {
			r.all[i].Covered += number(reported[i])
			if expected[i] += slots; i == first || i == last {
				expected[i] += number(reported[i]) - slots
			}
		}
	}
	for i := range r.all {
		r.all[i].Covered /= max(1, expected[i])
	}
}

func isSome(reported uint8) bool { return reported > 0 }

// sums returns the sums of the period that begins at a step.
func (r *reading) sums(from int) (s Sums) {
	to := from + r.steps
	for _, step := range r.all[from:to] {
		s.Joules, s.Active, s.Idle = s.Joules+step.Joules, s.Active+step.Active, s.Idle+step.Idle
		s.Unattributed, s.Coverage = s.Unattributed+step.Unattributed, s.Coverage+step.Covered/number(r.steps)
	}
	for _, reported := range r.nodes {
		if slices.ContainsFunc(reported[from:to], isSome) {
			s.Nodes++
		}
	}
	return s
}

// addRows adds the largest rows, the rows with the largest changes, and the rest.
func (r *reading) addRows(d *Document) {
	rest := Row{Joules: d.Active}
	for _, step := range d.Steps {
		rest.Steps = append(rest.Steps, step.Active)
	}
	energy := func(row *Row) number { return row.Joules }
	chosen := r.largest(r.Rows, energy)
	if d.Before != nil {
		rest.Before = d.Before.Active
		chosen = append(chosen, r.largest(maxNamed, (*Row).difference)...)
	}
	for _, row := range r.largest(len(r.rows), energy) {
		if !slices.Contains(chosen, row) {
			continue
		}
		rest.Joules, rest.Before = rest.Joules-row.Joules, rest.Before-row.Before
		for i, v := range row.Steps {
			rest.Steps[i] -= v
		}
		d.Rows = append(d.Rows, row.of(d))
	}
	if rest.Joules < -0.01*d.Active {
		r.note("The rows have %s more energy than the nodes: their counters are not from the same nodes",
			percent(-rest.Joules/d.Active))
	}
	for _, v := range []*number{&rest.Joules, &rest.Before} {
		if math.Abs(float64(*v)) < 1e-9*float64(d.Active) { // an error of rounding
			*v = 0
		}
	}
	switch d.Rest = rest.of(d); {
	case len(r.rows) > 0:
	case r.hasNoNames:
		r.note("There are no rows by %s: the series of %s have no label %s", r.By, r.metric(r.energy), r.required())
	default:
		r.note("There are no rows by %s: no series of %s", r.By, r.metric(r.energy))
	}
}

// difference returns the size of the change of a row.
func (row *Row) difference() number { return number(math.Abs(float64(row.Joules - row.Before))) }

// of returns a row with its share and its largest parts. Unavailable figures are missing.
func (row Row) of(d *Document) Row {
	if row.Share = row.Joules / d.Active; d.Before == nil {
		row.Before = missing
	}
	for i, step := range d.Steps {
		if step.Covered == 0 {
			row.Steps[i] = missing
		}
	}
	for name, joules := range row.parts {
		row.Parts = append(row.Parts, Part{name, joules})
	}
	slices.SortFunc(row.Parts, func(a, b Part) int {
		return cmp.Or(cmp.Compare(b.Joules, a.Joules), cmp.Compare(a.Name, b.Name))
	})
	row.Parts = row.Parts[:min(maxPartsShown, len(row.Parts))]
	return row
}

// gaps returns the time ranges whose steps are all in a gap.
func (d *Document) gaps(isGap func(step int) bool) (spans []Span) {
	for i, step := range d.Steps {
		switch last := len(spans) - 1; {
		case !isGap(i):
		case last >= 0 && spans[last].To.Equal(step.Start):
			spans[last].To = step.Start.Add(StepLength)
		default:
			spans = append(spans, Span{step.Start, step.Start.Add(StepLength)})
		}
	}
	return spans
}

// noteNodes adds a note on nodes that have no data while others have data.
func (r *reading) noteNodes(d *Document) {
	var away []string
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		reported := r.nodes[name][r.steps:]
		for _, s := range d.gaps(func(step int) bool { return reported[step] == 0 && d.Steps[step].Covered > 0 }) {
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
		texts = append(slices.Clone(texts[:maxNamed]), strconv.Itoa(more)+" more")
	}
	return strings.Join(texts, ", ")
}

// perKWh returns the emissions or the cost of an energy, which are missing without a rate.
func perKWh(joules number, rate *float64) number {
	if rate == nil {
		return missing
	}
	return joules / 3.6e6 * number(*rate)
}
