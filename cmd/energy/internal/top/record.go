// SPDX-License-Identifier: Apache-2.0

package top

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// maxLine is the maximum length of a document in a recording.
const maxLine = 64 << 20

// ReadRecording calls show with each document of a recording: lines that JSON has written without an
// indent. A last line that was cut is ignored. Rows of a recording have keys of their own.
func ReadRecording(r io.Reader, show func(f *Frame, notes []string) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	number, cut := 0, error(nil)
	for lines.Scan() {
		if number++; cut != nil {
			return cut
		}
		f, notes, err := parse(lines.Bytes())
		if err != nil {
			cut = fmt.Errorf("line %d is not a document of energy top --json: %w", number, err)
			continue
		}
		if err := show(f, notes); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case err != nil:
		return fmt.Errorf("line %d: %w", number+1, err)
	case number == 1:
		return cut
	}
	return nil
}

// document is the JSON of a frame.
type document struct {
	Schema      int
	At          time.Time
	Since       *time.Time
	Period      *float64 `json:"period_seconds"`
	Host        string
	Joules      float64
	ActiveWatts *float64 `json:"active_watts"`
	Wrong       string   `json:"contradiction"`
	Zones       []recordedZone
	Views       map[string][]object
	Notes       []string
}

type recordedZone struct {
	Zone, Source       string
	Besides            string   `json:"overlaps_with"`
	Active             *float64 `json:"active_watts"`
	Idle               *float64 `json:"idle_watts"`
	ActiveJoules       float64  `json:"active_joules"`
	IdleJoules         float64  `json:"idle_joules"`
	UnattributedJoules float64  `json:"unattributed_joules"`
	Uncertainty        *float64
}

// parse returns the frame of a document, and notes on it.
func parse(line []byte) (*Frame, []string, error) {
	var d document
	if err := json.Unmarshal(line, &d); err != nil {
		return nil, nil, err
	}
	if d.Schema != SchemaVersion || d.At.IsZero() {
		return nil, nil, fmt.Errorf("the schema is %d, not %d, or the time is missing", d.Schema, SchemaVersion)
	}
	var p parser
	f := &Frame{At: d.At, Host: d.Host, Node: p.energy(d.Joules), Active: orNaN(d.ActiveWatts), Wrong: d.Wrong}
	if d.Since != nil {
		f.Since = *d.Since
	}
	f.Period = p.duration(orNaN(d.Period), time.Nanosecond)
	for _, z := range d.Zones {
		active := p.energy(z.ActiveJoules)
		f.Zones = append(f.Zones, Zone{
			Name: z.Zone, Source: z.Source, Besides: z.Besides, Active: orNaN(z.Active), Idle: orNaN(z.Idle),
			Energy: active + p.energy(z.IdleJoules), ActiveEnergy: active, Unattributed: p.energy(z.UnattributedJoules),
			Uncertainty: orNaN(z.Uncertainty),
		})
	}
	for view := range NumViews {
		for _, o := range d.Views[view.String()] {
			f.Tables[view] = append(f.Tables[view], p.row(o))
		}
	}
	return f, d.Notes, p.err
}

// parser converts figures of a document. err is set if one of them is impossible.
type parser struct{ err error }

// row returns a row of a document. Its key consists of the texts that stay the same in a recording.
func (p *parser) row(o object) Row {
	r := Row{
		Power: o.number("watts"), GPU: o.number("gpu_watts"), Busy: o.number("utilization"), CPUTime: -1,
		Energy: p.energy(o.number("joules")), Total: p.energy(o.number("total_joules")),
	}
	r.Pinned, _ = o["remainder"].(bool)
	if pid := o.number("pid"); pid > 0 && pid <= math.MaxInt32 {
		r.PID = int32(pid)
	}
	if cpu := o.number("cpu_seconds"); cpu >= 0 {
		r.CPUTime = p.duration(cpu, time.Microsecond)
	}
	joules, _ := o["zone_joules"].([]any)
	for _, j := range joules {
		j, _ := j.(float64)
		r.Zones = append(r.Zones, p.energy(j))
	}
	for t, name := range attributes {
		r.Text[t], _ = o[name].(string)
	}
	key := []string{strconv.Itoa(int(r.PID))}
	for _, t := range []Text{Name, Container, Unit, User, Pod, VM, Namespace, ID} {
		key = append(key, r.Text[t])
	}
	r.Key = strings.Join(key, "\x00")
	return r
}

// number returns a figure of an object, NaN if it is missing.
func (o object) number(key string) float64 {
	if v, ok := o[key].(float64); ok {
		return v
	}
	return math.NaN()
}

// energy returns an energy that JSON has written in joules.
func (p *parser) energy(joules float64) units.Energy {
	const most = 1e12
	if !(joules >= 0 && joules <= most) {
		p.err = errors.New("an energy is missing, negative or too large")
		return 0
	}
	return units.Energy(math.Round(joules * 1e6))
}

// duration returns a time that JSON has written in seconds, 0 for NaN.
func (p *parser) duration(seconds float64, resolution time.Duration) time.Duration {
	const most = 1e9
	switch {
	case math.IsNaN(seconds):
		return 0
	case !(seconds >= 0 && seconds <= most):
		p.err = errors.New("a time is negative or too large")
		return 0
	}
	return time.Duration(math.Round(seconds/resolution.Seconds())) * resolution
}

func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}
