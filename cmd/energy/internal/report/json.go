// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"io"
	"math"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/web"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// SchemaVersion is the version of the JSON document. It changes if a field changes its meaning or
// is removed: fields may be added.
const SchemaVersion = 1

// object is a JSON object. docs/command-line.md describes the fields. Energies are in joules with up
// to six decimals, which are exact: sums that hold for microjoules hold for them.
type object map[string]any

// WriteJSON writes the report, with all runs, as one JSON document.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r.document())
}

// WriteHTML writes the report as one HTML page, which contains the document of WriteJSON.
func (r *Report) WriteHTML(w io.Writer) error {
	kind := "run"
	if r.several() {
		kind = "comparison"
	}
	return web.WriteReport(w, kind, r.document())
}

// document returns the report, with all runs.
func (r *Report) document() object {
	d := object{"schema": SchemaVersion}
	if r.several() {
		commands := []object{}
		for i, c := range r.Commands {
			if c.Label != Base {
				commands = append(commands, r.command(i))
			}
		}
		d["commands"] = commands
	} else {
		d = r.run(0, 0)
	}
	if len(r.Commands) > 1 {
		ratios := r.object(0, ratioOf)
		quantity, _ := r.ComparedBy()
		ratios["compared_by"] = quantities[quantity]
		verdict := r.verdicts()
		if r.MaxRatio > 0 {
			verdict = append(verdict, upper(r.Limit()))
		}
		d["ratios"], d["verdict"] = ratios, verdict
	}
	if r.hasBase() {
		d["base"] = r.base()
	}
	d["notes"], d["warmup_runs"] = append([]string{}, r.Notes...), r.Warmup
	return d
}

// command returns the summaries of a command, and its runs.
func (r *Report) command(command int) object {
	d := r.summary(command)
	c, runs := &r.Commands[command], []object{}
	for i := range c.Runs {
		runs = append(runs, r.run(command, i))
	}
	d["runs"], d["typical_run"] = runs, c.typical()+1
	return d
}

// base returns the summaries of the base, and the figures of its runs.
func (r *Report) base() object {
	d, runs := r.summary(1), []object{}
	for i := range r.Commands[1].Runs {
		runs = append(runs, r.whole(1).object(func(row *Row, q Quantity) any {
			if !slices.Contains(compared, q) {
				return nil
			}
			return orNull(row.Values[q][i])
		}))
	}
	d["runs"] = runs
	return d
}

func (r *Report) summary(command int) object {
	d := r.object(command, summaryOf)
	d["command"], d["uncertainty"] = r.Commands[command].Runs[0].Command, orNull(r.whole(command).relative())
	return d
}

// object returns values of the whole command, its zones and its phases.
func (r *Report) object(command int, value func(row *Row, q Quantity) any) object {
	d := r.whole(command).object(value)
	for name, is := range map[string]func(Key) bool{"zones": isZone, "phases": isPhase} {
		rows := []object{}
		for _, row := range r.rows(command, is) {
			rows = append(rows, row.object(value))
		}
		d[name] = rows
	}
	return d
}

// object returns the names of a row and its values.
func (row *Row) object(value func(row *Row, q Quantity) any) object {
	o := object{}
	for i, name := range row.names() {
		if name != "" {
			o[names[i]] = name
		}
	}
	if row.Besides != "" {
		o["overlaps_with"] = row.Besides
	}
	if row.Zone != "" {
		o["added"] = row.Besides == ""
	}
	for q, name := range quantities {
		if v := value(row, Quantity(q)); v != nil || required[q] {
			o[name] = v
		}
	}
	return o
}

// required are the quantities that are null if they are not available.
var required = [numQuantities]bool{Joules: true, Watts: true, NodeJoules: true, Uncertainty: true}

func orNull(v float64) any {
	if math.IsNaN(v) {
		return nil
	}
	return v
}

func summaryOf(row *Row, q Quantity) any {
	if !row.isKnown(q) || !slices.Contains(compared, q) {
		return nil
	}
	outliers := []int{} // numbers of runs, from 1
	for _, i := range row.summary(q).Outliers {
		outliers = append(outliers, i+1)
	}
	o := object{"outliers": outliers}
	for i, v := range row.statistics(q) {
		o[statistics[i]] = orNull(v)
	}
	return o
}

