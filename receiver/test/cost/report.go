// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// result is the turns of a variant. Those of all variants with the same index are neighbors.
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

// report writes a line for each variant: medians, with the least and the most of the turns in
// brackets. Ratios are those to the first variant in the same turn.
func report(w io.Writer, results []result) error {
	const mebibyte = 1 << 20
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "variant\tCPU %\tuser\tsystem\thooks\tall\tratio of all\tRSS MiB\tanon\tfile\tBPF\tscrape kB")
	for _, r := range results {
		median := func(of func(turn) float64) float64 { return spreadOf(r.figures(of)).median }
		percent := func(of func(turn) float64) float64 { return 100 * median(of) }
		fmt.Fprintf(table, "%s\t%s\t%.3f\t%.3f\t%.3f\t%s\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f\n", r.variant.name,
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
	if err := table.Flush(); err != nil {
		return err
	}
	reportPrograms(w, results)
	return nil
}

// reportPrograms writes what a call of each BPF program took in the last turn.
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
	fmt.Fprint(w, "| scenario | of | figure | must be | is | reached |")
	if withBase {
		fmt.Fprint(w, " new by base |")
	}
	fmt.Fprint(w, "\n|---|---|---|---|---|---|")
	if withBase {
		fmt.Fprint(w, "---|")
	}
	fmt.Fprintln(w)
}

// writeScenario writes a line for each goal. The results of the base's collectors are behind those of the variants.
func writeScenario(w io.Writer, c scenario, results []result, withBase bool) {
	for _, g := range c.goals {
		r := results[g.variant]
		is, of, decimals := r.figures(g.figure.of), g.figure.name, g.figure.decimals
		if g.against != none {
			is, of, decimals = ratios(is, results[g.against].figures(g.figure.of)), "times "+results[g.against].variant.name, 2
			if g.figure.name != cpuAll.name {
				of += ", " + g.figure.name
			}
		}
		s := spreadOf(is)
		if s.median < 0.1 {
			decimals = max(decimals, 3)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |", c.name, r.variant.name, of, g.bound, s.format(decimals), g.bound.reached(s.median))
		if withBase {
			fmt.Fprintf(w, " %s |", againstBase(g, results))
		}
		fmt.Fprintln(w)
	}
}

// reached writes whether a figure is within a bound, if there is one.
func (b bound) reached(figure float64) string {
	switch {
	case b == bound{}:
		return ""
	case b.holds(figure):
		return "yes"
	}
	return "no"
}

// againstBase returns the ratios of a figure to that of the base's collector.
func againstBase(g goal, results []result) string {
	base := baseOf(g.variant, results)
	if base == nil || g.against != none {
		return ""
	}
	return spreadOf(ratios(results[g.variant].figures(g.figure.of), base.figures(g.figure.of))).format(2)
}

// baseOf returns the result of the base's collector with the settings of a variant, or nil.
func baseOf(index int, results []result) *result {
	name := "base " + results[index].variant.name
	for i := range results {
		if results[i].variant.name == name {
			return &results[i]
		}
	}
	return nil
}
