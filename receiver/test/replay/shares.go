// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/power/model/ridge"
)

// addMemory adds the figures of the power of memory.
func (f figures) addMemory(programs []Program) {
	weights := []func(*Program) float64{
		func(p *Program) float64 { return p.CPU },
		func(p *Program) float64 { return p.References },
		func(p *Program) float64 { return p.Misses },
	}
	details := newFigures()
	for _, machine := range []string{"turbo", "no turbo", "one CPU at 800 MHz"} {
		some := slices.DeleteFunc(slices.Clone(programs), func(p Program) bool { return p.Machine != machine })
		var pairs [3]Misattributed
		var alone [3]any
		for i, weight := range weights {
			pairs[i], alone[i] = DRAMPairs(some, weight), Predicted(some, weight)
		}
		percent := func(i int) float64 { return 100 * pairs[i].Part() }
		worst := func(i int) float64 { return 100 * quantile(pairs[i].Pairs, 1) }
		cases := len(pairs[0].Pairs)
		f.add("two programs side by side, DRAM, "+machine+": energy attributed to the wrong program", cases,
			"CPU time %.1f %% (worst pair %.0f %%), last-level cache misses %.1f %% (%.0f %%)", percent(0), worst(0), percent(2), worst(2))
		details.add("DRAM, "+machine+": the same by last-level cache references, which are misses of the L2 caches", cases, "%.1f %%", percent(1))
		details.add("DRAM, "+machine+": R² of a straight line for programs that it is not fitted to", len(some),
			"CPU time %.2f, references %.2f, misses %.2f", alone[:]...)
	}
	f.Rows = append(f.Rows, details.Rows...)
}

// draws is the number of draws of duets in the table.
const draws = 10

// addPowerModel adds the figures of the power model, each from several draws of all pairs.
func (f figures) addPowerModel(programs []Program) {
	var all, well []Duet
	for draw := range draws {
		all = append(all, Duets(programs, uint64(draw+1))...)
	}
	well = slices.DeleteFunc(slices.Clone(all), func(d Duet) bool { return d.Miscounts() })
	usual := Rule{Exponent: 2, Strength: ridge.Strength, Static: 100, Change: 1, Every: 1}
	add := func(name string, duets []Duet, change func(*Rule)) {
		r := usual
		change(&r)
		f.add(name, len(duets), "%s", Compare(duets, r))
	}
	add("two programs side by side, wall power, `weight: power_model`: energy attributed to the wrong program", all, func(*Rule) {})
	add("the same without the program whose misses another event counts", well, func(*Rule) {})
	add("the same, cycles as the basic weight", well, func(r *Rule) { r.Exponent = 1 })
	add("the same, CPU time as the basic weight", well, func(r *Rule) { r.Exponent = 0 })
	add("the same, the model of SmartWatts, cycles as the basic weight", well,
		func(r *Rule) { r.Exponent, r.SmartWatts = 1, true })
	add("the same, strength of the ridge 0.1", well, func(r *Rule) { r.Strength = 0.1 })
	add("the same, hardly any ridge (1e-6)", well, func(r *Rule) { r.Strength = 1e-6 })
	add("the same, no static power", well, func(r *Rule) { r.Static = 0 })
	add("the same, 300 W of static power", well, func(r *Rule) { r.Static = 300 })
	add("the same, 20 W of active power taken for static power", well, func(r *Rule) { r.Static = -20 })
	add("the same, 100 times as many misses from the middle on", well, func(r *Rule) { r.Change = 100 })
	add("the same, a hundredth of the misses from the middle on", well, func(r *Rule) { r.Change = 0.01 })
	add("the same, counted in one sample of five", well, func(r *Rule) { r.Every = 5 })
	add("the same, fitted to the machine's other programs only", well, func(r *Rule) { r.Unseen = true })
}

// Comparison compares the model with the basic weight over several duets.
type Comparison struct {
	Shares // means
	// Worse is the part of the duets with a model that is worse by more than a hundredth of the
	// energy. Loss is the largest difference.
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
