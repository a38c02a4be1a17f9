// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// SchemaVersion is the version of the JSON document. It changes if a field changes its meaning or
// is removed: fields may be added.
const SchemaVersion = 1

// number is null in JSON if it is NaN.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = number(math.NaN())
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}

// document is the JSON document of a run. docs/command-line.md describes it. Energies are in joules
// with up to six decimals, which are exact: sums that hold for microjoules hold for them.
type document struct {
	Schema        int            `json:"schema"`
	Command       []string       `json:"command"`
	Started       time.Time      `json:"started"`
	ExitStatus    int            `json:"exit_status"`
	Seconds       float64        `json:"seconds"`
	CPUSeconds    float64        `json:"cpu_seconds"`
	CPUTimeSource string         `json:"cpu_time_source"`
	Joules        number         `json:"joules"`
	Uncertainty   number         `json:"uncertainty"` // of Joules
	MeanWatts     number         `json:"mean_watts"`
	NodeJoules    number         `json:"node_joules"`
	Zones         []jsonZone     `json:"zones"`
	Emissions     *jsonRate      `json:"co2e,omitempty"`  // in grams
	Price         *jsonRate      `json:"price,omitempty"` // in the currency of the rate
	Programs      []jsonProgram  `json:"programs"`
	Workloads     []jsonWorkload `json:"workloads,omitempty"`
	Phases        []jsonInterval `json:"phases"`
	Samples       []jsonInterval `json:"samples"`
	LeftBehind    []jsonProcess  `json:"left_behind"`
	Ratios        *jsonRatios    `json:"ratios,omitempty"` // to a base
	Notes         []string       `json:"notes"`
}

type jsonZone struct {
	Zone               string         `json:"zone"`
	Source             string         `json:"source"`
	Added              bool           `json:"added"`
	OverlapsWith       string         `json:"overlaps_with,omitempty"`
	StaticPower        measure.Static `json:"static_power"`
	Joules             float64        `json:"joules"`
	Uncertainty        number         `json:"uncertainty"`
	MeanWatts          number         `json:"mean_watts"`
	NodeActiveJoules   float64        `json:"node_active_joules"`
	NodeIdleJoules     float64        `json:"node_idle_joules"`
	UnattributedJoules float64        `json:"unattributed_joules"`
	MissingSeconds     float64        `json:"missing_seconds"`
}

// jsonRate has the emissions or the cost of the command and the node.
type jsonRate struct {
	PerKWh   float64 `json:"per_kwh"`
	Currency string  `json:"currency,omitempty"`
	Command  float64 `json:"command"`
	Node     float64 `json:"node"`
}

// joules are energies by the index of zones.
type joules []float64

type jsonProgram struct {
	Program string `json:"program"`
	Joules  joules `json:"joules"`
}

type jsonWorkload struct {
	Workload string `json:"workload"`
	Phase    string `json:"phase"`
	Joules   joules `json:"joules"`
}

// jsonInterval is a phase or a sample.
type jsonInterval struct {
	End        float64 `json:"end,omitempty"` // of a sample, in seconds since the start
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
	Phase      string  `json:"phase"`
	Joules     joules  `json:"joules"`
	NodeJoules joules  `json:"node_joules"`
}

type jsonProcess struct {
	PID        int     `json:"pid"`
	Name       string  `json:"name"`
	CPUSeconds float64 `json:"cpu_seconds"`
}

// document returns the document of a run.
func (r *Report) document(run *measure.Result) *document {
	var used, node []units.Energy
	for i := range run.Zones {
		used, node = append(used, run.Zones[i].Used), append(node, run.Zones[i].Node())
	}
	total, uncertainty := sum(run, used)
	nodeTotal, _ := sum(run, node)
	d := &document{
		Schema: SchemaVersion, Command: run.Command, Started: run.Started, ExitStatus: run.Exit,
		Seconds: run.Wall.Seconds(), CPUSeconds: run.CPU.Seconds(), CPUTimeSource: run.CPUTime,
		Joules: number(total), Uncertainty: number(uncertainty), NodeJoules: number(nodeTotal), MeanWatts: inWatts(total, run.Wall),
		Zones: []jsonZone{}, Programs: []jsonProgram{}, Phases: []jsonInterval{}, Samples: []jsonInterval{}, LeftBehind: []jsonProcess{},
		Emissions: jsonRateOf(r.Rates.Grams, "", run), Price: jsonRateOf(r.Rates.Price, r.Rates.Currency, run),
		Notes: append([]string{}, run.Notes...),
	}
	for i := range run.Zones {
		z := &run.Zones[i]
		d.Zones = append(d.Zones, jsonZone{
			Zone: z.Name, Source: z.Source, Added: z.Besides == "", OverlapsWith: z.Besides, StaticPower: z.Static,
			Joules: z.Used.Joules(), Uncertainty: number(uncertaintyOf(z)), MeanWatts: inWatts(z.Used.Joules(), run.Wall),
			NodeActiveJoules: z.Active.Joules(), NodeIdleJoules: z.Idle.Joules(), UnattributedJoules: units.Advance(z.Used, z.Active).Joules(),
			MissingSeconds: z.Missing.Seconds(),
		})
	}
	for _, w := range run.Workloads {
		d.Workloads = append(d.Workloads, jsonWorkload{w.Name, w.Phase, inJoules(w.Used)})
	}
	for _, p := range run.Programs {
		d.Programs = append(d.Programs, jsonProgram{p.Name, inJoules(p.Used)})
	}
	for i := range run.Phases {
		p := &run.Phases[i]
		d.Phases = append(d.Phases, jsonInterval{0, p.Wall.Seconds(), p.CPU.Seconds(), p.Name, inJoules(p.Used), inJoules(p.NodeUsed)})
	}
	for i := range run.Samples {
		s := &run.Samples[i]
		d.Samples = append(d.Samples, jsonInterval{
			s.End.Seconds(), s.Wall.Seconds(), s.CPU.Seconds(), s.Phase, inJoules(s.Used), inJoules(s.NodeUsed),
		})
	}
	for _, p := range run.Left {
		d.LeftBehind = append(d.LeftBehind, jsonProcess{p.PID, p.Name, p.CPU.Seconds()})
	}
	return d
}

