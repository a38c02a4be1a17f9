// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Report holds the results of all runs of a plan.
type Report struct {
	Plan Plan
	A    *Command
	// B and Comparison are nil where there is one command.
	B          *Command
	Comparison *Comparison
	// Notes are remarks that readers of the figures should know.
	Notes []string
}

// NewReport describes the results of a plan. Each of its commands has a result.
func NewReport(p Plan, results [2][]measure.Result, notes ...string) *Report {
	r := &Report{Plan: p, A: Describe(results[0])}
	if p.Two {
		r.B = Describe(results[1])
		r.Comparison = Compare(r.A, r.B)
	}
	r.Notes = slices.Clone(notes)
	for _, c := range r.commands() {
		r.Notes = merge(r.Notes, c.RunNotes)
	}
	for i, c := range r.commands() {
		for _, note := range c.Notes {
			if p.Two {
				note = label(i) + ": " + note
			}
			r.Notes = append(r.Notes, note)
		}
	}
	if r.Comparison != nil {
		r.Notes = append(r.Notes, r.Comparison.Notes...)
	}
	return r
}

func (r *Report) commands() []*Command {
	if r.B == nil {
		return []*Command{r.A}
	}
	return []*Command{r.A, r.B}
}

func label(command int) string { return string(rune('A' + command)) }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	for i, c := range r.commands() {
		head := "Command   "
		if r.Plan.Two {
			head = "Command " + label(i) + " "
		}
		fmt.Fprintf(&b, "%s%s\n", head, figure.Fit(figure.Command(c.Command), figure.Columns-len(head)))
	}
	if n := r.Plan.Warmup; n > 0 {
		each := ""
		if r.Plan.Two {
			each = " each"
		}
		fmt.Fprintf(&b, "Warm-up   %s%s, not in the figures\n", plural(n, "run", "runs"), each)
	}
	for i, c := range r.commands() {
		b.WriteString("\n")
		name := ""
		if r.Plan.Two {
			name = label(i) + ", "
		}
		c.writeTable(&b, name+plural(len(c.Runs), "RUN", "RUNS"))
	}
	if r.Comparison != nil {
		b.WriteString("\n")
		r.Comparison.writeTable(&b)
	}
	if len(r.Notes) > 0 {
		b.WriteString("\n")
	}
	for _, note := range r.Notes {
		figure.Wrap(&b, "Note: "+figure.Clean(note))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

type jsonReport struct {
	Schema     int           `json:"schema"`
	WarmupRuns int           `json:"warmup_runs"`
	Commands   []jsonCommand `json:"commands"`
	Ratios     *jsonRatios   `json:"ratios,omitempty"`
	Notes      []string      `json:"notes"`
}

type jsonCommand struct {
	Command    []string         `json:"command"`
	Joules     *jsonSummary     `json:"joules"` // null where nothing is known
	MeanWatts  *jsonSummary     `json:"mean_watts"`
	Seconds    *jsonSummary     `json:"seconds"`
	CPUSeconds *jsonSummary     `json:"cpu_seconds"`
	Zones      []jsonZone       `json:"zones"`
	Phases     []jsonPhase      `json:"phases"`
	Runs       []measure.Result `json:"runs"`
}

type jsonZone struct {
	Zone         string       `json:"zone"`
	Source       string       `json:"source"`
	Added        bool         `json:"added"`
	OverlapsWith string       `json:"overlaps_with,omitempty"`
	Joules       *jsonSummary `json:"joules"`
}

type jsonPhase struct {
	Phase      string       `json:"phase"`
	Joules     *jsonSummary `json:"joules"`
	Seconds    *jsonSummary `json:"seconds"`
	CPUSeconds *jsonSummary `json:"cpu_seconds"`
}

type jsonSummary struct {
	Mean   float64  `json:"mean"`
	StdDev *float64 `json:"stddev"` // null of one run
	Low    *float64 `json:"ci95_low"`
	High   *float64 `json:"ci95_high"`
	Median float64  `json:"median"`
	Min    float64  `json:"min"`
	Max    float64  `json:"max"`
	// Outliers are numbers of runs, from 1.
	Outliers []int `json:"outliers"`
}

type jsonRatios struct {
	Joules     jsonRatio       `json:"joules"`
	MeanWatts  jsonRatio       `json:"mean_watts"`
	Seconds    jsonRatio       `json:"seconds"`
	CPUSeconds jsonRatio       `json:"cpu_seconds"`
	Zones      []jsonZoneRatio `json:"zones"`
}

type jsonRatio struct {
	Ratio       *float64 `json:"a_to_b"` // null without a pair
	Low         *float64 `json:"ci95_low"`
	High        *float64 `json:"ci95_high"`
	Pairs       int      `json:"pairs"`
	Left        int      `json:"pairs_left_out"`
	Significant bool     `json:"significant"`
}

type jsonZoneRatio struct {
	Zone   string    `json:"zone"`
	Joules jsonRatio `json:"joules"`
}

// WriteJSON writes the report, with all runs, as one JSON document.
func (r *Report) WriteJSON(w io.Writer) error {
	d := jsonReport{Schema: measure.SchemaVersion, WarmupRuns: r.Plan.Warmup, Notes: append([]string{}, r.Notes...)}
	for _, c := range r.commands() {
		d.Commands = append(d.Commands, c.document())
	}
	if c := r.Comparison; c != nil {
		d.Ratios = &jsonRatios{
			Joules: c.Energy.document(), MeanWatts: c.Power.document(), Seconds: c.Wall.document(), CPUSeconds: c.CPU.document(),
			Zones: []jsonZoneRatio{},
		}
		for _, z := range c.Zones {
			d.Ratios.Zones = append(d.Ratios.Zones, jsonZoneRatio{z.Name, z.Energy.document()})
		}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(d)
}

func (c *Command) document() jsonCommand {
	d := jsonCommand{
		Command: c.Command, Seconds: c.Wall.document(), CPUSeconds: c.CPU.document(), Zones: []jsonZone{}, Phases: []jsonPhase{}, Runs: c.Runs,
	}
	if c.known() {
		d.Joules, d.MeanWatts = c.Energy.document(), c.Power.document()
	}
	for i := range c.Zones {
		z := &c.Zones[i]
		d.Zones = append(d.Zones, jsonZone{z.Name, z.Source, z.Besides == "", z.Besides, z.Energy.document()})
	}
	for i := range c.Phases {
		p := &c.Phases[i]
		d.Phases = append(d.Phases, jsonPhase{p.Name, p.Energy.document(), p.Wall.document(), p.CPU.document()})
	}
	return d
}

func (s *Summary) document() *jsonSummary {
	d := &jsonSummary{Mean: s.Mean, Median: s.Median, Min: s.Min, Max: s.Max, Outliers: []int{}}
	if s.Spread() {
		d.StdDev, d.Low, d.High = &s.StdDev, &s.Low, &s.High
	}
	for _, i := range s.Outliers {
		d.Outliers = append(d.Outliers, i+1)
	}
	return d
}

func (r Ratio) document() jsonRatio {
	d := jsonRatio{Pairs: r.Pairs, Left: r.Left, Significant: r.Significant()}
	if r.Pairs > 0 {
		d.Ratio = &r.Mean
	}
	if r.Spread() {
		d.Low, d.High = &r.Low, &r.High
	}
	return d
}

var csvHead = []string{"command", "run", "phase", "zone", "source", "added", "seconds", "cpu_seconds", "joules", "mean_watts"}

// WriteCSV writes the report as CSV (RFC 4180). Each run has a row for all zones together, whose
// zone is empty, one for each zone, and one for each zone of each phase. The column run has the
// number of the run, or which figure of all runs a row has: mean, stddev, ci95_low, ci95_high, min
// and max. The command A/B has the ratios: mean, ci95_low and ci95_high.
func (r *Report) WriteCSV(w io.Writer) error {
	rows := [][]string{csvHead}
	for i, c := range r.commands() {
		for n := range c.Runs {
			rows = append(rows, runRows(label(i), strconv.Itoa(n+1), &c.Runs[n])...)
		}
		rows = append(rows, c.summaryRows(label(i))...)
	}
	if r.Comparison != nil {
		rows = append(rows, r.Comparison.rows()...)
	}
	return csv.NewWriter(w).WriteAll(rows)
}

func runRows(command, run string, r *measure.Result) (rows [][]string) {
	seconds, cpuSeconds, joules, watts := decimal(wall(r)), decimal(cpu(r)), "", ""
	if len(r.Zones) > 0 {
		joules, watts = decimal(energy(r)), decimal(power(r))
	}
	rows = append(rows, []string{command, run, "", "", "", "", seconds, cpuSeconds, joules, watts})
	for _, z := range r.Zones {
		rows = append(rows, []string{command, run, "", z.Name, z.Source, strconv.FormatBool(z.Besides == ""), seconds, cpuSeconds,
			decimal(z.Used.Joules()), decimal(units.Watts(z.Used, r.Wall))})
	}
	for _, p := range r.Phases {
		for i, used := range p.Used {
			z := &r.Zones[i]
			rows = append(rows, []string{command, run, p.Name, z.Name, z.Source, strconv.FormatBool(z.Besides == ""), decimal(p.Wall.Seconds()),
				decimal(p.CPU.Seconds()), decimal(used.Joules()), decimal(units.Watts(used, p.Wall))})
		}
	}
	return rows
}

// figures are those of a Summary that the CSV has.
var figures = []struct {
	name  string
	of    func(*Summary) float64
	known func(*Summary) bool
}{
	{"mean", func(s *Summary) float64 { return s.Mean }, nil},
	{"stddev", func(s *Summary) float64 { return s.StdDev }, (*Summary).Spread},
	{"ci95_low", func(s *Summary) float64 { return s.Low }, (*Summary).Spread},
	{"ci95_high", func(s *Summary) float64 { return s.High }, (*Summary).Spread},
	{"min", func(s *Summary) float64 { return s.Min }, nil},
	{"max", func(s *Summary) float64 { return s.Max }, nil},
}

func (c *Command) summaryRows(command string) (rows [][]string) {
	for _, f := range figures {
		if f.known != nil && !f.known(&c.Wall) {
			continue
		}
		joules, watts := "", ""
		if c.known() {
			joules, watts = decimal(f.of(&c.Energy)), decimal(f.of(&c.Power))
		}
		rows = append(rows, []string{command, f.name, "", "", "", "", decimal(f.of(&c.Wall)), decimal(f.of(&c.CPU)), joules, watts})
		for i := range c.Zones {
			z := &c.Zones[i]
			rows = append(rows, []string{command, f.name, "", z.Name, z.Source, strconv.FormatBool(z.Besides == ""), "", "", decimal(f.of(&z.Energy)), ""})
		}
	}
	return rows
}

func (c *Comparison) rows() (rows [][]string) {
	for _, f := range []struct {
		name  string
		of    func(Ratio) float64
		known func(Ratio) bool
	}{
		{"mean", func(r Ratio) float64 { return r.Mean }, func(r Ratio) bool { return r.Pairs > 0 }},
		{"ci95_low", func(r Ratio) float64 { return r.Low }, Ratio.Spread},
		{"ci95_high", func(r Ratio) float64 { return r.High }, Ratio.Spread},
	} {
		if !f.known(c.Wall) {
			continue
		}
		cell := func(r Ratio) string {
			if !f.known(r) {
				return ""
			}
			return decimal(f.of(r))
		}
		rows = append(rows, []string{"A/B", f.name, "", "", "", "", cell(c.Wall), cell(c.CPU), cell(c.Energy), cell(c.Power)})
		for _, z := range c.Zones {
			rows = append(rows, []string{"A/B", f.name, "", z.Name, "", "", "", "", cell(z.Energy), ""})
		}
	}
	return rows
}

// decimal returns a number with as many digits as it needs.
func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
