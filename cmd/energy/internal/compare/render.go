// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/phase"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// writeTable writes a row for each zone, and rows for all zones together.
func (c *Command) writeTable(b *strings.Builder, title string) {
	if len(c.Runs) == 1 {
		row(b, title, "", "", "", "", "")
	} else {
		row(b, title, "MEAN", "± 95 %", "DEVIATION", "MIN", "MAX")
	}
	var overlapped string
	added := 0
	for _, z := range c.Zones {
		name := z.Name
		if z.Besides == "" {
			added++
		} else {
			name, overlapped = "("+name+")", z.Besides
		}
		z.Energy.row(b, name, joules)
	}
	if added > 1 {
		c.Energy.row(b, "sum", joules)
	}
	if c.known() {
		c.Power.row(b, "power", figure.Watts)
	} else {
		row(b, "energy", "unknown", "", "", "", "")
	}
	c.Wall.row(b, "time", seconds)
	c.CPU.row(b, "CPU time", seconds)
	if overlapped != "" {
		fmt.Fprintf(b, "Zones in parentheses overlap with %s, and are not added\n", overlapped)
	}
	for i, p := range c.Phases {
		if i == 0 {
			fmt.Fprintln(b)
		}
		name := p.Name
		if name == phase.None {
			name = "(none)"
		}
		p.Energy.row(b, "phase "+name, joules)
		p.Wall.row(b, "  time", seconds)
	}
}

// row writes the summary of a quantity.
func (s *Summary) row(b *strings.Builder, name string, format func(float64) string) {
	if !s.Spread() {
		row(b, name, format(s.Mean), "", "", "", "")
		return
	}
	row(b, name, format(s.Mean), "± "+format(s.High-s.Mean), format(s.StdDev), format(s.Min), format(s.Max))
}

func row(b *strings.Builder, name, mean, interval, deviation, low, high string) {
	line := fmt.Sprintf("%s %10s %10s %10s %10s %10s", figure.Pad(name, 24), mean, interval, deviation, low, high)
	fmt.Fprintln(b, strings.TrimRight(line, " "))
}

func joules(j float64) string {
	return figure.Joules(units.Energy(math.Round(j * float64(units.Joule))))
}
func seconds(s float64) string { return figure.Seconds(time.Duration(s * float64(time.Second))) }

// writeTable writes the ratios, and what they mean.
func (c *Comparison) writeTable(b *strings.Builder) {
	ratioRow(b, "A / B", "RATIO", "95 % CONFIDENCE")
	if len(c.Zones) > 1 {
		for _, z := range c.Zones {
			z.Energy.row(b, z.Name)
		}
	}
	if c.known() {
		c.Energy.row(b, "energy")
		c.Power.row(b, "power")
	}
	c.Wall.row(b, "time")
	c.CPU.row(b, "CPU time")
	b.WriteString("\n")
	if c.known() {
		figure.Wrap(b, c.Energy.Verdict("used", "energy"))
	} else {
		b.WriteString("The energies are unknown\n")
	}
	figure.Wrap(b, c.Wall.Verdict("took", "time"))
}

func (r Ratio) row(b *strings.Builder, name string) {
	mean, interval := "-", ""
	if r.Pairs > 0 {
		mean = factor(r.Mean)
	}
	if r.Spread() {
		interval = factor(r.Low) + " to " + factor(r.High)
	}
	ratioRow(b, name, mean, interval)
}

func ratioRow(b *strings.Builder, name, mean, interval string) {
	fmt.Fprintln(b, strings.TrimRight(fmt.Sprintf("%s %10s %21s", figure.Pad(name, 24), mean, interval), " "))
}
