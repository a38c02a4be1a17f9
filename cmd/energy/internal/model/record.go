// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/model/fit"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// counter identifies a series of a Record: energy in joules, the CPU utilization, or the rate of a
// hardware counter. A sensor is identified by its type and ID. The sum of all zones of a kind is
// identified by the kind and the method, and a rate by the name of its feature.
type counter struct {
	kind, id string
	part     bool // of another sensor of its type: cores
}

// The kinds of counters that are no types of sensors. A host measures the whole machine.
const (
	host, sumOfZones, rateKind = "host", "zone", "rate"
)

var utilization = counter{kind: "utilization"}

// Record holds the CPU utilization of a machine and the energy of its meters over some time.
type Record struct {
	// Machine is nil if the record is not of this machine.
	Machine *machine.Machine
	series  map[counter][]point
}

// add adds a point, unless it is not later than the last one.
func (r *Record) add(c counter, p point) {
	if n := len(r.series[c]); n == 0 || p.Time > r.series[c][n-1].Time {
		if r.series == nil {
			r.series = map[counter][]point{}
		}
		r.series[c] = append(r.series[c], p)
	}
}

// Add adds the figures of a snapshot that are new. A collector is read more often than it measures,
// and a meter more often than it counts.
func (r *Record) Add(s *snapshot.Snapshot) {
	if s.Partial {
		return
	}
	at, anyNew := float64(s.At.UnixMilli())/1e3, !s.Untimed
	isNew := func(c counter, v float64) bool {
		n := len(r.series[c])
		return n == 0 || v != r.series[c][n-1].Value
	}
	add := func(c counter, energy units.Energy) {
		if v := energy.Joules(); isNew(c, v) {
			anyNew = true
			r.add(c, point{at, v})
		}
	}
	for i := range s.Zones {
		z := &s.Zones[i]
		add(zones(z.Zone, z.Method), z.Active+z.Idle)
	}
	for i := range s.Meters {
		m := &s.Meters[i]
		switch kind := cmp.Or(m.Type, "other"); {
		case m.Method == power.Modeled:
		case kind == "enclosure" || kind == "power_supply":
			add(counter{host, m.ID, m.Part}, m.Energy)
		default:
			add(counter{kind, m.ID, m.Part}, m.Energy)
		}
	}
	if (anyNew || isNew(utilization, s.Busy)) && s.Busy >= 0 && s.Busy <= 1 {
		r.add(utilization, point{at, s.Busy})
	}
}

// zones returns the counter of all zones of a kind with a method.
func zones(k power.Kind, m power.Method) counter {
	return counter{kind: sumOfZones, id: string(k) + " " + string(m)}
}

var (
	// ErrNoMeter is the error of Collect if the machine has no meter.
	ErrNoMeter       = errors.New("no energy of this machine is measured")
	errNoUtilization = errors.New("the record has no CPU utilization")
)

const (
	// silence is the maximum time without an answer after the first.
	silence = time.Minute
	// grace is how long a read may take to end after the recording.
	grace = 4 * time.Second
)

// Source is the source of a record.
type Source struct {
	Read     func(ctx context.Context) (*snapshot.Snapshot, error)
	Every    time.Duration // between two calls of Read
	Meters   bool          // a record without measured energy is useless
	Progress func(*snapshot.Snapshot)
	Counters Counters // nil if the record is not of this machine
}

// Counters are the hardware counters of a machine: nodeevents.Events.
type Counters interface {
	Readable(f model.Feature) error
	Rates(now time.Time) (model.Rates, error)
}