func jsonRateOf(perKilowattHour *float64, currency string, run *measure.Result) *jsonRate {
	if perKilowattHour == nil || len(run.Zones) == 0 {
		return nil
	}
	return &jsonRate{*perKilowattHour, currency, perKWh(run.Used(), *perKilowattHour), perKWh(run.Node(), *perKilowattHour)}
}

func inJoules(energies []units.Energy) joules {
	of := make(joules, len(energies))
	for i, e := range energies {
		of[i] = e.Joules()
	}
	return of
}

// inWatts returns the mean power to the microwatt.
func inWatts(joules float64, wall time.Duration) number {
	return number(energyIn(wall, 0, joules, 0, 0)[Watts])
}

// several is the JSON document of several runs.
type several struct {
	Schema     int           `json:"schema"`
	WarmupRuns int           `json:"warmup_runs"`
	Commands   []jsonCommand `json:"commands"`
	Ratios     *jsonRatios   `json:"ratios,omitempty"`
	Notes      []string      `json:"notes"`
}

type jsonCommand struct {
	Command     []string `json:"command"`
	Uncertainty number   `json:"uncertainty"`
	jsonRow
	Zones  []jsonRow   `json:"zones"`
	Phases []jsonRow   `json:"phases"`
	Runs   []*document `json:"runs"`
}

type jsonRatios struct {
	jsonRow
	Zones  []jsonRow `json:"zones"`
	Phases []jsonRow `json:"phases"`
}

// jsonRow has the summaries or ratios of a row. Unavailable ones are null.
type jsonRow struct {
	Phase        string `json:"phase,omitempty"`
	Zone         string `json:"zone,omitempty"`
	Source       string `json:"source,omitempty"`
	Added        *bool  `json:"added,omitempty"`
	OverlapsWith string `json:"overlaps_with,omitempty"`
	Joules       any    `json:"joules"`
	MeanWatts    any    `json:"mean_watts"`
	Seconds      any    `json:"seconds"`
	CPUSeconds   any    `json:"cpu_seconds"`
}

