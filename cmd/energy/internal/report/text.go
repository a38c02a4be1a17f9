// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/phase"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/stats"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// format returns a value of a quantity for people.
func format(q Quantity, v float64) string {
	switch {
	case math.IsNaN(v) && q == Joules:
		return "energy not available"
	case math.IsNaN(v):
		return "-"
	case q == Joules || q == NodeJoules:
		return figure.Joules(inEnergy(v))
	case q == Watts:
		return figure.Watts(v)
	}
	return figure.Seconds(time.Duration(v * float64(time.Second)))
}

func percent(share float64) string {
	if share < 0.0995 {
		return fmt.Sprintf("%.2g %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// sourceText returns the method of a zone and its expected error.
func (row *Row) sourceText() string {
	if uncertainty := slices.Max(row.Values[Uncertainty]); uncertainty > 0 {
		return strings.TrimSpace(row.Source + " ± " + percent(uncertainty))
	}
	return row.Source
}

// withMargin returns the mean of a quantity and its ±, which is in percent for a single run.
func (row *Row) withMargin(q Quantity) string {
	text, margin := format(q, row.value(q)), row.margin(q)
	switch {
	case math.IsNaN(margin):
	case len(row.Values[q]) > 1:
		text += " ± " + format(q, margin)
	case q == Joules:
		text += " ± " + percent(margin/row.value(q))
	}
	return text
}

// headline returns the figures of a command on one line.
func (r *Report) headline(command int) string {
	row, c := r.whole(command), &r.Commands[command]
	energy := row.withMargin(Joules)
	if modeled := r.modeled(command); modeled != "" {
		energy += " (" + modeled + ")"
	}
	parts := []string{energy, row.withMargin(Seconds)}
	if row.isKnown(Joules) {
		parts = append(parts, row.withMargin(Watts))
		parts = append(parts, r.Rates.Of(row.energy(Joules).Joules())...)
	}
	if n := len(c.Runs); n > 1 {
		parts = append(parts, fmt.Sprintf("%d runs", n))
	}
	if exit := c.Runs[0].Exit; len(c.Runs) == 1 && exit != 0 {
		parts = append(parts, fmt.Sprintf("exit status %d", exit))
	}
	return strings.Join(parts, " · ")
}

// WriteText writes the report for people: the most important lines and the tables that were asked
// for, or everything.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	if len(r.Commands) > 1 && !r.hasBase() && !r.Verbose {
		for i, c := range r.Commands {
			b.WriteString(figure.Fit(r.label(i)+figure.Command(c.Runs[0].Command), figure.Columns) + "\n")
		}
	}
	for i := range r.Commands {
		figure.Wrap(&b, r.label(i)+r.headline(i))
	}
	r.writeNode(&b)
	for _, line := range r.verdicts() {
		figure.Wrap(&b, line)
	}
	if r.Verbose {
		r.writeCommands(&b)
	} else {
		if programs := r.largest(); programs != "" {
			figure.Wrap(&b, programs)
		}
		if len(r.Warnings) > 0 {
			note := "Note: " + figure.Clean(r.Warnings[0])
			if more := len(r.Warnings) - 1; more > 0 {
				note += fmt.Sprintf(" (-v shows %d more)", more)
			}
			figure.Wrap(&b, note)
		}
	}
	if r.several() {
		r.writeSummaries(&b)
	} else {
		r.writeRun(&b)
	}
	if r.Verbose && len(r.Notes) > 0 {
		b.WriteString("\n")
		for _, note := range r.Notes {
			figure.Wrap(&b, "Note: "+figure.Clean(note))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeCommands writes the commands and how they were measured.
func (r *Report) writeCommands(b *strings.Builder) {
	line := func(head, text string) { fmt.Fprintf(b, "%-10s%s\n", head, figure.Fit(text, figure.Columns-10)) }
	b.WriteString("\n")
	for i, c := range r.Commands {
		line("Command", r.label(i)+figure.Command(c.Runs[0].Command))
	}
	if r.Warmup > 0 {
		line("Warm-up", fmt.Sprintf("%d before the runs of each command, not in the figures", r.Warmup))
	}
	if run := r.Commands[0].Runs[0]; !r.several() {
		line("CPU time", fmt.Sprintf("%s (%s)", format(CPUSeconds, run.CPU.Seconds()), run.CPUTime))
		if len(run.Zones) > 0 {
			line("Energy", figure.Joules(run.Used())+" = "+figure.WattHours(run.Used()))
		}
	}
	for _, text := range r.Rates.Explain() {
		line("Rate", text)
	}
}

// writeNode writes the energy of the node.
func (r *Report) writeNode(b *strings.Builder) {
	if row := r.whole(0); r.Node && row.isKnown(NodeJoules) {
		e := row.energy(NodeJoules)
		parts := append([]string{figure.Joules(e), figure.Watts(units.Watts(e, r.Commands[0].Runs[0].Wall))}, r.Rates.Of(e.Joules())...)
		fmt.Fprintf(b, "Node: %s\n", strings.Join(parts, " · "))
	}
}

// maxLargest is the maximum number of programs on one line.
const maxLargest = 4

// largest returns a line with the programs that used the most, empty if that is the command itself.
func (r *Report) largest() string {
	var texts []string
	whole := r.whole(0).energy(Joules)
	for _, p := range first(maxLargest, partsOf(r.rows(0, isNamed), Joules)) {
		if share := 100 * float64(p.used) / float64(whole); share >= 0.5 {
			texts = append(texts, fmt.Sprintf("%s %.0f %%", figure.Fit(figure.Clean(p.name), 30), share))
		}
	}
	command := filepath.Base(r.Commands[0].Runs[0].Command[0])
	if r.several() || r.By != "" || len(texts) == 1 && strings.HasPrefix(texts[0], command[:min(len(command), 15)]+" ") {
		return ""
	}
	return strings.Join(texts, ", ")
}

// table has rows of cells. The first row has the names of the columns.
type table [][]string

// write writes the table after an empty line. Figures are aligned to the right. Names are cut if the
// table were too wide.
func (t table) write(b *strings.Builder) {
	if len(t) < 2 {
		return
	}
	widths, left := make([]int, len(t[0])), figure.Columns
	for _, row := range t {
		for i, cell := range row {
			widths[i] = max(widths[i], figure.Width(cell))
		}
	}
	for _, width := range widths[1:] {
		left -= 2 + width
	}
	widths[0] = min(widths[0], max(left, 10))
	b.WriteString("\n")
	for _, row := range t {
		line := ""
		for i, cell := range row {
			if name := t[0][i]; i == 0 || name == "SOURCE" || name == "STATIC" || name == "PHASE" {
				line += figure.Pad(cell, widths[i]) + "  "
			} else {
				line += strings.Repeat(" ", widths[i]-figure.Width(cell)) + cell + "  "
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// WriteTable writes rows of cells as a table. The first row has the names of the columns.
func WriteTable(b *strings.Builder, rows [][]string) { table(rows).write(b) }

// writeRun writes the tables of one run.
func (r *Report) writeRun(b *strings.Builder) {
	run := r.Commands[0].Runs[0]
	if len(run.Zones) == 0 {
		return
	}
	if r.Verbose {
		r.writeZones(b)
	}
	whole, node := r.whole(0).energy(Joules), r.whole(0).energy(NodeJoules)
	named, phases := r.rows(0, isNamed), r.rows(0, isPhase)
	switch by := strings.ToUpper(string(r.By)); {
	case len(run.Workloads) > 0 && len(phases) > 0:
		var parts []part
		for _, phase := range phases {
			of := slices.DeleteFunc(slices.Clone(named), func(row *Row) bool { return row.Phase != phase.Phase })
			parts = append(parts, first(maxWorkloads, partsOf(of, Joules))...)
		}
		writeParts(b, node, parts, by, "ENERGY", "POWER", "SHARE", "PHASE")
	case len(run.Workloads) > 0:
		writeParts(b, node, first(maxWorkloads, partsOf(named, Joules)), by, "ENERGY", "POWER", "SHARE")
	case r.By == measure.ByProgram || r.By == "" && r.Verbose && len(named) > 1:
		writeParts(b, whole, first(maxPrograms, partsOf(named, Joules)), "PROGRAM", "ENERGY", "POWER", "SHARE")
	}
	writeFunctions(b, whole, run.Profile)
	switch {
	case r.By != "" && r.By != measure.ByPhase:
	case r.Node:
		writeParts(b, node, partsOf(phases, NodeJoules), "PHASE", "NODE", "POWER", "SHARE", "TIME")
	default:
		writeParts(b, whole, partsOf(phases, Joules), "PHASE", "ENERGY", "POWER", "SHARE", "TIME")
	}
}

// writeFunctions writes the functions of a profile, which may be nil.
func writeFunctions(b *strings.Builder, whole units.Energy, p *measure.Profile) {
	if p == nil {
		return
	}
	var functions []part
	for _, f := range p.Functions {
		functions = append(functions, part{name: f.Name, used: f.Used, base: f.Base})
	}
	columns := []string{"FUNCTION", "ENERGY", "SHARE", "BEFORE", "CHANGE"}
	if !p.Compared {
		columns = columns[:3]
	}
	writeParts(b, whole, first(maxFunctions, functions), columns...)
}

// The maximum numbers of rows of a table of programs, of programs or containers of a phase, and of
// functions.
const (
	maxPrograms  = 6
	maxWorkloads = 20
	maxFunctions = 10
)

// part is a row of a table whose rows divide an energy.
type part struct {
	name, phase string
	used, base  units.Energy
	seconds     float64
}

// partsOf returns the energies of rows.
func partsOf(rows []*Row, q Quantity) (parts []part) {
	for _, row := range rows {
		parts = append(parts, part{cmp.Or(row.Name, phaseName(row.Phase)), phaseName(row.Phase), row.energy(q), 0, row.value(Seconds)})
	}
	return parts
}

// first returns at most so many parts, the last ones as their sum.
func first(most int, parts []part) []part {
	if len(parts) <= most {
		return parts
	}
	rest := part{name: fmt.Sprintf("%d more", len(parts)-most+1), phase: parts[0].phase, seconds: parts[0].seconds}
	for _, p := range parts[most-1:] {
		rest.used += p.used
		rest.base += p.base
	}
	return append(parts[:most-1:most-1], rest)
}

// phaseName returns the name of a phase for people.
func phaseName(name string) string {
	if name == phase.None {
		return "(none)"
	}
	return name
}

// writeParts writes a table of parts of an energy. The first column has their names.
func writeParts(b *strings.Builder, whole units.Energy, parts []part, columns ...string) {
	t := table{columns}
	for _, p := range parts {
		cells := []string{p.name}
		for _, column := range columns[1:] {
			cells = append(cells, p.cell(column, whole))
		}
		t = append(t, cells)
	}
	t.write(b)
}

// cell returns a cell of a table of parts.
func (p part) cell(column string, whole units.Energy) string {
	switch column {
	case "POWER":
		return format(Watts, p.used.Joules()/p.seconds)
	case "SHARE":
		return figure.Share(p.used, whole)
	case "PHASE":
		return p.phase
	case "TIME":
		return format(Seconds, p.seconds)
	case "BEFORE":
		return figure.Joules(p.base)
	case "CHANGE":
		return figure.Change(p.base, p.used)
	}
	return figure.Joules(p.used)
}

func (r *Report) writeZones(b *strings.Builder) {
	t := table{{"ZONE", "SOURCE", "ENERGY", "POWER", "SHARE", "NODE", "STATIC"}}
	rows := r.rows(0, isZone)
	if slices.ContainsFunc(rows[1:], func(row *Row) bool { return row.Besides == "" }) {
		rows = append(rows, r.whole(0))
	}
	for _, row := range rows {
		t = append(t, []string{rowName(row, Joules), row.sourceText(), format(Joules, row.value(Joules)), format(Watts, row.value(Watts)),
			figure.Share(row.energy(Joules), row.energy(NodeJoules)), format(NodeJoules, row.value(NodeJoules)), string(row.Static)})
	}
	t.write(b)
	r.writeOverlap(b, 0)
}

func (r *Report) writeOverlap(b *strings.Builder, command int) {
	zones := r.rows(command, func(k Key) bool { return isZone(k) && r.row(k).Besides != "" })
	if len(zones) > 0 {
		fmt.Fprintf(b, "Zones in parentheses overlap with %s, and are not added\n", zones[0].Besides)
	}
}

// writeSummaries writes the mean and the spread of the runs of each command, and the ratios.
func (r *Report) writeSummaries(b *strings.Builder) {
	uncertain := false
	for i := range r.Commands {
		r.writeSummary(b, i)
		uncertain = uncertain || r.whole(i).relative() > 0
	}
	if uncertain && r.Verbose {
		figure.Wrap(b, "± of energy and power: root of the sum of squares of the 95 % confidence interval of the mean and the model's expected error")
	}
	if len(r.Commands) < 2 || !r.Verbose {
		return
	}
	t := table{{r.Commands[0].Label + " / " + r.Commands[1].Label, "RATIO", "95 % CONFIDENCE"}}
	write := func(row *Row, q Quantity) {
		if ratio := row.Ratios[q]; ratio.Pairs+ratio.Left > 0 {
			mean, interval := ratioTexts(ratio)
			t = append(t, []string{rowName(row, q), mean, interval})
		}
	}
	for _, row := range r.rows(0, isZone) {
		write(row, Joules)
	}
	for _, q := range compared {
		write(r.whole(0), q)
	}
	t.write(b)
}

func ratioTexts(r stats.Ratio) (mean, interval string) {
	mean = "-"
	if r.Pairs > 0 {
		mean = factor(r.Mean)
	}
	if r.Spread() {
		interval = factor(r.Low) + " to " + factor(r.High)
	}
	return mean, interval
}

var quantityNames = [numQuantities]string{Seconds: "time", CPUSeconds: "CPU time", Joules: "energy", Watts: "power"}

// rowName returns the name of a quantity of a row, "energy" for the energy of all zones.
func rowName(row *Row, q Quantity) string {
	switch {
	case row.Phase != "" && q == Joules:
		return "phase " + phaseName(row.Phase)
	case row.Phase != "":
		return "  " + quantityNames[q]
	case row.Zone == "":
		return quantityNames[q]
	case row.Besides != "":
		return "(" + row.Zone + ")"
	}
	return row.Zone
}

// writeSummary writes the phases of a command, or everything.
func (r *Report) writeSummary(b *strings.Builder, command int) {
	title := r.label(command) + "1 RUN"
	if n := len(r.Commands[command].Runs); n > 1 {
		title = fmt.Sprintf("%s%d RUNS", r.label(command), n)
	}
	interval := "± 95 %"
	if r.modeled(command) != "" {
		interval = "±"
	}
	t := table{{title, "MEAN", interval, "DEVIATION", "MIN", "MAX"}}
	write := func(row *Row, quantities ...Quantity) {
		for _, q := range quantities {
			if row.isKnown(q) {
				t = append(t, spread(row, q))
			}
		}
	}
	if r.Verbose {
		for _, row := range r.rows(command, isZone) {
			write(row, Joules)
		}
		write(r.whole(command), compared...)
	}
	for _, row := range r.rows(command, isPhase) {
		write(row, Joules, Seconds)
	}
	t.write(b)
	if r.Verbose {
		r.writeOverlap(b, command)
	}
}

// spread returns a row of the summary of several runs.
func spread(row *Row, q Quantity) []string {
	s, margin := row.summary(q), row.margin(q)
	cells := []string{rowName(row, q), format(q, s.Mean), ""}
	if !math.IsNaN(margin) {
		cells[2] = "± " + format(q, margin)
	}
	if s.Spread() {
		cells = append(cells, format(q, s.StdDev), format(q, s.Min), format(q, s.Max))
	}
	return cells
}

// verdicts describes the ratios in sentences.
func (r *Report) verdicts() []string {
	if len(r.Commands) < 2 {
		return nil
	}
	energy, seconds := "No energy is available", r.whole(0).Ratios[Seconds]
	if ratio := r.whole(0).Ratios[Joules]; ratio.Pairs+ratio.Left > 0 {
		energy = r.verdict(ratio, "used", "energy")
	}
	lines := []string{energy}
	if r.areModeled() {
		lines = append(lines, r.verdict(r.whole(0).Ratios[CPUSeconds], "used", "CPU time"))
	}
	lines = append(lines, r.verdict(seconds, "took", "time"))
	if seconds.Pairs > 0 && !seconds.Spread() {
		text := "One run does not show whether that is significant: --runs does"
		if len(r.Commands[0].Runs) > 1 {
			text = "The base has one run, which does not show whether that is significant"
		}
		lines = append(lines, text)
	}
	if r.areModeled() {
		lines = append(lines, "Energy is modeled from CPU time and the load of the machine: compare CPU times. A meter may show a different ratio")
	}
	return lines
}

// Limit returns a sentence that compares the ratio of ComparedBy with MaxRatio.
func (r *Report) Limit() string {
	q, ratio := r.ComparedBy()
	what := quantityNames[q]
	if r.areModeled() {
		what += " (all energy is modeled)"
	}
	if !ratio.Spread() {
		return fmt.Sprintf("--max-ratio is not checked: the ratio of %s has no confidence interval", what)
	}
	outcome := "not above %s, the limit of --max-ratio"
	switch {
	case ratio.Above(r.MaxRatio):
		outcome = "above the %s of --max-ratio, and the difference is significant"
	case ratio.Mean > r.MaxRatio:
		outcome = "above the %s of --max-ratio, but the difference is not significant"
	}
	return fmt.Sprintf("the ratio of %s is %.4g (95 %% confidence: %.4g to %.4g), ", what, ratio.Mean, ratio.Low, ratio.High) +
		fmt.Sprintf(outcome, strconv.FormatFloat(r.MaxRatio, 'f', -1, 64))
}

// verdict describes the ratio of a quantity in words. verb is "used" or "took".
func (r *Report) verdict(ratio stats.Ratio, verb, quantity string) string {
	a, b, low, high := r.name(0), r.name(1), ratio.Low, ratio.High
	is := ""
	switch {
	case ratio.Spread() && r.hasBase():
		is = ": the ratio is " + factor(ratio.Mean)
	case ratio.Spread():
		is = fmt.Sprintf(": %s/%s is %s", a, b, factor(ratio.Mean))
	}
	var text string
	switch mean := ratio.Mean; {
	case ratio.Pairs == 0 && ratio.Left > 0:
		text = fmt.Sprintf("%s and %s are not compared: their %s is too small", a, b, quantity)
	case ratio.Pairs == 0:
		text = fmt.Sprintf("%s and %s are not compared: there is no pair of runs", a, b)
	case ratio.Spread() && !ratio.Significant():
		text = fmt.Sprintf("No significant difference in %s%s, and may be 1", quantity, is)
	case mean >= 2:
		text = fmt.Sprintf("%s %s %s times the %s of %s", a, verb, factor(mean), quantity, b)
	case mean <= 0.5 && !r.hasBase():
		text = fmt.Sprintf("%s %s %s times the %s of %s", b, verb, factor(1/mean), quantity, a)
		low, high = 1/high, 1/low
	case math.Abs(mean-1) < 0.0005:
		text = fmt.Sprintf("%s %s as much %s as %s%s", a, verb, quantity, b, is)
	case mean < 1:
		text = fmt.Sprintf("%s %s %.1f %% less %s than %s%s", a, verb, 100*(1-mean), quantity, b, is)
	default:
		text = fmt.Sprintf("%s %s %.1f %% more %s than %s%s", a, verb, 100*(mean-1), quantity, b, is)
	}
	if ratio.Spread() {
		text += fmt.Sprintf(" (95 %% confidence: %s to %s)", factor(low), factor(high))
	}
	return upper(text)
}

// upper returns a text that begins with an upper-case letter.
func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// factor returns a ratio with at least three digits.
func factor(ratio float64) string {
	switch {
	case ratio >= 100:
		return fmt.Sprintf("%.0f", ratio)
	case ratio >= 10:
		return fmt.Sprintf("%.1f", ratio)
	case ratio >= 0.1:
		return fmt.Sprintf("%.3f", ratio)
	}
	return fmt.Sprintf("%.3g", ratio)
}
