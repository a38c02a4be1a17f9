// SPDX-License-Identifier: Apache-2.0

// Package report writes the results of measured commands: as text for people, as an HTML page,
// JSON, CSV and Markdown. All of them are written from one list of rows.
package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/stats"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Options select the contents of a text for people.
type Options struct {
	// Verbose adds all zones, programs and notes to the first lines.
	Verbose bool
	// Node adds the energy of the whole machine.
	Node bool
	// By selects the rows of the table. With Node, these are programs and containers of the
	// whole machine.
	By    measure.By
	Rates Rates
	// MaxRatio is the limit of --max-ratio, 0 without a limit.
	MaxRatio float64
	// Warmup is the number of runs of each command that are not reported.
	Warmup int
}

// Report has the runs of a command, and the runs of a second command or of a base for comparison.
type Report struct {
	Options
	Commands []Command
	// Rows are the figures of the first command, followed by the figures of the second.
	Rows []Row
	// Warnings are the notes that concern the validity of the figures, Notes all, the most important
	// ones first.
	Warnings, Notes []string
	index           map[Key]int
}

// Command has the completed runs of a command, at least one.
type Command struct {
	Label string // A and B, or Now and Base
	Runs  []*measure.Result
}

// The labels of a command that is compared with an earlier measurement, its base.
const (
	Now  = "now"
	Base = "base"
)

// New returns the report of one or two commands.
func New(o Options, commands []Command, warnings ...string) *Report {
	r := &Report{Options: o, Commands: commands, Warnings: warnings, index: map[Key]int{}}
	for i := range commands {
		r.addRows(i)
	}
	if len(commands) > 1 {
		r.compare()
	}
	for i := range commands {
		r.explain(i)
	}
	r.explainRatios()
	r.Notes = merge(slices.Clone(r.Warnings), r.Notes)
	return r
}

// several reports whether the report has more than one run that was measured now.
func (r *Report) several() bool {
	return len(r.Commands[0].Runs) > 1 || len(r.Commands) > 1 && !r.hasBase()
}

func (r *Report) hasBase() bool { return len(r.Commands) > 1 && r.Commands[1].Label == Base }

// compared are the quantities of tables that compare commands.
var compared = []Quantity{Joules, Watts, Seconds, CPUSeconds}

// least is the smallest value of a quantity that is divided by. Counters of energy step each
// millisecond at best, so that less than 1 mJ is at most one step.
var least = [numQuantities]float64{Joules: 1e-3, Watts: 1e-6, Seconds: 1e-6, CPUSeconds: 1e-6}

// ComparedBy returns the quantity that decides the comparison of two commands, and its ratio. The
// quantity is CPU time if all energy is modeled, because the modeled energy of the same CPU time
// depends on the load by other programs.
func (r *Report) ComparedBy() (Quantity, stats.Ratio) {
	q := Joules
	if r.areModeled() {
		q = CPUSeconds
	}
	return q, r.whole(0).Ratios[q]
}

// areModeled reports whether there are two commands and all of their energy is modeled.
func (r *Report) areModeled() bool {
	return len(r.Commands) > 1 && r.modeled(0) == "modeled" && r.modeled(1) == "modeled"
}

// compare fills the ratios of rows that both commands have.
func (r *Report) compare() {
	ratio := stats.Paired
	if r.hasBase() {
		ratio = stats.Unpaired
	}
	for _, a := range r.of(0) {
		other := a.Key
		other.Command = 1
		b := r.row(other)
		for _, q := range compared {
			if b != nil && a.Name == "" && a.isKnown(q) && b.isKnown(q) {
				a.Ratios[q] = ratio(a.Values[q], b.Values[q], least[q])
			}
		}
	}
}

// explain adds the notes of the runs of a command.
func (r *Report) explain(command int) {
	c := &r.Commands[command]
	if c.Label == Base {
		return
	}
	var notes, left []string
	failed, leaving, n := 0, 0, len(c.Runs)
	for _, run := range c.Runs {
		r.Warnings, r.Notes = merge(r.Warnings, run.Warnings), merge(r.Notes, run.Notes)
		failed += min(run.Exit, 1)
		leaving += min(len(run.Left), 1)
		for _, p := range run.Left {
			name := p.Name
			if n == 1 {
				name += fmt.Sprintf(" (%d)", p.PID)
			}
			left = append(left, name)
		}
	}
	if failed > 0 && n > 1 {
		notes = append(notes, fmt.Sprintf("%d of %d runs failed: their exit status is not 0", failed, n))
	}
	switch {
	case leaving > 0 && n == 1:
		notes = append(notes, "Still running, and no longer measured: "+some(left))
	case leaving > 0:
		notes = append(notes, fmt.Sprintf("%d of %d runs left processes behind, which are no longer measured: %s", leaving, n, some(left)))
	}
	for _, row := range r.rows(command, isZone) {
		if lacking := n - row.runs; lacking > 0 {
			notes = append(notes, fmt.Sprintf("Zone %s is missing in %d of %d runs, which count with 0 J of it", row.Zone, lacking, n))
		}
	}
	whole := r.whole(command)
	notes = append(notes, r.outliers("energy", whole.summary(Joules))...)
	notes = append(notes, r.outliers("time", whole.summary(Seconds))...)
	for _, note := range notes {
		r.Warnings = append(r.Warnings, r.label(command)+note)
	}
}

