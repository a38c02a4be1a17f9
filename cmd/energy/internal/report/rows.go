// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/stats"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Quantity is a figure of a row.
type Quantity int

// The quantities. Uncertainty is the expected error of Joules, 0.2 for 20 %.
const (
	Seconds Quantity = iota
	CPUSeconds
	Joules
	Watts
	NodeJoules
	ActiveJoules
	IdleJoules
	UnattributedJoules
	MissingSeconds
	Uncertainty
	Grams // of CO2 equivalent, and the cost of Joules: NaN without a rate
	Cost
	numQuantities
)

// quantities and names are the names of the quantities and of the texts of a row in JSON and CSV.
var (
	quantities = [numQuantities]string{
		"seconds", "cpu_seconds", "joules", "mean_watts", "node_joules", "node_active_joules", "node_idle_joules",
		"unattributed_joules", "missing_seconds", "uncertainty", "co2e_grams", "cost",
	}
	names = [...]string{"phase", "name", "zone", "source", "static_power"}
)

// Key identifies a row. The zero Key selects the whole run of the first command in all zones.
type Key struct {
	Command int    // index of Report.Commands
	Phase   string // empty for the whole run
	Name    string // program or container, empty for all
	// Zone and Source are empty for all zones that are added up.
	Zone, Source string
}

// Row has the figures of a command in one phase, program and zone.
type Row struct {
	Key
	Besides string
	Static  measure.Static
	// Values are the quantities by run. Unavailable values are NaN. Runs without such a row have
	// 0, so that the means of phases and zones add up.
	Values [numQuantities][]float64
	// Ratios compare the first command with the second. They have no pair in other rows, and for
	// unavailable quantities.
	Ratios [numQuantities]stats.Ratio
	runs   int // that have such a row
}

// names returns the names of a row.
func (row *Row) names() [5]string {
	return [...]string{row.Phase, row.Name, row.Zone, row.Source, string(row.Static)}
}

// figures are the values of a row in one run.
type figures [numQuantities]float64

// energyIn returns figures of an energy in a time.
func energyIn(wall, cpu time.Duration, joules, node, uncertainty float64) (f figures) {
	for q := range f {
		f[q] = math.NaN()
	}
	f[Seconds], f[CPUSeconds], f[Joules], f[NodeJoules], f[Uncertainty] = wall.Seconds(), cpu.Seconds(), joules, node, uncertainty
	if wall > 0 {
		f[Watts] = math.Round(joules/wall.Seconds()*1e6) / 1e6
	}
	if cpu < 0 {
		f[CPUSeconds] = math.NaN()
	}
	return f
}

// addRows adds the rows of the runs of a command.
func (r *Report) addRows(command int) {
	c := &r.Commands[command]
	for i, run := range c.Runs {
		add := func(k Key, zone int, f figures) {
			k.Command = command
			f[Grams], f[Cost] = perKWh(f[Joules], r.Rates.Grams), perKWh(f[Joules], r.Rates.Price)
			row := r.row(k)
			if row == nil {
				r.index[k] = len(r.Rows)
				r.Rows = append(r.Rows, Row{Key: k})
				row = &r.Rows[len(r.Rows)-1]
				if zone >= 0 {
					z := &run.Zones[zone]
					row.Besides, row.Static = z.Besides, z.Static
				}
				for q := range row.Values {
					row.Values[q] = make([]float64, len(c.Runs))
				}
			}
			row.runs++
			for q, v := range f {
				row.Values[q][i] = v
			}
		}
		addRun(run, add)
	}
}

// addRun adds the rows of a run: the whole run, its phases, and the programs or containers of the
// whole machine, or else the programs of the command.
func addRun(run *measure.Result, add func(k Key, zone int, f figures)) {
	var used, node []units.Energy
	for i := range run.Zones {
		used, node = append(used, run.Zones[i].Used), append(node, run.Zones[i].Node())
	}
	addZones := func(k Key, wall, cpu time.Duration, used, node []units.Energy) {
		total, uncertainty := sum(run, used)
		nodeTotal, _ := sum(run, node)
		add(k, -1, energyIn(wall, cpu, total, nodeTotal, uncertainty))
		for i := range run.Zones {
			k.Zone, k.Source = run.Zones[i].Name, run.Zones[i].Source
			f := energyIn(wall, cpu, used[i].Joules(), math.NaN(), uncertaintyOf(&run.Zones[i]))
			if node != nil {
				f[NodeJoules] = node[i].Joules()
			}
			if z := &run.Zones[i]; k.Phase == "" && k.Name == "" {
				f[ActiveJoules], f[IdleJoules], f[MissingSeconds] = z.Active.Joules(), z.Idle.Joules(), z.Missing.Seconds()
				f[UnattributedJoules] = units.Advance(z.Used, z.Active).Joules()
			}
			add(k, i, f)
		}
	}
	addZones(Key{}, run.Wall, run.CPU, used, node)
	for _, p := range run.Phases {
		addZones(Key{Phase: p.Name}, p.Wall, p.CPU, p.Used, p.NodeUsed)
	}
	for _, w := range run.Workloads {
		k, wall := Key{Name: w.Name}, run.Wall
		if i := slices.IndexFunc(run.Phases, func(p measure.Phase) bool { return p.Name == w.Phase }); i >= 0 {
			k.Phase, wall = w.Phase, run.Phases[i].Wall
		}
		addZones(k, wall, -1, w.Used, nil)
	}
	if len(run.Workloads) == 0 {
		for _, p := range run.Programs {
			addZones(Key{Name: p.Name}, run.Wall, -1, p.Used, nil)
		}
	}
}

