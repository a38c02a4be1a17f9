// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// Report is the result of a run. It contains no names and no serial numbers.
type Report struct {
	Schema   int       `json:"schema"`
	Version  string    `json:"version"`
	Machine  Machine   `json:"machine"`
	Seconds  float64   `json:"seconds"`
	CPUTimes string    `json:"cpu_times"`
	Meters   []Meter   `json:"meters"`
	Zones    []ZoneRow `json:"zones"`
	Verdicts []Verdict `json:"verdicts"`
}

// ZoneRow is a zone of a report. A figure is nil if it is unknown.
type ZoneRow struct {
	Meter    string       `json:"meter"`
	ID       string       `json:"id"`
	Kind     power.Kind   `json:"kind"`
	Method   power.Method `json:"method"`
	Chosen   bool         `json:"chosen"`
	Socket   *int         `json:"socket"`
	Idle     *float64     `json:"idle_watts"`
	Full     *float64     `json:"full_watts"`
	Update   *float64     `json:"update_seconds"`
	Unit     *float64     `json:"unit_joules"`
	Range    *float64     `json:"range_joules"`
	Lag      *float64     `json:"lag_seconds"`
	Average  *float64     `json:"average_seconds"`
	Noise    *float64     `json:"noise"`
	Reads    int          `json:"reads"`
	Failures int          `json:"failed_reads"`
}

const schema = 1

// NewReport checks an observation and returns the report of this version of the program.
func NewReport(o *Observation, version string) *Report {
	verdicts, figures := Check(o)
	r := &Report{Schema: schema, Version: version, Machine: o.Machine, CPUTimes: o.Ledger.Source, Meters: o.Meters, Verdicts: verdicts}
	if n := len(o.Steps); n > 0 {
		r.Seconds = math.Round(o.Steps[n-1].To)
	}
	for _, z := range o.Zones {
		f := figures[z]
		row := ZoneRow{
			Meter: z.Meter, ID: z.ID, Kind: z.Kind, Method: z.Method, Chosen: z.Chosen, Reads: z.Reads, Failures: z.Failed,
			Idle: known(f.Idle), Full: known(f.Full), Update: known(f.Update), Unit: known(f.Unit), Lag: known(f.Lag), Average: known(f.Average), Noise: known(f.Noise),
		}
		if z.Socket >= 0 {
			row.Socket = &z.Socket
		}
		if z.Range > 0 {
			row.Range = &z.Range
		}
		r.Zones = append(r.Zones, row)
	}
	return r
}

// known returns a figure with four digits, nil if it is unknown.
func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	if v != 0 {
		scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
		v = math.Round(v*scale) / scale
	}
	return &v
}

// Faults returns how many checks found a fault.
func (r *Report) Faults() (n int) {
	for _, v := range r.Verdicts {
		if v.Status == Fault {
			n++
		}
	}
	return n
}

// WriteJSON writes the report for programs.
func (r *Report) WriteJSON(to io.Writer) error {
	e := json.NewEncoder(to)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// WriteText writes the report for a terminal.
func (r *Report) WriteText(to io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.summary())
	for _, status := range []Status{Fault, Note, OK, Unchecked} {
		r.writeVerdicts(&b, status)
	}
	b.WriteString("\nMeters\n")
	for _, m := range r.Meters {
		figure.Wrap(&b, fmt.Sprintf("%s%s: %s", m.Name, chosen(m.Chosen), m.Why))
	}
	rows := r.rows()
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], figure.Width(cell))
		}
	}
	if len(rows) > 1 {
		b.WriteString("\n")
		for _, row := range rows {
			for i, cell := range row {
				row[i] = figure.Pad(cell, widths[i])
			}
			b.WriteString(strings.TrimRight(strings.Join(row, "  "), " ") + "\n")
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// writeVerdicts writes the verdicts with a status. Checks that share a text share a line.
func (r *Report) writeVerdicts(b *strings.Builder, status Status) {
	var texts []string
	checks := map[string][]string{}
	for _, v := range r.Verdicts {
		if v.Status == status {
			if checks[v.Text] == nil {
				texts = append(texts, v.Text)
			}
			checks[v.Text] = append(checks[v.Text], v.Check)
		}
	}
	for _, text := range texts {
		figure.Wrap(b, fmt.Sprintf("%s %s: %s", strings.ToUpper(string(status)), strings.Join(checks[text], ", "), text))
	}
}

func chosen(kinds []power.Kind) string {
	if len(kinds) == 0 {
		return " (not used)"
	}
	return fmt.Sprintf(" (used for %s)", names(kinds))
}

// summary describes the machine and counts the results.
func (r *Report) summary() string {
	m := &r.Machine
	what := "machine"
	if m.Virtual {
		what = "virtual machine"
	}
	var counts []string
	for _, status := range []Status{OK, Fault, Note, Unchecked} {
		n := 0
		for _, v := range r.Verdicts {
			if v.Status == status {
				n++
			}
		}
		counts = append(counts, fmt.Sprintf("%d %s", n, status))
	}
	sensors := ""
	if !slices.ContainsFunc(r.Zones, func(z ZoneRow) bool { return z.Method == power.Measured }) {
		sensors = " No meter can be read: only checks that need no meter ran."
	}
	return fmt.Sprintf("%s (%s; sockets %d, cores %d, threads %d; %.0f GiB; Linux %s), checked in %.0f s: %s.%s",
		m.CPU, what, m.Sockets, m.Cores, m.Threads, m.MemoryGiB, m.Kernel, r.Seconds, strings.Join(counts, ", "), sensors)
}

// rows returns the table of zones with its header.
func (r *Report) rows() [][]string {
	rows := [][]string{{"meter", "zone", "kind", "rest", "full load", "update", "unit", "lag", "noise"}}
	for i := range r.Zones {
		z := &r.Zones[i]
		rows = append(rows, []string{
			z.Meter, z.ID, string(z.Kind), cell(z.Idle, 1, "W"), cell(z.Full, 1, "W"), cell(z.Update, 1, "s"), cell(z.Unit, 1e6, "µJ"),
			cell(z.Lag, 1, "s"), cell(z.Noise, 100, "%"),
		})
	}
	return rows
}

func cell(v *float64, scale float64, unit string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.3g %s", *v*scale, unit)
}

// WriteMarkdown writes the report for an issue.
func (r *Report) WriteMarkdown(to io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## energy verify %s\n\n%s\n\n| check | result | |\n|---|---|---|\n", r.Version, r.summary())
	for _, v := range r.Verdicts {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", v.Check, v.Status, escaped(v.Text))
	}
	b.WriteString("\n| meter | used for | why |\n|---|---|---|\n")
	for _, m := range r.Meters {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.Name, names(m.Chosen), escaped(m.Why))
	}
	if rows := r.rows(); len(rows) > 1 {
		b.WriteString("\n")
		for i, row := range rows {
			for j := range row {
				row[j] = escaped(row[j])
			}
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
			}
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// escaped returns a text for a cell of a Markdown table.
func escaped(text string) string { return strings.ReplaceAll(figure.Line(text), "|", `\|`) }
