// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"encoding/json"
	"io"
	"math"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// SchemaVersion is the version of the JSON document. It changes only where a field changes its
// meaning or goes: fields may be added.
const SchemaVersion = 1

// document is the JSON document. docs/command-line.md describes it. Energies are in joules with up
// to six decimals, which are exact: sums that hold for microjoules hold for them.
type document struct {
	Schema        int            `json:"schema"`
	Command       []string       `json:"command"`
	Started       time.Time      `json:"started"`
	ExitStatus    int            `json:"exit_status"`
	Seconds       float64        `json:"seconds"`
	CPUSeconds    float64        `json:"cpu_seconds"`
	CPUTimeSource string         `json:"cpu_time_source"`
	Joules        *float64       `json:"joules"` // null where nothing is known
	MeanWatts     *float64       `json:"mean_watts"`
	NodeJoules    *float64       `json:"node_joules"`
	Zones         []jsonZone     `json:"zones"`
	Emissions     *jsonRate      `json:"co2e,omitempty"`  // in grams
	Price         *jsonRate      `json:"price,omitempty"` // in the currency of the rate
	Programs      []jsonProgram  `json:"programs"`
	Workloads     []jsonWorkload `json:"workloads,omitempty"`
	Phases        []jsonPhase    `json:"phases"`
	Samples       []jsonSample   `json:"samples"`
	LeftBehind    []jsonProcess  `json:"left_behind"`
	Notes         []string       `json:"notes"`
}

type jsonZone struct {
	Zone               string  `json:"zone"`
	Source             string  `json:"source"`
	Added              bool    `json:"added"`
	OverlapsWith       string  `json:"overlaps_with,omitempty"`
	StaticPower        Static  `json:"static_power"`
	Joules             float64 `json:"joules"`
	MeanWatts          float64 `json:"mean_watts"`
	NodeActiveJoules   float64 `json:"node_active_joules"`
	NodeIdleJoules     float64 `json:"node_idle_joules"`
	UnattributedJoules float64 `json:"unattributed_joules"`
	MissingSeconds     float64 `json:"missing_seconds"`
}

// jsonRate has what the command and the node emit or cost.
type jsonRate struct {
	PerKWh  float64 `json:"per_kwh"`
	Command float64 `json:"command"`
	Node    float64 `json:"node"`
}

type jsonWorkload struct {
	Workload string    `json:"workload"`
	Phase    string    `json:"phase"`
	Joules   []float64 `json:"joules"` // by the index of zones
}

type jsonProgram struct {
	Program string    `json:"program"`
	Joules  []float64 `json:"joules"` // by the index of zones
}

type jsonPhase struct {
	Phase      string    `json:"phase"`
	Seconds    float64   `json:"seconds"`
	CPUSeconds float64   `json:"cpu_seconds"`
	Joules     []float64 `json:"joules"` // by the index of zones
	NodeJoules []float64 `json:"node_joules"`
}

type jsonSample struct {
	End        float64   `json:"end"` // in seconds since the start
	Seconds    float64   `json:"seconds"`
	CPUSeconds float64   `json:"cpu_seconds"`
	Phase      string    `json:"phase"`
	Joules     []float64 `json:"joules"`
	NodeJoules []float64 `json:"node_joules"`
}

type jsonProcess struct {
	PID        int     `json:"pid"`
	Name       string  `json:"name"`
	CPUSeconds float64 `json:"cpu_seconds"`
}

// WriteJSON writes the result as one JSON document.
func (r *Result) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r.document())
}

// MarshalJSON implements json.Marshaler.
func (r *Result) MarshalJSON() ([]byte, error) { return json.Marshal(r.document()) }

func (r *Result) document() *document {
	d := &document{
		Schema: SchemaVersion, Command: r.Command, Started: r.Started, ExitStatus: r.Exit,
		Seconds: r.Wall.Seconds(), CPUSeconds: r.CPU.Seconds(), CPUTimeSource: r.CPUTime,
		Zones: []jsonZone{}, Programs: []jsonProgram{}, Phases: []jsonPhase{}, Samples: []jsonSample{}, LeftBehind: []jsonProcess{}, Notes: append([]string{}, r.Notes...),
	}
	if len(r.Zones) > 0 {
		joules, watts, node := r.Used().Joules(), inWatts(r.Used(), r.Wall), r.Node().Joules()
		d.Joules, d.MeanWatts, d.NodeJoules = &joules, &watts, &node
	}
	for i := range r.Zones {
		z := &r.Zones[i]
		d.Zones = append(d.Zones, jsonZone{
			Zone: z.Name, Source: z.Source, Added: z.Besides == "", OverlapsWith: z.Besides, StaticPower: z.Static,
			Joules: z.Used.Joules(), MeanWatts: inWatts(z.Used, r.Wall),
			NodeActiveJoules: z.Active.Joules(), NodeIdleJoules: z.Idle.Joules(), UnattributedJoules: units.Advance(z.Used, z.Active).Joules(),
			MissingSeconds: z.Missing.Seconds(),
		})
	}
	d.Emissions, d.Price = r.rate(r.Rates.Grams), r.rate(r.Rates.Price)
	for _, w := range r.Workloads {
		d.Workloads = append(d.Workloads, jsonWorkload{w.Name, w.Phase, inJoules(w.Used)})
	}
	for _, p := range r.Programs {
		d.Programs = append(d.Programs, jsonProgram{p.Name, inJoules(p.Used)})
	}
	for i := range r.Phases {
		p := &r.Phases[i]
		d.Phases = append(d.Phases, jsonPhase{p.Name, p.Wall.Seconds(), p.CPU.Seconds(), inJoules(p.Used), inJoules(p.NodeUsed)})
	}
	for i := range r.Samples {
		s := &r.Samples[i]
		d.Samples = append(d.Samples, jsonSample{
			End: s.End.Seconds(), Seconds: s.Wall.Seconds(), CPUSeconds: s.CPU.Seconds(), Phase: s.Phase,
			Joules: inJoules(s.Used), NodeJoules: inJoules(s.NodeUsed),
		})
	}
	for _, p := range r.Left {
		d.LeftBehind = append(d.LeftBehind, jsonProcess{p.PID, p.Name, p.CPU.Seconds()})
	}
	return d
}

func (r *Result) rate(perKilowattHour *float64) *jsonRate {
	if perKilowattHour == nil || len(r.Zones) == 0 {
		return nil
	}
	return &jsonRate{*perKilowattHour, perKWh(r.Used(), *perKilowattHour), perKWh(r.Node(), *perKilowattHour)}
}

func inJoules(energies []units.Energy) []float64 {
	joules := make([]float64, len(energies))
	for i, e := range energies {
		joules[i] = e.Joules()
	}
	return joules
}

// inWatts returns the mean power to the microwatt.
func inWatts(e units.Energy, d time.Duration) float64 { return math.Round(units.Watts(e, d)*1e6) / 1e6 }
