// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/power/model/ridge"
)

// memoryRows returns the figures of the power of memory.
func memoryRows(programs []Program) (rows []Row) {
	weights := []func(*Program) float64{
		func(p *Program) float64 { return p.CPU },
		func(p *Program) float64 { return p.References },
		func(p *Program) float64 { return p.Misses },
	}
	var details []Row
	for _, machine := range []string{"turbo", "no turbo", "one CPU at 800 MHz"} {
		some := slices.DeleteFunc(slices.Clone(programs), func(p Program) bool { return p.Machine != machine })
		var pairs, alone [3]any
		var worst [2]float64
		cases := 0
		for i, weight := range weights {
			m := DRAMPairs(some, weight)
			pairs[i], alone[i], cases = 100*m.Part(), Predicted(some, weight), len(m.Pairs)
			worst[min(i, 1)] = 100 * quantile(m.Pairs, 1)
		}
		rows = append(rows, Row{"two programs side by side, DRAM, " + machine + ": energy attributed to the wrong program", cases,
			fmt.Sprintf("CPU time %.1f %% (worst pair %.0f %%), last-level cache misses %.1f %% (%.0f %%)", pairs[0], worst[0], pairs[2], worst[1])})
		details = append(details,
			Row{"DRAM, " + machine + ": the same by last-level cache references, which are misses of the L2 caches", cases, fmt.Sprintf("%.1f %%", pairs[1])},
			Row{"DRAM, " + machine + ": R² of a straight line for programs that it is not fitted to", len(some),
				fmt.Sprintf("CPU time %.2f, references %.2f, misses %.2f", alone[:]...)})
	}
	return append(rows, details...)
}

// draws is the number of draws of duets in the table.
const draws = 10

// powerModelRows returns the figures of the power model, each from several draws of all pairs.
func powerModelRows(programs []Program) (rows []Row) {
	var all, well []Duet
	for draw := range draws {
		all = append(all, Duets(programs, uint64(draw+1))...)
	}
	well = slices.DeleteFunc(slices.Clone(all), func(d Duet) bool { return d.Miscounts() })
	usual := Rule{Exponent: 2, Strength: ridge.Strength, Static: 100, Change: 1, Every: 1}
	row := func(name string, duets []Duet, change func(*Rule)) Row {
		r := usual
		change(&r)
		return Row{name, len(duets), Compare(duets, r).String()}
	}
	return []Row{
		row("two programs side by side, wall power, `weight: power_model`: energy attributed to the wrong program", all, func(*Rule) {}),
		row("the same without the program whose misses another event counts", well, func(*Rule) {}),
		row("the same, cycles as the basic weight", well, func(r *Rule) { r.Exponent = 1 }),
		row("the same, CPU time as the basic weight", well, func(r *Rule) { r.Exponent = 0 }),
		row("the same, the model of SmartWatts, cycles as the basic weight", well,
			func(r *Rule) { r.Exponent, r.SmartWatts = 1, true }),
		row("the same, strength of the ridge 0.1", well, func(r *Rule) { r.Strength = 0.1 }),
		row("the same, hardly any ridge (1e-6)", well, func(r *Rule) { r.Strength = 1e-6 }),
		row("the same, no static power", well, func(r *Rule) { r.Static = 0 }),
		row("the same, 300 W of static power", well, func(r *Rule) { r.Static = 300 }),
		row("the same, 20 W of active power taken for static power", well, func(r *Rule) { r.Static = -20 }),
		row("the same, 100 times as many misses from the middle on", well, func(r *Rule) { r.Change = 100 }),
		row("the same, a hundredth of the misses from the middle on", well, func(r *Rule) { r.Change = 0.01 }),
		row("the same, counted in one sample of five", well, func(r *Rule) { r.Every = 5 }),
		row("the same, fitted to the machine's other programs only", well, func(r *Rule) { r.Unseen = true }),
	}
}

// Comparison compares the model with the basic weight over several duets.
type Comparison struct {
	Shares // means
	// Worse is the part of the duets with a model that is worse by more than a hundredth of the energy. Loss is the
	// largest difference.
	Worse, Loss float64
}

// Compare shares the energy of duets.
func Compare(duets []Duet, r Rule) (c Comparison) {
	n := float64(len(duets))
	for i := range duets {
		s := r.Share(&duets[i])
		c.CPUTime, c.Basic, c.Model = c.CPUTime+s.CPUTime/n, c.Basic+s.Basic/n, c.Model+s.Model/n
		c.Loss = max(c.Loss, s.Model-s.Basic)
		if s.Model-s.Basic > 0.01 {
			c.Worse += 1 / n
		}
	}
	return c
}

func (c Comparison) String() string {
	return fmt.Sprintf("CPU time %.1f %%, basic weight %.1f %%, model %.1f %% "+
		"(worse than the basic weight by more than a point in %.1f %% of the cases, by %.1f at most)", 100*c.CPUTime, 100*c.Basic, 100*c.Model, 100*c.Worse, 100*c.Loss)
}
