// SPDX-License-Identifier: Apache-2.0

package period

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/report"
)

const timeFormat = "2006-01-02 15:04"

// WriteJSON writes the document.
func (d *Document) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(d)
}

// line is a row of a table: its name, energy, share of the active energy, change and rates.
type line struct {
	kind, name string
	joules     float64
	before     *float64
}

// lines returns the rows of tables: the rows of the document, and the sums.
func (d *Document) lines() (lines []line) {
	for i := range d.Rows {
		lines = append(lines, line{"row", d.Rows[i].Name, d.Rows[i].Joules, d.Rows[i].Before})
	}
	var active, idle, all *float64
	if d.Before != nil {
		active, idle, all = &d.Before.Active, &d.Before.Idle, &d.Before.Joules
	}
	return append(lines, line{"rest", "(rest)", d.Rest.Joules, nil}, line{"active", "(active)", d.Active, active},
		line{"idle", "(idle)", d.Idle, idle}, line{"all", "(all)", d.Joules, all})
}

// rates returns the rates of the document.
func (d *Document) rates() (r report.Rates) {
	if d.CO2e != nil {
		r.Grams, r.Grid = &d.CO2e.PerKWh, d.CO2e.Grid
	}
	if d.Price != nil {
		r.Price, r.Currency = &d.Price.PerKWh, d.Price.Currency
	}
	return r
}

func (d *Document) titles() []string {
	return append([]string{d.By, "energy", "share", "change"}, d.rates().Columns()...)
}

func (d *Document) cells(l line) []string {
	share, change := "", ""
	if d.Active > 0 && l.kind != "idle" && l.kind != "all" {
		share = percent(l.joules / d.Active)
	}
	if l.before != nil {
		change = changed(*l.before, l.joules)
	}
	return append([]string{l.name, figure.Wh(l.joules), share, change}, d.rates().Of(l.joules)...)
}

// changed returns the change of an energy in percent.
func changed(from, to float64) string {
	switch {
	case from <= 0 && to <= 0:
		return ""
	case from <= 0:
		return "new"
	case to/from > 10:
		return fmt.Sprintf("× %.0f", to/from)
	}
	return fmt.Sprintf("%+.1f %%", 100*(to/from-1))
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// when returns the period: a month, or from when to when.
func (d *Document) when() string {
	if d.From.Equal(firstOf(d.From)) && d.To.Equal(d.From.AddDate(0, 1, 0)) {
		return "in " + d.From.Format("January 2006")
	}
	return "from " + d.From.Format(timeFormat) + " to " + d.To.Format(timeFormat)
}

func firstOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, t.Location())
}

// sentences returns the results in words: energy, change, largest changes and coverage.
func (d *Document) sentences() (texts []string) {
	text := fmt.Sprintf("%d nodes used %s", d.Nodes, figure.Wh(d.Joules))
	if d.Nodes == 1 {
		text = "The node used " + figure.Wh(d.Joules)
	}
	if rates := d.rates().Of(d.Joules); len(rates) > 0 {
		text += " (" + strings.Join(rates, ", ") + ")"
	}
	text += " " + d.when()
	if d.Before != nil && d.Before.Joules > 0 {
		days := strconv.FormatFloat(math.Round(d.To.Sub(d.From).Hours()/2.4)/10, 'f', -1, 64)
		text += fmt.Sprintf(", %s compared with the %s days before", changed(d.Before.Joules, d.Joules), days)
	}
	texts = append(texts, text)
	if d.Joules > 0 {
		texts = append(texts, fmt.Sprintf("%s of the energy is idle energy, %s is active and unattributed",
			percent(d.Idle/d.Joules), percent(d.Unattributed/d.Joules)))
	}
	var movers []string
	for _, r := range d.movers() {
		text := figure.Wh(math.Abs(r.Joules - *r.Before))
		if r.Joules < *r.Before {
			text = "-" + text
		} else {
			text = "+" + text
		}
		movers = append(movers, fmt.Sprintf("%s %s (%s)", r.Name, text, changed(*r.Before, r.Joules)))
	}
	if len(movers) > 0 {
		texts = append(texts, "Largest changes: "+strings.Join(movers, ", "))
	}
	text = "Coverage: " + percent(d.Coverage)
	var gaps []string
	for _, g := range d.Gaps {
		gaps = append(gaps, g.From.Format(timeFormat)+" to "+g.To.Format(timeFormat))
	}
	if more := len(gaps) - maxGaps; more > 0 {
		gaps = append(gaps[:maxGaps], fmt.Sprintf("%d more", more))
	}
	if len(gaps) > 0 {
		text += ". No data from any node: " + strings.Join(gaps, ", ")
	}
	texts = append(append(texts, text), d.Notes...)
	if rates := d.rates().Explain(); len(rates) > 0 {
		texts = append(texts, "Rates: "+strings.Join(rates, ", "))
	}
	return texts
}