// maxNames is the maximum number of processes that a note names.
const maxNames = 10

// some lists names once each, and at most maxNames.
func some(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	if more := len(names) - maxNames; more > 0 {
		names = append(names[:maxNames], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

func (r *Report) outliers(quantity string, s stats.Summary) []string {
	if len(s.Outliers) == 0 {
		return nil
	}
	var runs []string
	for _, i := range s.Outliers {
		runs = append(runs, fmt.Sprint(i+1))
	}
	word := "run"
	if len(runs) > 1 {
		word = "runs"
	}
	note := fmt.Sprintf("Outliers in %s: %s %s, %s", quantity, word, strings.Join(runs, ", "), stats.OutlierRule)
	if s.Outliers[0] == 0 && s.Mean > s.Median && r.Warmup == 0 {
		note += ". The first run may have filled caches: --warmup 1 leaves it out"
	}
	return []string{note}
}

// explainRatios adds the notes on the comparison.
func (r *Report) explainRatios() {
	if r.hasBase() && !slices.Equal(r.Commands[0].Runs[0].Command, r.Commands[1].Runs[0].Command) {
		r.Warnings = append(r.Warnings, "The base ran another command: "+figure.Command(r.Commands[1].Runs[0].Command))
	}
	if now, base := r.zones(0), r.zones(1); r.hasBase() && now != base {
		r.Warnings = append(r.Warnings, fmt.Sprintf("The base has other meters or models (%s) than this result (%s), so energies are not comparable", base, now))
	}
	if ratio := r.whole(0).Ratios[Joules]; ratio.Left > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d of %d pairs are not compared: an energy below 1 mJ is too little to be divided by",
			ratio.Left, ratio.Left+ratio.Pairs))
	}
}

// zones lists the zones of a command, their methods and their expected errors.
func (r *Report) zones(command int) string {
	var texts []string
	for _, row := range r.rows(command, isZone) {
		texts = append(texts, row.Zone+" "+row.sourceText())
	}
	return strings.Join(texts, ", ")
}

// merge adds notes to others. It leaves out notes that differ from another one in their figures only.
func merge(notes, more []string) []string {
	for _, note := range more {
		words := withoutNumbers(note)
		if !slices.ContainsFunc(notes, func(other string) bool { return withoutNumbers(other) == words }) {
			notes = append(notes, note)
		}
	}
	return notes
}

func withoutNumbers(note string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) || r == '.' {
			return -1
		}
		return r
	}, note)
}

// modeled says which part of the energy of a command is modeled: "modeled" or "dram modeled". It is
// empty if all of it is measured.
func (r *Report) modeled(command int) string {
	var zones []string
	all := true
	for _, row := range r.rows(command, isZone) {
		switch {
		case row.Besides != "":
		case row.Source == string(power.Modeled):
			zones = append(zones, row.Zone)
		default:
			all = false
		}
	}
	switch {
	case len(zones) == 0:
		return ""
	case all:
		return "modeled"
	}
	return strings.Join(zones, " and ") + " modeled"
}

// typical returns the index of the run with the median energy. If there are two such runs, it is
// the run with less energy.
func (c *Command) typical() int {
	order := make([]int, len(c.Runs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(c.Runs[a].Used()) - int(c.Runs[b].Used()) })
	return order[(len(order)-1)/2]
}

// Used returns the mean energy of the first command, and whether all or a part of it is missing.
func (r *Report) Used() (used units.Energy, missing bool) {
	for _, row := range r.rows(0, isZone) {
		missing = missing || slices.Max(row.Values[MissingSeconds]) > 0
	}
	whole := r.whole(0)
	if !whole.isKnown(Joules) {
		return 0, true
	}
	return whole.energy(Joules), missing
}

// name returns the name of a command in a sentence.
func (r *Report) name(command int) string {
	switch {
	case !r.hasBase():
		return r.Commands[command].Label
	case command == 0:
		return "this command"
	}
	return "the base"
}

// label returns the start of a line about a command. It is empty if there is one command.
func (r *Report) label(command int) string {
	if len(r.Commands) < 2 {
		return ""
	}
	return r.Commands[command].Label + ": "
}