func ratioOf(row *Row, q Quantity) any {
	r, of := row.Ratios[q], row.ratios(q)
	if r.Pairs+r.Left == 0 {
		return nil
	}
	return object{
		"a_to_b": orNull(of[0]), "ci95_low": orNull(of[1]), "ci95_high": orNull(of[2]),
		"pairs": r.Pairs, "pairs_left_out": r.Left, "significant": r.Significant(),
	}
}

// joules are energies by the index of zones.
type joules []float64

func inJoules(energies []units.Energy) joules {
	of := joules{}
	for _, e := range energies {
		of = append(of, e.Joules())
	}
	return of
}

// interval returns a phase or a sample.
func interval(name string, wall, cpu time.Duration, used, node []units.Energy) object {
	return object{
		"phase": name, "seconds": wall.Seconds(), "cpu_seconds": cpu.Seconds(), "joules": inJoules(used), "node_joules": inJoules(node),
	}
}

// run returns the document of a run.
func (r *Report) run(command, index int) object {
	run := r.Commands[command].Runs[index]
	value := func(row *Row, q Quantity) any { return orNull(row.Values[q][index]) }
	d, zones := r.whole(command).object(value), []object{} // of this run: the index of energies in other fields
	for i := range run.Zones {
		zones = append(zones, r.row(Key{Command: command, Zone: run.Zones[i].Name, Source: run.Zones[i].Source}).object(value))
	}
	programs, workloads, phases, samples, left := []object{}, []object{}, []object{}, []object{}, []object{}
	for _, p := range run.Programs {
		programs = append(programs, object{"program": p.Name, "joules": inJoules(p.Used)})
	}
	for _, w := range run.Workloads {
		workloads = append(workloads, object{"workload": w.Name, "phase": w.Phase, "joules": inJoules(w.Used)})
	}
	for _, p := range run.Phases {
		phases = append(phases, interval(p.Name, p.Wall, p.CPU, p.Used, p.NodeUsed))
	}
	for _, s := range run.Samples {
		sample := interval(s.Phase, s.Wall, s.CPU, s.Used, s.NodeUsed)
		sample["end"] = s.End.Seconds() // since the start
		samples = append(samples, sample)
	}
	for _, p := range run.Left {
		left = append(left, object{"pid": p.PID, "name": p.Name, "cpu_seconds": p.CPU.Seconds()})
	}
	d["schema"], d["command"], d["started"], d["exit_status"] = SchemaVersion, run.Command, run.Started, run.Exit
	d["cpu_time_source"], d["notes"] = run.CPUTime, append([]string{}, run.Notes...)
	d["zones"], d["programs"], d["phases"], d["samples"], d["left_behind"] = zones, programs, phases, samples, left
	if len(workloads) > 0 {
		d["workloads"] = workloads
	}
	if run.Profile != nil {
		d["profile"] = stackObject(run.Profile.Stacks, run.Profile.Compared)
	}
	if r.Rates.Grams != nil && len(run.Zones) > 0 {
		d["co2e"] = rateObject(r.Rates.Grams, "", run)
	}
	if r.Rates.Price != nil && len(run.Zones) > 0 {
		d["price"] = rateObject(r.Rates.Price, r.Rates.Currency, run)
	}
	return d
}

func stackObject(s *measure.Stack, compared bool) object {
	children := []object{}
	for _, child := range s.Children {
		children = append(children, stackObject(child, compared))
	}
	o := object{"name": s.Name, "joules": s.Used.Joules(), "children": children}
	if compared {
		o["base_joules"] = s.Base.Joules()
	}
	return o
}

func rateObject(rate *float64, currency string, run *measure.Result) object {
	o := object{"per_kwh": *rate, "command": perKWh(run.Used().Joules(), rate), "node": perKWh(run.Node().Joules(), rate)}
	if currency != "" {
		o["currency"] = currency
	}
	return o
}