type jsonSummary struct {
	Mean   float64 `json:"mean"`
	Margin number  `json:"margin"` // half-width of ±
	StdDev number  `json:"stddev"` // null for one run, like the interval
	Low    number  `json:"ci95_low"`
	High   number  `json:"ci95_high"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Outliers are numbers of runs, from 1.
	Outliers []int `json:"outliers"`
}

type jsonRatio struct {
	Ratio       number `json:"a_to_b"` // null without a pair
	Low         number `json:"ci95_low"`
	High        number `json:"ci95_high"`
	Pairs       int    `json:"pairs"`
	Left        int    `json:"pairs_left_out"`
	Significant bool   `json:"significant"`
}

// WriteJSON writes the report, with all runs, as one JSON document.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if !r.several() {
		d := r.document(r.Commands[0].Runs[0])
		d.Ratios, d.Notes = r.jsonRatios(), append([]string{}, r.Notes...)
		return e.Encode(d)
	}
	d := several{Schema: SchemaVersion, WarmupRuns: r.Warmup, Ratios: r.jsonRatios(), Notes: append([]string{}, r.Notes...)}
	for i, c := range r.Commands {
		if c.Label != Base {
			d.Commands = append(d.Commands, r.jsonCommand(i))
		}
	}
	return e.Encode(d)
}

func (r *Report) jsonCommand(command int) jsonCommand {
	c, whole := &r.Commands[command], r.whole(command)
	d := jsonCommand{
		Command: c.Runs[0].Command, Uncertainty: number(whole.relative()), jsonRow: jsonRowOf(whole, jsonSummaryOf),
		Zones: r.jsonRows(command, isZone, jsonSummaryOf), Phases: r.jsonRows(command, isPhase, jsonSummaryOf),
	}
	for _, run := range c.Runs {
		d.Runs = append(d.Runs, r.document(run))
	}
	return d
}

// jsonRatios returns nil for one command.
func (r *Report) jsonRatios() *jsonRatios {
	if len(r.Commands) < 2 {
		return nil
	}
	return &jsonRatios{jsonRowOf(r.whole(0), jsonRatioOf), r.jsonRows(0, isZone, jsonRatioOf), r.jsonRows(0, isPhase, jsonRatioOf)}
}

func (r *Report) jsonRows(command int, is kind, value func(*Row, Quantity) any) []jsonRow {
	rows := []jsonRow{}
	for _, row := range r.rows(command, is) {
		rows = append(rows, jsonRowOf(row, value))
	}
	return rows
}

func jsonRowOf(row *Row, value func(*Row, Quantity) any) jsonRow {
	d := jsonRow{
		Phase: row.Phase, Zone: row.Zone, Source: row.Source, OverlapsWith: row.Besides,
		Joules: value(row, Joules), MeanWatts: value(row, Watts), Seconds: value(row, Seconds), CPUSeconds: value(row, CPUSeconds),
	}
	if row.Zone != "" {
		d.Added = new(row.Besides == "")
	}
	return d
}

func jsonSummaryOf(row *Row, q Quantity) any {
	if !row.isKnown(q) {
		return nil
	}
	s, nan := row.summary(q), number(math.NaN())
	d := jsonSummary{s.Mean, number(row.margin(q)), nan, nan, nan, s.Median, s.Min, s.Max, []int{}}
	if s.Spread() {
		d.StdDev, d.Low, d.High = number(s.StdDev), number(s.Low), number(s.High)
	}
	for _, i := range s.Outliers {
		d.Outliers = append(d.Outliers, i+1)
	}
	return d
}

func jsonRatioOf(row *Row, q Quantity) any {
	r, of := row.Ratios[q], row.ratios(q)
	if r.Pairs+r.Left == 0 {
		return nil
	}
	return jsonRatio{number(of[0]), number(of[1]), number(of[2]), r.Pairs, r.Left, r.Significant()}
}

// ReadBase reads the runs of a JSON document that WriteJSON wrote. If it has two commands, ReadBase
// returns the runs of the first one.
func ReadBase(from io.Reader) (*Command, error) {
	var d struct {
		document
		Commands []struct {
			Runs []document `json:"runs"`
		} `json:"commands"`
	}
	if err := json.NewDecoder(from).Decode(&d); err != nil {
		return nil, fmt.Errorf("not a result of energy measure --json: %w", err)
	}
	if d.Schema != SchemaVersion {
		return nil, fmt.Errorf("not a result of energy measure --json with schema %d", SchemaVersion)
	}
	runs := []document{d.document}
	if len(d.Commands) > 0 {
		runs = d.Commands[0].Runs
	}
	c := &Command{Label: Base}
	for i := range runs {
		run, err := runs[i].result()
		if err != nil {
			return nil, err
		}
		c.Runs = append(c.Runs, run)
	}
	if len(c.Runs) == 0 {
		return nil, errors.New("the result has no run")
	}
	return c, nil
}

// result returns the figures of a document that are compared.
func (d *document) result() (*measure.Result, error) {
	run := &measure.Result{Command: d.Command, Wall: inTime(d.Seconds), CPU: inTime(d.CPUSeconds)}
	for _, z := range d.Zones {
		run.Zones = append(run.Zones, measure.Zone{
			Name: z.Zone, Source: z.Source, Besides: z.OverlapsWith, Static: z.StaticPower, Uncertainty: float64(z.Uncertainty),
			Used: inEnergy(z.Joules), Active: inEnergy(z.NodeActiveJoules), Idle: inEnergy(z.NodeIdleJoules),
		})
	}
	for _, p := range d.Phases {
		phase := measure.Phase{Name: p.Phase, Wall: inTime(p.Seconds), CPU: inTime(p.CPUSeconds)}
		for i := range p.Joules {
			phase.Used = append(phase.Used, inEnergy(p.Joules[i]))
		}
		if len(phase.Used) != len(run.Zones) || len(run.Command) == 0 {
			return nil, errors.New("the result has no energy by zone")
		}
		run.Phases = append(run.Phases, phase)
	}
	if len(run.Command) == 0 {
		return nil, errors.New("the result has no command")
	}
	return run, nil
}

func inTime(seconds float64) time.Duration {
	return time.Duration(math.Round(seconds * float64(time.Second)))
}