// Collect adds snapshots to the record until ctx ends. If the first snapshot cannot be read or has no
// meter, Collect returns the reason at once.
func (r *Record) Collect(ctx context.Context, from Source) error {
	ticker := time.NewTicker(from.Every)
	defer ticker.Stop()
	var answered time.Time
	features := from.counted()
	for {
		s, err := patience.Call(ctx, grace, func() (*snapshot.Snapshot, error) { return from.Read(ctx) })
		switch {
		case err == nil && answered.IsZero() && from.Meters && !slices.ContainsFunc(s.Zones, isMeasured):
			return ErrNoMeter
		case err == nil:
			answered = time.Now()
			r.Add(s)
			r.addRates(from.Counters, features)
			from.Progress(s)
		case answered.IsZero():
			return err
		case ctx.Err() != nil:
			return nil
		case time.Since(answered) >= silence:
			return fmt.Errorf("no response for %v: %w", silence, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Unreadable returns why hardware counters cannot be read, nil if all of them can.
func Unreadable(c Counters) error {
	for _, f := range fit.Counters {
		if err := c.Readable(f); err != nil {
			return err
		}
	}
	return nil
}

// counted returns the features of hardware counters that can be read.
func (s *Source) counted() (features []model.Feature) {
	for _, f := range fit.Counters {
		if s.Counters != nil && s.Counters.Readable(f) == nil {
			features = append(features, f)
		}
	}
	return features
}

// addRates adds the rates of features since the previous call.
func (r *Record) addRates(c Counters, features []model.Feature) {
	if len(features) == 0 {
		return
	}
	now := time.Now()
	rates, err := c.Rates(now)
	if err != nil { // the rates since the previous call are lost
		return
	}
	for _, f := range features {
		r.add(counter{kind: rateKind, id: trained.FeatureName(f)}, point{float64(now.UnixMilli()) / 1e3, rates[f]})
	}
}

func isMeasured(z snapshot.Zone) bool { return z.Method == power.Measured }

// IsEmpty reports whether the record has no figures.
func (r *Record) IsEmpty() bool { return len(r.series) == 0 }

// String returns the number of meters and of CPU utilizations.
func (r *Record) String() string {
	return fmt.Sprintf("%d meters and %d CPU utilizations", len(r.sensors()), len(r.series[utilization]))
}

// recordHeader is the first line of a record.
var recordHeader = []string{"time", "kind", "part", "id", "value"}

// machineKind is the kind of the line that describes the machine in its ID.
const machineKind = "machine"

// Write writes the record as CSV: the machine, and a line for each point.
func (r *Record) Write(w io.Writer) error {
	lines := [][]string{recordHeader}
	if r.Machine != nil {
		text, err := trained.EncodeMachine(r.Machine)
		if err != nil {
			return err
		}
		lines = append(lines, []string{"", machineKind, "", string(text), ""})
	}
	for _, c := range r.counters() {
		for _, p := range r.series[c] {
			at, value := strconv.FormatFloat(p.Time, 'f', 3, 64), strconv.FormatFloat(p.Value, 'f', -1, 64)
			lines = append(lines, []string{at, c.kind, strconv.FormatBool(c.part), c.id, value})
		}
	}
	return csv.NewWriter(w).WriteAll(lines)
}

// counters returns the counters of the record.
func (r *Record) counters() []counter {
	return slices.SortedFunc(maps.Keys(r.series), func(a, b counter) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.kind, b.kind))
	})
}

// sensors returns the counters of sensors.
func (r *Record) sensors() []counter {
	return slices.DeleteFunc(r.counters(), func(c counter) bool {
		return c == utilization || c.kind == sumOfZones || c.kind == rateKind
	})
}

// ReadRecord reads the output of Write.
func ReadRecord(data []byte) (*Record, error) {
	lines := csv.NewReader(bytes.NewReader(data))
	if header, _ := lines.Read(); !slices.Equal(header, recordHeader) {
		return nil, fmt.Errorf("not a record of energy model, whose first line is %q", strings.Join(recordHeader, ","))
	}
	for r := (&Record{}); ; {
		fields, err := lines.Read()
		switch {
		case errors.Is(err, io.EOF):
			return r, nil
		case err != nil: // names the line
			return nil, err
		}
		if err := r.parse(fields); err != nil {
			n, _ := lines.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
}

// parse adds the machine or the point of a line.
func (r *Record) parse(fields []string) error {
	c := counter{kind: fields[1], part: fields[2] == "true", id: fields[3]}
	if c.kind == machineKind {
		m, err := trained.ParseMachine([]byte(c.id))
		r.Machine = &m
		return err
	}
	seconds, err := strconv.ParseFloat(fields[0], 64)
	value, err2 := strconv.ParseFloat(fields[4], 64)
	if err := cmp.Or(err, err2); err != nil {
		return err
	}
	most := 1e15
	if c == utilization {
		most = 1
	}
	if !(seconds > 0 && seconds < lastUnix && value >= 0 && value <= most) {
		return fmt.Errorf("%q is not a time and a value", fields)
	}
	r.add(c, point{seconds, value})
	return nil
}
