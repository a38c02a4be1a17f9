// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/energyreceiver/energyreceiver/receiver/test/table"
)

// result holds the turns of a variant. Turns of all variants with the same index are neighbors.
type result struct {
	variant variant
	turns   []turn
}

// figures returns a figure of each turn.
func (r result) figures(of func(turn) float64) (figures []float64) {
	for _, t := range r.turns {
		figures = append(figures, of(t))
	}
	return figures
}

// report writes a line for each variant: medians, with the minimum and the maximum of the turns in
// brackets. Ratios are relative to the first variant in the same turn.
func report(w io.Writer, results []result) error {
	const mebibyte = 1 << 20
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "variant\tCPU %\tuser\tsystem\thooks\tall\tratio of all\tRSS MiB\tanon\tfile\tBPF\tscrape kB")
	for _, r := range results {
		median := func(of func(turn) float64) float64 { return spreadOf(r.figures(of)).median }
		percent := func(of func(turn) float64) float64 { return 100 * median(of) }
		fmt.Fprintf(out, "%s\t%s\t%.3f\t%.3f\t%.3f\t%s\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f\n", r.variant.name,
			spreadOf(r.figures(func(t turn) float64 { return 100 * t.share })).format(3),
			percent(func(t turn) float64 { return t.user }),
			percent(func(t turn) float64 { return t.system }),
			percent(func(t turn) float64 { return t.outside }),
			spreadOf(r.figures(func(t turn) float64 { return 100 * t.all() })).format(3),
			spreadOf(ratios(r.figures(turn.all), results[0].figures(turn.all))).format(2),
			median(func(t turn) float64 { return t.memory.resident })/mebibyte,
			median(func(t turn) float64 { return t.memory.anonymous })/mebibyte,
			median(func(t turn) float64 { return t.memory.file() })/mebibyte,
			median(func(t turn) float64 { return t.memory.bpf })/mebibyte,
			median(func(t turn) float64 { return float64(t.scraped) })/1000)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	reportPrograms(w, results)
	return nil
}

// reportPrograms writes the mean time of a call of each BPF program in the last turn.
func reportPrograms(w io.Writer, results []result) {
	for _, r := range results {
		if len(r.turns) == 0 {
			continue
		}
		last := r.turns[len(r.turns)-1]
		for _, p := range last.programs {
			if p.calls > 0 {
				fmt.Fprintf(w, "%s: %s %s: %.0f calls a second, %.0f ns each\n", r.variant.name,
					map[bool]string{true: "hook", false: "program"}[p.hook], p.name, p.calls/last.watched.Seconds(), float64(p.run.Nanoseconds())/p.calls)
			}
		}
	}
}

// writeScenarioHead writes the head of a table in Markdown.
func writeScenarioHead(w io.Writer, withBase bool) {
	columns := []string{"scenario", "of", "figure", "must be", "is", "reached", "times others"}
	if withBase {
		columns = append(columns, "new by base")
	}
	fmt.Fprint(w, table.New(columns...).Markdown())
}

// writeScenario writes a line for each goal, and adds its figure to m.
func writeScenario(w io.Writer, scenario string, results []result, withBase bool, m *measured) {
	for _, r := range results {
		for _, g := range r.variant.goals {
			is, decimals := r.figures(g.figure.of), g.figure.decimals
			if g.times != "" {
				is, decimals = ratiosTo(g.times, r, g.figure, results), 2
			}
			s := spreadOf(is)
			m.medians[markOf(scenario, r.variant.name, g.name())] = s.median
			if s.median < 0.1 {
				decimals = max(decimals, 3)
			}
			others := timesOthers(r, g, results)
			number := func(figure float64) string { return strconv.FormatFloat(figure, 'f', decimals, 64) }
			m.rows.Add(scenario, r.variant.name, g.name(), strings.TrimPrefix(g.bound(), "at most "),
				number(s.median), number(s.least), number(s.most), others, m.machine)
			cells := []string{scenario, r.variant.name, g.name(), g.bound(), s.format(decimals), g.reached(s.median), others}
			if withBase {
				cells = append(cells, against(baseName(r.variant.name), r, g, results))
			}
			fmt.Fprint(w, table.Line(cells...))
		}
	}
}

// ratiosTo returns the ratios of a figure to the same figure of the named variant, turn by turn.
func ratiosTo(name string, r result, f figure, results []result) []float64 {
	for _, other := range results {
		if other.variant.name == name {
			return ratios(r.figures(f.of), other.figures(f.of))
		}
	}
	return nil
}

// against formats the ratios of a goal's figure to the same figure of the named variant. It returns
// an empty text without ratios, or if the goal is a ratio already.
func against(name string, r result, g goal, results []result) string {
	if is := ratiosTo(name, r, g.figure, results); len(is) > 0 && g.times == "" {
		return spreadOf(is).format(2)
	}
	return ""
}

// timesOthers lists the ratios of a goal's figure to the same figure of each reference.
func timesOthers(r result, g goal, results []result) string {
	var texts []string
	for _, other := range results {
		if name := other.variant.name; other.variant.isReference && name != r.variant.name {
			if text := against(name, r, g, results); text != "" {
				texts = append(texts, name+" "+text)
			}
		}
	}
	return strings.Join(texts, ", ")
}

// baseName returns the name of a program's variant with the base collector.
func baseName(name string) string { return "base " + name }