// maxGaps is the maximum number of gaps in a text. JSON has all.
const maxGaps = 10

// movers returns the rows with the largest changes.
func (d *Document) movers() []Row {
	rows := slices.DeleteFunc(slices.Clone(d.Rows), func(r Row) bool { return r.Before == nil || *r.Before == r.Joules })
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(math.Abs(b.Joules-*b.Before), math.Abs(a.Joules-*a.Before)), cmp.Compare(a.Name, b.Name))
	})
	return rows[:min(maxMovers, len(rows))]
}

// WriteText writes the report for a terminal: a sentence, the table, changes, coverage and notes.
func (d *Document) WriteText(w io.Writer) error {
	rows := [][]string{d.titles()}
	for i := range rows[0] {
		rows[0][i] = strings.ToUpper(rows[0][i])
	}
	for _, l := range d.lines() {
		rows = append(rows, d.cells(l))
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = min(max(widths[i], figure.Width(cell)), 40)
		}
	}
	var b strings.Builder
	texts := d.sentences()
	figure.Wrap(&b, texts[0]+".")
	b.WriteString("\n")
	for _, row := range rows {
		cells := []string{figure.Pad(row[0], widths[0])}
		for i, cell := range row[1:] {
			cells = append(cells, strings.Repeat(" ", max(0, widths[i+1]-figure.Width(cell)))+cell)
		}
		b.WriteString(strings.TrimRight(strings.Join(cells, "  "), " ") + "\n")
	}
	b.WriteString("\n")
	for _, text := range texts[1:] {
		figure.Wrap(&b, text+".")
	}
	_, err := io.WriteString(figure.Writer(w), b.String())
	return err
}

// WriteMarkdown writes the report as sentences and a table (GitHub Flavored Markdown).
func (d *Document) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	texts := d.sentences()
	fmt.Fprintf(&b, "%s.\n\n", report.Escape(texts[0]))
	titles := d.titles()
	fmt.Fprintf(&b, "| %s |\n| ---%s |\n", strings.Join(titles, " | "), strings.Repeat(" | ---:", len(titles)-1))
	for _, l := range d.lines() {
		cells := d.cells(l)
		for i := range cells {
			cells[i] = report.Escape(cells[i])
		}
		if l.kind == "row" {
			cells[0] = report.Code(l.name)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	for _, text := range texts[1:] {
		fmt.Fprintf(&b, "\n%s.\n", report.Escape(text))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// csvHead are the columns of CSV.
var csvHead = []string{"from", "to", "kind", "name", "joules", "kwh", "share", "before_joules", "co2e_grams", "cost"}

// WriteCSV writes the rows and the sums. A missing figure is empty.
func (d *Document) WriteCSV(w io.Writer) error {
	records := [][]string{csvHead}
	number := func(v *float64) string {
		if v == nil {
			return ""
		}
		return strconv.FormatFloat(*v, 'f', -1, 64)
	}
	rates := d.rates()
	for _, l := range d.lines() {
		kWh, share := rounded(l.joules/3.6e6), (*float64)(nil)
		if d.Active > 0 && l.kind != "idle" && l.kind != "all" {
			of := rounded(l.joules / d.Active)
			share = &of
		}
		records = append(records, []string{
			d.From.Format(time.RFC3339), d.To.Format(time.RFC3339), l.kind, figure.Line(l.name), number(&l.joules),
			number(&kWh), number(share), number(l.before),
			number(perKWh(l.joules, rates.Grams)), number(perKWh(l.joules, rates.Price)),
		})
	}
	return csv.NewWriter(w).WriteAll(records)
}
