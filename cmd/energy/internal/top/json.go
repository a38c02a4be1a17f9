// SPDX-License-Identifier: Apache-2.0

package top

import (
	"encoding/json"
	"io"
	"math"
	"slices"
)

// SchemaVersion is the version of the JSON document, which docs/command-line.md describes. It
// changes if a field is removed or changes its meaning; fields may be added.
const SchemaVersion = 1

// object is a JSON object. Energies are in joules with up to six decimals, which are exact.
type object map[string]any

// attributes are the names of texts in JSON.
var attributes = [numTexts]string{
	"name", "arguments", "user", "container", "pod", "namespace", "image", "runtime", "vm", "unit", "id", "qos_class",
	"command",
}

// JSON writes a frame, and notes on it, as one JSON document: in one line, or indented.
func JSON(w io.Writer, f *Frame, notes []string, indent string) error {
	sum := Sum(f.Zones)
	zones, views := []object{}, object{}
	for _, z := range f.Zones {
		o := object{
			"zone": z.Name, "source": z.Source, "added": z.Besides == "", "uncertainty": nil,
			"active_watts": number(z.Active), "idle_watts": number(z.Idle), "active_joules": z.ActiveEnergy.Joules(),
			"idle_joules": (z.Energy - z.ActiveEnergy).Joules(), "unattributed_joules": z.Unattributed.Joules(),
		}
		if z.Besides != "" {
			o["overlaps_with"] = z.Besides
		}
		if z.Uncertainty > 0 {
			o["uncertainty"] = number(z.Uncertainty)
		}
		zones = append(zones, o)
	}
	m := Model{frame: f, choice: choice{order: ByPower, zeros: true}}
	for m.view = range NumViews {
		list := []object{}
		l := m.list()
		for _, r := range slices.Concat(l.rows, l.pinned) {
			list = append(list, r.object())
		}
		if len(list) > 0 {
			views[m.view.String()] = list
		}
	}
	var since, period any
	if !f.Since.IsZero() {
		since = f.Since
	}
	if f.Period > 0 {
		period = f.Period.Seconds()
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e.Encode(object{
		"schema": SchemaVersion, "at": f.At, "since": since, "period_seconds": period, "host": f.Host,
		"joules": f.Node.Joules(), "active_joules": sum.ActiveEnergy.Joules(), "active_watts": number(f.Active), "contradiction": f.Wrong,
		"zones": zones, "views": views, "notes": append([]string{}, notes...),
	})
}

// object returns a row as a JSON object, without figures and texts that it lacks.
func (r *Row) object() object {
	o := object{
		"watts": number(r.Power), "joules": r.Energy.Joules(), "total_joules": r.Total.Joules(), "remainder": r.Pinned,
	}
	if r.PID != 0 {
		o["pid"] = r.PID
	}
	if r.GPU > 0 {
		o["gpu_watts"] = number(r.GPU)
	}
	if !math.IsNaN(r.Busy) {
		o["utilization"] = number(r.Busy)
	}
	if len(r.Zones) > 0 {
		joules := make([]float64, len(r.Zones))
		for i, e := range r.Zones {
			joules[i] = e.Joules()
		}
		o["zone_joules"] = joules
	}
	if r.CPUTime >= 0 {
		o["cpu_seconds"] = float64(r.CPUTime.Microseconds()) / 1e6
	}
	for t, text := range r.Text {
		if text != "" {
			o[attributes[t]] = text
		}
	}
	return o
}

// number returns nil for a figure that is not a number.
func number(v float64) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return v
}
