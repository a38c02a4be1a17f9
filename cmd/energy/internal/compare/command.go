// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Command describes all runs of a command.
type Command struct {
	Command []string
	Runs    []measure.Result
	// Zones are all zones of the runs, in the order of the first run that has them.
	Zones  []Zone
	Phases []Phase
	// Energy is that of all zones that are added up, in joules, and Power its mean power in watts.
	// Wall and CPU are in seconds.
	Energy, Power, Wall, CPU Summary
	// RunNotes are the notes of the runs. Those that differ in their figures only are there once.
	RunNotes []string
	// Notes are the remarks on all runs together.
	Notes []string
}

// Zone is the energy of a zone over the runs, in joules.
type Zone struct {
	Name, Source, Besides string
	Energy                Summary
	values                []float64 // of each run, 0 where the run does not have the zone
}

// Phase is a phase over the runs. A run without it counts with 0, so that the means of the phases
// add up to that of the runs.
type Phase struct {
	Name              string
	Energy, Wall, CPU Summary // J, s, s
}

// Describe describes the runs of a command. There must be one.
func Describe(runs []measure.Result) *Command {
	c := &Command{Command: runs[0].Command, Runs: runs}
	c.Energy = Summarize(c.each(energy))
	c.Power = Summarize(c.each(power))
	c.Wall = Summarize(c.each(wall))
	c.CPU = Summarize(c.each(cpu))
	c.describeZones()
	c.describePhases()
	c.describeNotes()
	return c
}

// known reports whether anything is known of energy.
func (c *Command) known() bool { return len(c.Zones) > 0 }

func (c *Command) each(value func(*measure.Result) float64) []float64 {
	values := make([]float64, len(c.Runs))
	for i := range c.Runs {
		values[i] = value(&c.Runs[i])
	}
	return values
}

// energy returns the joules of all zones that are added up.
func energy(r *measure.Result) float64 { return r.Used().Joules() }
func power(r *measure.Result) float64  { return units.Watts(r.Used(), r.Wall) }
func wall(r *measure.Result) float64   { return r.Wall.Seconds() }
func cpu(r *measure.Result) float64    { return r.CPU.Seconds() }

func (c *Command) describeZones() {
	for i, r := range c.Runs {
		for _, z := range r.Zones {
			at := slices.IndexFunc(c.Zones, func(known Zone) bool { return known.Name == z.Name })
			if at < 0 {
				at = len(c.Zones)
				c.Zones = append(c.Zones, Zone{Name: z.Name, Source: z.Source, Besides: z.Besides, values: make([]float64, len(c.Runs))})
			}
			c.Zones[at].values[i] += z.Used.Joules()
		}
	}
	for i := range c.Zones {
		c.Zones[i].Energy = Summarize(c.Zones[i].values)
	}
}

func (c *Command) describePhases() {
	type values struct{ energy, wall, cpu []float64 }
	var names []string
	phases := map[string]*values{}
	for i, r := range c.Runs {
		for _, p := range r.Phases {
			v := phases[p.Name]
			if v == nil {
				n := len(c.Runs)
				v = &values{energy: make([]float64, n), wall: make([]float64, n), cpu: make([]float64, n)}
				phases[p.Name] = v
				names = append(names, p.Name)
			}
			v.energy[i] += phaseEnergy(&r, p).Joules()
			v.wall[i] += p.Wall.Seconds()
			v.cpu[i] += p.CPU.Seconds()
		}
	}
	for _, name := range names {
		v := phases[name]
		c.Phases = append(c.Phases, Phase{Name: name, Energy: Summarize(v.energy), Wall: Summarize(v.wall), CPU: Summarize(v.cpu)})
	}
}

func phaseEnergy(r *measure.Result, p measure.Phase) (sum units.Energy) {
	for i, e := range p.Used {
		if r.Zones[i].Besides == "" {
			sum += e
		}
	}
	return sum
}

func (c *Command) describeNotes() {
	failed := 0
	for _, r := range c.Runs {
		if r.Exit != 0 {
			failed++
		}
		c.RunNotes = merge(c.RunNotes, r.Notes)
	}
	if failed > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%d of %d runs failed: their exit status is not 0", failed, len(c.Runs)))
	}
	for _, z := range c.Zones {
		if lacking := c.lacking(z.Name); lacking > 0 {
			c.Notes = append(c.Notes, fmt.Sprintf("Zone %s is missing in %d of %d runs, which count with 0 J of it", z.Name, lacking, len(c.Runs)))
		}
	}
	c.noteLeft()
	c.noteOutliers("energy", &c.Energy)
	c.noteOutliers("time", &c.Wall)
}

