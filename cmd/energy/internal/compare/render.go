// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Render writes the runs of the command as a table: a row for each zone, and the rows of all together.
func (c *Command) Render(w io.Writer) {
	if n := len(c.Runs); n == 1 {
		row(w, "1 RUN", "MEAN", "", "", "", "")
	} else {
		row(w, fmt.Sprintf("%d RUNS", n), "MEAN", "DEVIATION", "95 % OF THE MEAN", "MIN", "MAX")
	}
	added := 0
	for _, z := range c.Zones {
		name := z.Name
		if z.Besides != "" {
			name += " (not added to " + z.Besides + ")"
		} else {
			added++
		}
		if z.Source == "modeled" {
			name += " (modeled)"
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
		p.Energy.row(w, "phase "+p.Name, joules)
		p.Wall.row(w, "  time", seconds)
	}
}

// row writes the summary of a quantity.
func (s *Summary) row(w io.Writer, name string, format func(float64) string) {
	if !s.Spread() {
		row(w, name, format(s.Mean), "", "", "", "")
		return
	}
	row(w, name, format(s.Mean), format(s.StdDev), signed(s.Low, format)+" to "+signed(s.High, format), format(s.Min), format(s.Max))
}

func row(w io.Writer, name, mean, deviation, interval, low, high string) {
	const width = 36
	if runes := []rune(name); len(runes) > width {
		name = string(runes[:width-1]) + "…"
	}
	line := fmt.Sprintf("%-*s %10s %10s  %22s %10s %10s", width, figure.Clean(name), mean, deviation, interval, low, high)
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}

func joules(j float64) string {
	return figure.Joules(units.Energy(math.Round(j * float64(units.Joule))))
}
func seconds(s float64) string { return figure.Seconds(time.Duration(s * float64(time.Second))) }

// signed formats the bound of an interval, which may be below 0 where the runs vary much.
func signed(v float64, format func(float64) string) string {
	if v < 0 {
		return "-" + format(-v)
	}
	return format(v)
}

// Render writes the ratios of the commands, and what they mean.
func (c *Comparison) Render(w io.Writer) {
	row(w, "A / B", "RATIO", "", "95 % CONFIDENCE", "", "")
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
	row(w, name, mean, "", interval, "", "")
}
