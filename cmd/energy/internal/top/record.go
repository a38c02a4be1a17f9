// SPDX-License-Identifier: Apache-2.0

package top

import (
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

// maxDocument is the maximum length of a document of a recording in bytes.
const maxDocument = 64 << 20

// ReadRecording calls show for each document of a recording, which JSON has written. A truncated
// last document is ignored, unless it is the first. A recording without documents is an error. The
// keys of rows differ from the keys of the recorded frames.
func ReadRecording(r io.Reader, show func(f *Frame, notes []string) error) error {
	limited := &io.LimitedReader{R: r}
	documents := json.NewDecoder(limited)
	for number := 1; ; number++ {
		var d document
		limited.N = maxDocument
		err := documents.Decode(&d)
		switch {
		case err != nil && limited.N <= 0:
			err = fmt.Errorf("it has more than %d bytes", maxDocument)
		case number > 1 && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
			return nil
		}
		var f *Frame
		if err == nil {
			f, err = d.frame()
		}
		if err != nil {
			return fmt.Errorf("document %d is not output of energy top --json: %w", number, err)
		}
		if err := show(f, d.Notes); err != nil {
			return err
		}
	}
}

// document has the fields of a JSON document that restore a frame.
type document struct {
	Schema        int
	At            time.Time
	Since         *time.Time
	Host          string
	Contradiction string
	Zones         []object
	Views         map[string][]object
	Notes         []string
	Joules        any
	Watts         any `json:"active_watts"`
	Period        any `json:"period_seconds"`
}

// frame returns the frame of a document.
func (d *document) frame() (*Frame, error) {
	if d.Schema != SchemaVersion || d.At.IsZero() {
		return nil, fmt.Errorf("the schema is %d, not %d, or the time is missing", d.Schema, SchemaVersion)
	}
	var p parser
	f := &Frame{
		At: d.At, Host: d.Host, Wrong: d.Contradiction, Node: p.energy(d.Joules), Active: figureOrNaN(d.Watts),
		Period: p.duration(d.Period, time.Nanosecond),
	}
	if d.Since != nil {
		f.Since = *d.Since
	}
	for _, o := range d.Zones {
		z := Zone{
			Name: o.text("zone"), Source: o.text("source"), Besides: o.text("overlaps_with"),
			Active: figureOrNaN(o["active_watts"]), Idle: figureOrNaN(o["idle_watts"]), Uncertainty: figureOrNaN(o["uncertainty"]),
			ActiveEnergy: p.energy(o["active_joules"]), Unattributed: p.energy(o["unattributed_joules"]),
		}
		z.Energy = z.ActiveEnergy + p.energy(o["idle_joules"])
		f.Zones = append(f.Zones, z)
	}
	for view := range NumViews {
		for _, o := range d.Views[view.String()] {
			f.Tables[view] = append(f.Tables[view], p.row(o))
		}
	}
	return f, p.err
}

// parser converts figures of a document. err is set if a figure is invalid.
type parser struct{ err error }

// row returns a row of a document. Its key consists of the PID and of texts.
func (p *parser) row(o object) Row {
	r := Row{
		Power: figureOrNaN(o["watts"]), GPU: figureOrNaN(o["gpu_watts"]), Busy: figureOrNaN(o["utilization"]), CPUTime: -1,
		Energy: p.energy(o["joules"]), Total: p.energy(o["total_joules"]),
	}
	r.Pinned, _ = o["remainder"].(bool)
	if pid := figureOrNaN(o["pid"]); pid > 0 && pid <= math.MaxInt32 {
		r.PID = int32(pid)
	}
	if cpu := o["cpu_seconds"]; cpu != nil {
		r.CPUTime = p.duration(cpu, time.Microsecond)
	}
	joules, _ := o["zone_joules"].([]any)
	for _, j := range joules {
		r.Zones = append(r.Zones, p.energy(j))
	}
	for t, name := range attributes {
		r.Text[t] = o.text(name)
	}
	key := r.Text
	key[Arguments], key[Command] = "", "" // they may change
	r.Key = strconv.Itoa(int(r.PID)) + strings.Join(key[:], "\x00")
	return r
}

func (o object) text(key string) string {
	text, _ := o[key].(string)
	return text
}

// figureOrNaN returns a figure of a document, or NaN if it is missing.
func figureOrNaN(v any) float64 {
	if f, ok := v.(float64); ok {
		return f
	}
	return math.NaN()
}

// energy converts an energy in joules.
func (p *parser) energy(joules any) units.Energy {
	const most = 1e12
	if j := figureOrNaN(joules); j >= 0 && j <= most {
		return units.Energy(math.Round(j * 1e6))
	}
	p.err = errors.New("an energy is missing, negative or too large")
	return 0
}

// duration converts a time in seconds. It returns 0 if the time is missing.
func (p *parser) duration(seconds any, resolution time.Duration) time.Duration {
	const most = 1e9
	s := figureOrNaN(seconds)
	if s >= 0 && s <= most {
		return time.Duration(math.Round(s/resolution.Seconds())) * resolution
	}
	if !math.IsNaN(s) {
		p.err = errors.New("a time is negative or too large")
	}
	return 0
}
