// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/internal/phase"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// WriteTable writes the runs of the command for people: a row for each zone, and rows for all zones together.
func (c *Command) WriteTable(w io.Writer) {
	if len(c.Runs) == 1 {
		row(w, "1 RUN", "MEAN", "", "", "", "")
	} else {
		row(w, fmt.Sprintf("%d RUNS", len(c.Runs)), "MEAN", "± 95 %", "DEVIATION", "MIN", "MAX")
	}
	added := 0
	for _, z := range c.Zones {
		name := z.Name
		if z.Besides != "" {
			name += " (not added)"
		} else {
			added++
		}
		z.Energy.row(w, name, joules)
	}
	if added != 1 {
		c.Energy.row(w, "energy in sum", joules)
	}
	c.Power.row(w, "power", figure.Watts)
	c.Wall.row(w, "time", seconds)
	c.CPU.row(w, "CPU time", seconds)
	for i, p := range c.Phases {
		if i == 0 {
			fmt.Fprintln(w)
		}
		name := p.Name
		if name == phase.None {
			name = "(none)"
		}
		p.Energy.row(w, "phase "+name, joules)
		p.Wall.row(w, "  time", seconds)
	}
}

// row writes the summary of a quantity.
func (s *Summary) row(w io.Writer, name string, format func(float64) string) {
	if !s.Spread() {
		row(w, name, format(s.Mean), "", "", "", "")
		return
	}
	row(w, name, format(s.Mean), "± "+format(s.High-s.Mean), format(s.StdDev), format(s.Min), format(s.Max))
}

func row(w io.Writer, name, mean, interval, deviation, low, high string) {
	const width = 24
	if runes := []rune(name); len(runes) > width {
		name = string(runes[:width-1]) + "…"
	}
	line := fmt.Sprintf("%-*s %10s %10s %10s %10s %10s", width, figure.Clean(name), mean, interval, deviation, low, high)
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}

func joules(j float64) string {
	return figure.Joules(units.Energy(math.Round(j * float64(units.Joule))))
}
func seconds(s float64) string { return figure.Seconds(time.Duration(s * float64(time.Second))) }

// WriteTable writes the ratios of the commands for people, and what they mean.
func (c *Comparison) WriteTable(w io.Writer) {
	ratioRow(w, "A / B", "RATIO", "95 % CONFIDENCE")
	if len(c.Zones) > 1 {
		for _, z := range c.Zones {
			z.Energy.row(w, z.Name)
		}
	}
	c.Energy.row(w, "energy")
	c.Power.row(w, "power")
	c.Wall.row(w, "time")
	c.CPU.row(w, "CPU time")
	fmt.Fprintf(w, "\n%s.\n%s.\n", c.Energy.Verdict("used", "energy"), c.Wall.Verdict("took", "time"))
}

func (r Ratio) row(w io.Writer, name string) {
	mean, interval := "-", ""
	if r.Pairs > 0 {
		mean = factor(r.Mean)
	}
	if r.Spread() {
		interval = factor(r.Low) + " to " + factor(r.High)
	}
	ratioRow(w, name, mean, interval)
}

func ratioRow(w io.Writer, name, mean, interval string) {
	fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%-24s %10s %21s", figure.Clean(name), mean, interval), " "))
}
