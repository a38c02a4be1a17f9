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

// lines returns the rows, the rest and the sums.
func (d *Document) lines() []Row {
	before, rest := cmp.Or(d.Before, &Sums{Energies: notAvailable}), d.Rest
	rest.Name = "(rest)"
	return append(slices.Clone(d.Rows), rest,
		Row{Name: "(active)", Joules: d.Active, Share: 1, Before: before.Active},
		Row{Name: "(idle)", Joules: d.Idle, Share: missing, Before: before.Idle},
		Row{Name: "(all)", Joules: d.Joules, Share: missing, Before: before.Joules})
}

// table returns the cells of a table, with its titles in the first line.
func (d *Document) table() [][]string {
	cells := [][]string{append([]string{d.By, "energy", "share", "change"}, d.rates.Columns()...)}
	for _, row := range d.lines() {
		line := []string{row.Name, wattHours(row.Joules), percent(row.Share), row.change()}
		cells = append(cells, append(line, d.rates.Of(float64(row.Joules))...))
	}
	return cells
}

// change returns the change of a row in percent.
func (row *Row) change() string {
	switch {
	case row.Before.isMissing() || row.Before <= 0 && row.Joules <= 0:
		return ""
	case row.Before <= 0:
		return "new"
	case row.Joules > 10*row.Before:
		return fmt.Sprintf("× %.0f", row.Joules/row.Before)
	}
	return fmt.Sprintf("%+.1f %%", math.Round(1000*float64(row.Joules/row.Before-1))/10+0) // + 0 makes -0 positive
}

func wattHours(joules number) string { return figure.Wh(float64(joules)) }

func percent(share number) string {
	if share.isMissing() {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

// covered returns a coverage, rounded down: only a complete one is 100 %.
func covered(share number) string { return percent(number(math.Floor(float64(share)*1e3+1e-6) / 1e3)) }

// sentences returns the results in words: energy, change, largest changes, coverage and notes.
func (d *Document) sentences() (texts []string) {
	when := fmt.Sprint(d.Span)
	if next := d.From.AddDate(0, 1, 0); d.From.Day() == 1 && d.From.Hour() == 0 && next.Equal(d.To) {
		when = "in " + d.From.Format("January 2006")
	}
	figures := append([]string{wattHours(d.Joules)}, d.rates.Of(float64(d.Joules))...)
	text := fmt.Sprintf("Energy %s (%s): %s", when, d.From.Format("MST"), strings.Join(figures, ", "))
	if d.Before != nil {
		all := Row{Joules: d.Joules, Before: d.Before.Joules}
		text += fmt.Sprintf(", %s compared with %s before", all.change(), d.length())
	}
	texts = append(texts, text)
	if d.Joules > 0 {
		texts = append(texts, fmt.Sprintf("%s of the energy is idle energy, %s is active and unattributed",
			percent(d.Idle/d.Joules), percent(d.Unattributed/d.Joules)))
	}
	if movers := d.movers(); len(movers) > 0 {
		texts = append(texts, "Largest changes: "+strings.Join(movers, ", "))
	}
	text = fmt.Sprintf("Coverage: %s, nodes: %d", covered(d.Coverage), d.Nodes)
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

// length returns the length of the period, such as "the 30 days".
func (d *Document) length() string {
	n, unit := d.To.Sub(d.From).Hours(), "hour"
	if n == 24 || n >= 48 {
		n, unit = n/24, "day"
	}
	if n == 1 {
		return "the " + unit
	}
	return fmt.Sprintf("the %.3g %ss", n, unit)
}

// movers returns the rows with the largest changes.
func (d *Document) movers() (texts []string) {
	rows := slices.DeleteFunc(slices.Clone(d.Rows), func(r Row) bool { return !(r.difference() > 0) })
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(b.difference(), a.difference()) })
	for _, r := range rows[:min(maxNamed, len(rows))] {
		sign := "+"
		if r.Joules < r.Before {
			sign = "-"
		}
		texts = append(texts, fmt.Sprintf("%s %s%s (%s)", r.Name, sign, wattHours(r.difference()), r.change()))
	}
	return texts
}

// WriteText writes a sentence, the table, and the other sentences.
func (d *Document) WriteText(w io.Writer) error {
	var b strings.Builder
	cells, texts := d.table(), d.sentences()
	for i, title := range cells[0] {
		cells[0][i] = strings.ToUpper(title)
	}
	figure.Wrap(&b, texts[0]+".")
	report.WriteTable(&b, cells)
	b.WriteString("\n")
	for _, text := range texts[1:] {
		figure.Wrap(&b, text+".")
	}
	_, err := io.WriteString(figure.Writer(w), b.String())
	return err
}

// WriteMarkdown writes the sentences and the table (GitHub Flavored Markdown).
func (d *Document) WriteMarkdown(w io.Writer) error {
	table, texts := "", d.sentences()
	for n, line := range d.table() {
		name := report.Escape(line[0])
		if n > 0 && n <= len(d.Rows) {
			name = report.Code(line[0])
		}
		table += "| " + name
		for _, cell := range line[1:] {
			table += " | " + report.Escape(cell)
		}
		if table += " |\n"; n == 0 {
			table += "| ---" + strings.Repeat(" | ---:", len(line)-1) + " |\n"
		}
	}
	for i, text := range texts {
		texts[i] = report.Escape(text) + ".\n"
	}
	_, err := io.WriteString(w, strings.Join(slices.Insert(texts, 1, table), "\n"))
	return err
}

// csvHead are the columns of CSV.
var csvHead = []string{"from", "to", "kind", "name", "joules", "kwh", "share", "before_joules", "co2e_grams", "cost"}

// WriteCSV writes the rows, the rest and the sums. A missing figure is empty.
func (d *Document) WriteCSV(w io.Writer) error {
	records := [][]string{csvHead}
	for i, row := range d.lines() {
		kind := "row"
		if i >= len(d.Rows) {
			kind = strings.Trim(row.Name, "()")
		}
		record := []string{d.From.Format(time.RFC3339), d.To.Format(time.RFC3339), kind, row.Name}
		for _, v := range []number{
			row.Joules, row.Joules / 3.6e6, row.Share, row.Before, perKWh(row.Joules, d.rates.Grams), perKWh(row.Joules, d.rates.Price),
		} {
			record = append(record, v.decimal())
		}
		records = append(records, record)
	}
	return csv.NewWriter(w).WriteAll(records)
}
