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
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/web"
)

// WriteJSON writes the document.
func (d *Document) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(d)
}

// WriteHTML writes the document as a page.
func (d *Document) WriteHTML(w io.Writer) error { return web.WriteReport(w, "report", d) }

// kinds are the kinds of the lines of a table.
const (
	ofRow    = "row"
	ofRest   = "rest" // active energy without a row
	ofActive = "active"
	ofIdle   = "idle"
	ofAll    = "all"
)

// lines returns the rows of the document, and the sums.
func (d *Document) lines() []Row {
	lines, before := slices.Clone(d.Rows), cmp.Or(d.Before, &Sums{})
	add := func(kind string, joules, before float64) {
		row := Row{Name: "(" + kind + ")", kind: kind}
		if row.fill(d, joules, nil, nil); d.Before != nil {
			row.Before = &before
		}
		lines = append(lines, row)
	}
	rest := d.Rest
	rest.Name, rest.kind = "("+ofRest+")", ofRest
	lines = append(lines, rest)
	add(ofActive, d.Active, before.Active)
	add(ofIdle, d.Idle, before.Idle)
	add(ofAll, d.Joules, before.Joules)
	return lines
}

// table returns the cells of a table, with its titles in the first line.
func (d *Document) table() [][]string {
	cells := [][]string{append([]string{d.By, "energy", "share", "change"}, d.rates.Columns()...)}
	for _, row := range d.lines() {
		share := percent(row.Share)
		if row.kind == ofIdle || row.kind == ofAll {
			share = ""
		}
		line := []string{row.Name, figure.Wh(row.Joules), share, row.change()}
		cells = append(cells, append(line, d.rates.Of(row.Joules)...))
	}
	return cells
}

// change returns the change of a row in percent.
func (row *Row) change() string {
	switch {
	case row.Before == nil || *row.Before <= 0 && row.Joules <= 0:
		return ""
	case *row.Before <= 0:
		return "new"
	case row.Joules > 10**row.Before:
		return fmt.Sprintf("× %.0f", row.Joules / *row.Before)
	}
	return fmt.Sprintf("%+.1f %%", 100*(row.Joules / *row.Before - 1))
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// sentences returns the results in words: energy, change, largest changes, coverage and notes.
func (d *Document) sentences() (texts []string) {
	when := d.String()
	if next := d.From.AddDate(0, 1, 0); d.From.Day() == 1 && d.From.Hour() == 0 && next.Equal(d.To) {
		when = "in " + d.From.Format("January 2006")
	}
	figures := append([]string{figure.Wh(d.Joules)}, d.rates.Of(d.Joules)...)
	text := fmt.Sprintf("Energy %s: %s, nodes: %d", when, strings.Join(figures, ", "), d.Nodes)
	if d.Before != nil {
		all := Row{Joules: d.Joules, Before: &d.Before.Joules}
		text += fmt.Sprintf(", %s compared with the %.3g days before", all.change(), d.To.Sub(d.From).Hours()/24)
	}
	texts = append(texts, text)
	if d.Joules > 0 {
		texts = append(texts, fmt.Sprintf("%s of the energy is idle energy, %s is active and unattributed",
			percent(d.Idle/d.Joules), percent(d.Unattributed/d.Joules)))
	}
	if movers := d.movers(); len(movers) > 0 {
		texts = append(texts, "Largest changes: "+strings.Join(movers, ", "))
	}
	text = "Coverage: " + percent(d.Coverage)
	var gaps []string
	for _, g := range d.Gaps {
		gaps = append(gaps, g.String())
	}
	if len(gaps) > 0 {
		text += ". No data from any node " + some(gaps)
	}
	texts = append(append(texts, text), d.Notes...)
	if rates := d.rates.Explain(); len(rates) > 0 {
		texts = append(texts, "Rates: "+strings.Join(rates, ", "))
	}
	return texts
}

// movers returns the rows with the largest changes.
func (d *Document) movers() (texts []string) {
	rows := slices.DeleteFunc(slices.Clone(d.Rows), func(r Row) bool { return r.Before == nil || *r.Before == r.Joules })
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Compare(math.Abs(b.Joules-*b.Before), math.Abs(a.Joules-*a.Before))
	})
	for _, r := range rows[:min(maxMovers, len(rows))] {
		sign := "+"
		if r.Joules < *r.Before {
			sign = "-"
		}
		texts = append(texts, fmt.Sprintf("%s %s%s (%s)", r.Name, sign, figure.Wh(math.Abs(r.Joules-*r.Before)), r.change()))
	}
	return texts
}

// WriteText writes a sentence, the table, and the other sentences.
func (d *Document) WriteText(w io.Writer) error {
	cells := d.table()
	widths := make([]int, len(cells[0]))
	for _, line := range cells {
		for i, cell := range line {
			widths[i] = min(max(widths[i], figure.Width(cell)), 40)
		}
	}
	var b strings.Builder
	texts := d.sentences()
	figure.Wrap(&b, texts[0]+".")
	b.WriteString("\n")
	for n, line := range cells {
		text := figure.Pad(line[0], widths[0])
		for i, cell := range line[1:] {
			text += "  " + strings.Repeat(" ", max(0, widths[i+1]-figure.Width(cell))) + cell
		}
		if n == 0 {
			text = strings.ToUpper(text)
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	b.WriteString("\n")
	for _, text := range texts[1:] {
		figure.Wrap(&b, text+".")
	}
	_, err := io.WriteString(figure.Writer(w), b.String())
	return err
}

// WriteMarkdown writes the sentences and the table (GitHub Flavored Markdown).
func (d *Document) WriteMarkdown(w io.Writer) error {
	cells := d.table()
	var table strings.Builder
	for n, line := range cells {
		for i := range line {
			line[i] = report.Escape(line[i])
		}
		if n > 0 && n <= len(d.Rows) {
			line[0] = report.Code(d.Rows[n-1].Name)
		}
		table.WriteString("| " + strings.Join(line, " | ") + " |\n")
		if n == 0 {
			table.WriteString("| ---" + strings.Repeat(" | ---:", len(line)-1) + " |\n")
		}
	}
	texts := d.sentences()
	for i := range texts {
		texts[i] = report.Escape(texts[i]) + ".\n"
	}
	texts = slices.Insert(texts, 1, table.String())
	_, err := io.WriteString(w, strings.Join(texts, "\n"))
	return err
}

// csvHead are the columns of CSV.
var csvHead = []string{"from", "to", "kind", "name", "joules", "kwh", "share", "before_joules", "co2e_grams", "cost"}

// WriteCSV writes the rows and the sums. A missing figure is empty.
func (d *Document) WriteCSV(w io.Writer) error {
	records := [][]string{csvHead}
	for _, row := range d.lines() {
		kWh, share := rounded(row.Joules/3.6e6), &row.Share
		if row.kind == ofIdle || row.kind == ofAll {
			share = nil
		}
		record := []string{d.From.Format(time.RFC3339), d.To.Format(time.RFC3339), row.kind, row.Name}
		for _, v := range []*float64{&row.Joules, &kWh, share, row.Before, row.Grams, row.Cost} {
			text := ""
			if v != nil {
				text = strconv.FormatFloat(*v, 'f', -1, 64)
			}
			record = append(record, text)
		}
		records = append(records, record)
	}
	return csv.NewWriter(w).WriteAll(records)
}