// sum returns the energy of the zones that are added up in joules, and its relative uncertainty. The
// errors of zones are added in quadrature, because their models are independent. A measured zone
// without an uncertainty does not add to it. Unavailable results are NaN.
func sum(run *measure.Result, used []units.Energy) (joules, uncertainty float64) {
	if len(run.Zones) == 0 || used == nil {
		return math.NaN(), math.NaN()
	}
	joules = run.Added(used).Joules()
	errors := 0.0
	for i := range run.Zones {
		z := &run.Zones[i]
		u := uncertaintyOf(z)
		if z.Besides == "" && (!math.IsNaN(u) || z.Source == string(power.Modeled)) {
			errors = math.Hypot(errors, used[i].Joules()*u)
		}
	}
	if errors == 0 {
		return joules, math.NaN()
	}
	return joules, errors / joules
}

// uncertaintyOf returns the expected error of a zone, or NaN.
func uncertaintyOf(z *measure.Zone) float64 {
	if z.Uncertainty > 0 {
		return z.Uncertainty
	}
	return math.NaN()
}

// row returns the row of a key, or nil.
func (r *Report) row(k Key) *Row {
	if i, ok := r.index[k]; ok {
		return &r.Rows[i]
	}
	return nil
}

// whole returns the row of a whole command in all zones.
func (r *Report) whole(command int) *Row { return r.row(Key{Command: command}) }

// of returns the rows of a command.
func (r *Report) of(command int) (rows []*Row) {
	for i := range r.Rows {
		if r.Rows[i].Command == command {
			rows = append(rows, &r.Rows[i])
		}
	}
	return rows
}

// The kinds of rows for Report.rows.
func isZone(k Key) bool  { return k.Phase == "" && k.Name == "" && k.Zone != "" }
func isPhase(k Key) bool { return k.Phase != "" && k.Name == "" && k.Zone == "" }
func isNamed(k Key) bool { return k.Name != "" && k.Zone == "" }

// rows returns the rows of a kind of a command.
func (r *Report) rows(command int, is func(Key) bool) []*Row {
	return slices.DeleteFunc(r.of(command), func(row *Row) bool { return !is(row.Key) })
}

// isKnown reports whether a quantity is available in every run.
func (row *Row) isKnown(q Quantity) bool { return !slices.ContainsFunc(row.Values[q], math.IsNaN) }

func (row *Row) summary(q Quantity) stats.Summary {
	if !row.isKnown(q) {
		return stats.Summary{}
	}
	return stats.Summarize(row.Values[q])
}

// value returns the mean of a quantity over the runs, or NaN.
func (row *Row) value(q Quantity) float64 {
	if !row.isKnown(q) {
		return math.NaN()
	}
	return row.summary(q).Mean
}

func (row *Row) energy(q Quantity) units.Energy { return inEnergy(row.value(q)) }

// relative returns the expected error of the model relative to the mean energy, or NaN. It is the
// same in all runs, so that more runs do not lower it.
func (row *Row) relative() float64 {
	absolute := 0.0
	for i, joules := range row.Values[Joules] {
		if joules > 0 {
			absolute += joules * row.Values[Uncertainty][i]
		}
	}
	return absolute / float64(len(row.Values[Joules])) / row.value(Joules)
}

// margin returns the half-width of ±, or NaN. The half-width of the confidence interval of the mean
// and, except for times, the expected error of the model are added in quadrature.
func (row *Row) margin(q Quantity) float64 {
	s, interval, model := row.summary(q), math.NaN(), math.NaN()
	if s.Spread() {
		interval = s.High - s.Mean
	}
	if q == Joules || q == Watts || q >= Grams {
		model = row.relative() * s.Mean
	}
	switch {
	case math.IsNaN(model):
		return interval
	case math.IsNaN(interval):
		return model
	}
	return math.Hypot(interval, model)
}

func inEnergy(joules float64) units.Energy {
	return units.Energy(math.Round(joules * float64(units.Joule)))
}
