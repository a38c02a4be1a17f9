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

// report writes a line for each variant: medians, with the lower and upper quartile of the turns in brackets. Ratios are
// those to the first variant.
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
	return reportHooks(w, results)
}

// reportHooks writes what one call of each hook takes.
func reportHooks(w io.Writer, results []result) error {
	for _, r := range results {
		if len(r.turns) == 0 {
			continue
		}
		last := r.turns[len(r.turns)-1]
		for _, h := range last.hooks {
			if h.calls > 0 {
				fmt.Fprintf(w, "%s: hook %s: %.0f calls a second, %.0f ns each\n", r.variant.name, h.name,
					h.calls/last.hooksElapsed.Seconds(), float64(h.run.Nanoseconds())/h.calls)
			}
		}
	}
	return nil
}

// format writes the median and the quartiles with some decimals.
func (s spread) format(decimals int) string {
	return fmt.Sprintf("%.*f [%.*f, %.*f]", decimals, s.median, decimals, s.low, decimals, s.high)
}