// noteLeft names what the runs left behind. It is no longer measured, and runs beside the runs that follow.
func (c *Command) noteLeft() {
	var names []string
	runs := 0
	for _, r := range c.Runs {
		for _, p := range r.Left {
			names = append(names, p.Name)
		}
		runs += min(len(r.Left), 1)
	}
	if runs > 0 {
		slices.Sort(names)
		c.Notes = append(c.Notes, fmt.Sprintf("%d of %d runs left processes behind, which are no longer measured: %s",
			runs, len(c.Runs), strings.Join(slices.Compact(names), ", ")))
	}
}

// merge adds the notes to others that are not among them but for their figures.
func merge(notes, more []string) []string {
	for _, note := range more {
		words := withoutNumbers(note)
		if !slices.ContainsFunc(notes, func(known string) bool { return withoutNumbers(known) == words }) {
			notes = append(notes, note)
		}
	}
	return notes
}

// withoutNumbers returns a note without its figures, which differ from run to run.
func withoutNumbers(note string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) || r == '.' {
			return -1
		}
		return r
	}, note)
}

// lacking returns the number of runs without the zone.
func (c *Command) lacking(zone string) (n int) {
	for _, r := range c.Runs {
		if !slices.ContainsFunc(r.Zones, func(z measure.Zone) bool { return z.Name == zone }) {
			n++
		}
	}
	return n
}

func (c *Command) noteOutliers(quantity string, s *Summary) {
	if len(s.Outliers) == 0 {
		return
	}
	var runs []string
	for _, i := range s.Outliers {
		runs = append(runs, fmt.Sprint(i+1))
	}
	note := fmt.Sprintf("Outliers in %s: run %s, %s", quantity, strings.Join(runs, ", "), OutlierRule)
	if s.Outliers[0] == 0 && c.value(quantity, 0) > s.Median {
		note += ". The first run may have filled caches: --warmup 1 leaves it out"
	}
	c.Notes = append(c.Notes, note)
}

func (c *Command) value(quantity string, run int) float64 {
	if quantity == "energy" {
		return energy(&c.Runs[run])
	}
	return wall(&c.Runs[run])
}

// Typical returns the index of the run whose energy is the median, or of two such runs that of the one of less energy.
func (c *Command) Typical() int {
	order := make([]int, len(c.Runs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.Runs[a].Used(), c.Runs[b].Used()) })
	return order[(len(order)-1)/2]
}

// Comparison compares two commands that ran in pairs.
type Comparison struct {
	A, B *Command
	// Energy, Power, Wall and CPU are A's to B's.
	Energy, Power, Wall, CPU Ratio
	Zones                    []ZoneRatio // that both have
	Notes                    []string
}

// ZoneRatio is the ratio of the energy of a zone.
type ZoneRatio struct {
	Name   string
	Energy Ratio
}

// Values below these are not compared: they stand for nothing that was measured.
const (
	// leastEnergy is 1 mJ. Counters of energy step each millisecond at best, so that a smaller
	// energy is that of no step or of one.
	leastEnergy = 1e-3
	leastPower  = 1e-6 // W
	leastTime   = 1e-6 // s
)

// Compare compares A with B, whose runs are pairs by their index.
func Compare(a, b *Command) *Comparison {
	c := &Comparison{
		A: a, B: b,
		Energy: Ratios(a.each(energy), b.each(energy), leastEnergy),
		Power:  Ratios(a.each(power), b.each(power), leastPower),
		Wall:   Ratios(a.each(wall), b.each(wall), leastTime),
		CPU:    Ratios(a.each(cpu), b.each(cpu), leastTime),
	}
	for _, za := range a.Zones {
		if at := slices.IndexFunc(b.Zones, func(zb Zone) bool { return zb.Name == za.Name }); at >= 0 {
			c.Zones = append(c.Zones, ZoneRatio{Name: za.Name, Energy: Ratios(za.values, b.Zones[at].values, leastEnergy)})
		}
	}
	if c.Energy.Left > 0 && c.known() {
		c.Notes = append(c.Notes, fmt.Sprintf("%d of %d pairs are not compared: an energy below 1 mJ is too little to be divided by",
			c.Energy.Left, c.Energy.Left+c.Energy.Pairs))
	}
	return c
}

// known reports whether energy is known of both commands.
func (c *Comparison) known() bool { return c.A.known() && c.B.known() }
