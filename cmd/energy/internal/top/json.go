// SPDX-License-Identifier: Apache-2.0

package top

import (
	"encoding/json"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// SchemaVersion is the version of the JSON document. It changes if a field is removed or changes its
// meaning; fields may be added.
const SchemaVersion = 1

// document is the JSON document. docs/command-line.md describes it. Energies are in joules with up
// to six decimals, which are exact. Figures that are not known are null.
type document struct {
	Schema        int                  `json:"schema"`
	At            time.Time            `json:"at"`
	Since         time.Time            `json:"since"`
	Host          string               `json:"host"`
	Joules        float64              `json:"joules"`
	ActiveJoules  float64              `json:"active_joules"`
	ActiveWatts   *float64             `json:"active_watts"`
	Zones         []jsonZone           `json:"zones"`
	Views         map[string][]jsonRow `json:"views"`
	Contradiction string               `json:"contradiction,omitempty"`
	Notes         []string             `json:"notes"`
}

type jsonZone struct {
	Zone               string   `json:"zone"`
	Source             string   `json:"source"`
	Added              bool     `json:"added"`
	OverlapsWith       string   `json:"overlaps_with,omitempty"`
	Uncertainty        *float64 `json:"uncertainty"`
	ActiveWatts        *float64 `json:"active_watts"`
	IdleWatts          *float64 `json:"idle_watts"`
	ActiveJoules       float64  `json:"active_joules"`
	IdleJoules         float64  `json:"idle_joules"`
	UnattributedJoules float64  `json:"unattributed_joules"`
}

type jsonRow struct {
	Name        string            `json:"name"`
	Remainder   bool              `json:"remainder,omitempty"` // energy without a workload of its own
	PID         int32             `json:"pid,omitempty"`
	Watts       *float64          `json:"watts"`
	GPUWatts    *float64          `json:"gpu_watts,omitempty"`
	Utilization *float64          `json:"utilization,omitempty"`
	Joules      float64           `json:"joules"`
	TotalJoules float64           `json:"total_joules"`
	CPUSeconds  *float64          `json:"cpu_seconds,omitempty"`
	Attributes  map[string]string `json:"attributes,omitempty"`
}

// attributeNames are the names of texts in JSON.
var attributeNames = [numTexts]string{
	Arguments: "arguments", User: "user", Container: "container", Pod: "pod", Namespace: "namespace", Image: "image", Runtime: "runtime",
	VM: "vm", Unit: "unit", ID: "id", Class: "qos_class", Command: "command",
}

// JSON writes a frame, and notes on it, as one JSON document.
func JSON(w io.Writer, f *Frame, notes []string) error {
	sum := sumOf(f.Zones)
	d := document{
		Schema: SchemaVersion, At: f.At, Since: f.Since, Host: f.Host, Joules: f.Node.Joules(), ActiveJoules: sum.ActiveEnergy.Joules(),
		ActiveWatts: known(f.Active), Zones: []jsonZone{}, Views: map[string][]jsonRow{}, Contradiction: f.Wrong, Notes: append([]string{}, notes...),
	}
	for i := range f.Zones {
		z := &f.Zones[i]
		zone := jsonZone{
			Zone: z.Name, Source: z.Source, Added: z.Besides == "", OverlapsWith: z.Besides, ActiveWatts: known(z.Active), IdleWatts: known(z.Idle),
			ActiveJoules: z.ActiveEnergy.Joules(), IdleJoules: (z.Energy - z.ActiveEnergy).Joules(), UnattributedJoules: z.Unattributed.Joules(),
		}
		if z.Uncertainty > 0 {
			zone.Uncertainty = known(z.Uncertainty)
		}
		d.Zones = append(d.Zones, zone)
	}
	for v, rows := range f.Tables {
		if len(rows) > 0 {
			d.Views[strings.ToLower(viewNames[v])] = jsonRows(rows)
		}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(d)
}

// jsonRows returns rows by descending power, and then the pinned ones.
func jsonRows(rows []Row) []jsonRow {
	var sorted, pinned []*Row
	for i := range rows {
		if rows[i].Pinned {
			pinned = append(pinned, &rows[i])
		} else {
			sorted = append(sorted, &rows[i])
		}
	}
	byPower := New("")
	slices.SortFunc(sorted, byPower.compare())
	out := make([]jsonRow, 0, len(rows))
	for _, r := range append(sorted, pinned...) {
		row := jsonRow{
			Name: r.Text[Name], Remainder: r.Pinned, PID: r.PID, Watts: known(r.Power), Joules: r.Energy.Joules(), TotalJoules: r.Total.Joules(),
			Utilization: known(r.Busy), Attributes: map[string]string{},
		}
		if r.GPU > 0 {
			row.GPUWatts = known(r.GPU)
		}
		if r.CPUTime >= 0 {
			row.CPUSeconds = known(r.CPUTime.Seconds())
		}
		for t, name := range attributeNames {
			if name != "" && r.Text[t] != "" {
				row.Attributes[name] = r.Text[t]
			}
		}
		out = append(out, row)
	}
	return out
}

// known returns nil for a figure that is not known.
func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
