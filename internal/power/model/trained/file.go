// SPDX-License-Identifier: Apache-2.0

package trained

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/power/model/machine"
)

// version is that of the format. A reader refuses others.
const version = 1

// Model is a model of energy model.
type Model struct {
	// Created is when it was trained.
	Created time.Time
	// Machine is the machine that the model was trained on. Fields that its JSON does not have are
	// zero: Virtual, Cloud, Instance, Product.
	Machine machine.Machine
	Zones   map[power.Kind]Zone
}

// Zone is the trained curve of a zone kind, over all zones of the kind together.
type Zone struct {
	// Curve has the power with no CPU busy and with all CPUs busy, too.
	Curve model.Curve
	// Error is the mean absolute error of the power, relative to the mean power, where parts of the
	// record are predicted from the others.
	Error float64
	// Seconds is how much time the zone was trained with.
	Seconds float64
	// Lowest and Highest are the utilizations between which it was trained. Beyond, the curve is extrapolated.
	Lowest, Highest float64
}

// What a field may have.
const (
	maxPoints  = 1000
	maxWatts   = 1e6     // of a node
	maxThreads = 1 << 16 // Linux has 8192 at most
	maxText    = 200     // bytes of a name
)

// fileJSON is the format.
type fileJSON struct {
	Version int                     `json:"version"`
	Created time.Time               `json:"created"`
	Machine machineJSON             `json:"machine"`
	Zones   map[power.Kind]zoneJSON `json:"zones"`
}

type machineJSON struct {
	CPU      string `json:"cpu"`
	Chip     string `json:"chip,omitempty"`
	Vendor   string `json:"vendor,omitempty"`
	Family   int    `json:"family,omitempty"`
	Model    int    `json:"model,omitempty"`
	Stepping int    `json:"stepping,omitempty"`
	Threads  int    `json:"threads"`
	Cores    int    `json:"cores,omitempty"`
	Sockets  int    `json:"sockets,omitempty"`
	Memory   uint64 `json:"memory,omitempty"`
}

type zoneJSON struct {
	Points      [][]float64 `json:"points"` // utilization and watts
	Error       float64     `json:"error"`
	Seconds     float64     `json:"seconds"`
	Utilization []float64   `json:"utilization"` // lowest and highest
}

// Encode returns the model's JSON, with a line for each zone. The error reports what Parse would
// reject.
func (m *Model) Encode() ([]byte, error) {
	f := fileJSON{Version: version, Created: m.Created.UTC(), Machine: identityOf(&m.Machine), Zones: map[power.Kind]zoneJSON{}}
	for k, z := range m.Zones {
		zone := zoneJSON{Error: z.Error, Seconds: z.Seconds, Utilization: []float64{z.Lowest, z.Highest}}
		for _, p := range z.Curve {
			zone.Points = append(zone.Points, []float64{p.Utilization, p.Watts})
		}
		f.Zones[k] = zone
	}
	if _, err := f.check(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	head, err := json.Marshal(f.Machine)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(&b, "{\n  \"version\": %d,\n  \"created\": %q,\n  \"machine\": %s,\n  \"zones\": {", version, f.Created.Format(time.RFC3339), head)
	separator := "\n"
	for _, k := range Kinds {
		zone, ok := f.Zones[k]
		if !ok {
			continue
		}
		line, err := json.Marshal(zone)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s    %q: %s", separator, k, line)
		separator = ",\n"
	}
	b.WriteString("\n  }\n}\n")
	return b.Bytes(), nil
}

// EncodeMachine returns the JSON of what is known of a machine, on one line, as a model has it.
func EncodeMachine(m *machine.Machine) ([]byte, error) { return json.Marshal(identityOf(m)) }

// ParseMachine reads what EncodeMachine returned.
func ParseMachine(data []byte) (machine.Machine, error) {
	var m machineJSON
	if err := strictly(data, &m); err != nil {
		return machine.Machine{}, err
	}
	return m.machine(), m.check()
}

// Parse reads a model of energy model.
func Parse(data []byte) (*Model, error) {
	if err := wellFormed(data); err != nil {
		return nil, err
	}
	return parseModel(data)
}

// parseModel reads a model of JSON that is well formed.
func parseModel(data []byte) (*Model, error) {
	var head struct{ Version json.Number }
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	if v := head.Version.String(); v != "1" {
		return nil, fmt.Errorf("version %q of the format is not known, only %d is", v, version)
	}
	var f fileJSON
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, err
	}
	return f.check()
}

func strictly(data []byte, into any) error {
	if err := wellFormed(data); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// check returns the model that the file holds.
func (f *fileJSON) check() (*Model, error) {
	if err := f.Machine.check(); err != nil {
		return nil, fmt.Errorf("machine: %w", err)
	}
	if len(f.Zones) == 0 {
		return nil, errors.New("it has no zones")
	}
	m := &Model{Created: f.Created, Machine: f.Machine.machine(), Zones: map[power.Kind]Zone{}}
	for k, z := range f.Zones {
		if !slices.Contains(Kinds, k) {
			return nil, fmt.Errorf("zone %q is not one of %v", k, Kinds)
		}
		zone, err := z.check()
		if err != nil {
			return nil, fmt.Errorf("zone %s: %w", k, err)
		}
		m.Zones[k] = zone
	}
	return m, nil
}

func (z *zoneJSON) check() (Zone, error) {
	checked := Zone{Error: z.Error, Seconds: z.Seconds}
	switch {
	case len(z.Points) > maxPoints:
		return checked, fmt.Errorf("%d points, at most %d are allowed", len(z.Points), maxPoints)
	case !(z.Error >= 0 && z.Error <= 1e3):
		return checked, fmt.Errorf("error: %v is not a share from 0 up", z.Error)
	case !(z.Seconds >= 0 && z.Seconds <= math.MaxInt32):
		return checked, fmt.Errorf("seconds: %v is not a time from 0 up", z.Seconds)
	case len(z.Utilization) != 2 || !(0 <= z.Utilization[0] && z.Utilization[0] <= z.Utilization[1] && z.Utilization[1] <= 1):
		return checked, fmt.Errorf("utilization: %v are not two ascending shares", z.Utilization)
	}
	checked.Lowest, checked.Highest = z.Utilization[0], z.Utilization[1]
	points := make([]model.Point, len(z.Points))
	for i, p := range z.Points {
		if len(p) != 2 {
			return checked, fmt.Errorf("point %d: %v is not a utilization and watts", i, p)
		}
		if !(p[1] <= maxWatts) {
			return checked, fmt.Errorf("point %d: %v W is more than %g W", i, p[1], float64(maxWatts))
		}
		points[i] = model.Point{Utilization: p[0], Watts: p[1]}
	}
	var err error
	checked.Curve, err = model.NewCurve(points)
	return checked, err
}

// identityOf returns what a model says of a machine.
func identityOf(m *machine.Machine) machineJSON {
	return machineJSON{
		CPU: m.CPU, Chip: m.Chip, Vendor: m.Vendor, Family: m.Family, Model: m.Model, Stepping: m.Stepping,
		Threads: m.Threads, Cores: m.Cores, Sockets: m.Sockets, Memory: m.Memory,
	}
}

func (m *machineJSON) machine() machine.Machine {
	return machine.Machine{
		CPU: m.CPU, Chip: m.Chip, Vendor: m.Vendor, Family: m.Family, Model: m.Model, Stepping: m.Stepping,
		Threads: m.Threads, Cores: m.Cores, Sockets: m.Sockets, Memory: m.Memory,
	}
}

func (m *machineJSON) check() error {
	for _, text := range []string{m.CPU, m.Chip, m.Vendor} {
		if len(text) > maxText {
			return fmt.Errorf("a name of %d bytes, at most %d are allowed", len(text), maxText)
		}
	}
	if m.CPU == "" && m.Vendor == "" {
		return errors.New("neither cpu nor vendor is stated")
	}
	for _, n := range []int{m.Family, m.Model, m.Stepping, m.Cores, m.Sockets} {
		if n < 0 || n > maxThreads {
			return fmt.Errorf("%d is not between 0 and %d", n, maxThreads)
		}
	}
	if m.Threads < 1 || m.Threads > maxThreads {
		return fmt.Errorf("threads: %d is not between 1 and %d", m.Threads, maxThreads)
	}
	return nil
}

// curve returns the curve of a machine that has a share of the trained one's threads and memory.
func (z *Zone) curve(k power.Kind, s *scale) (c model.ZoneCurve, err error) {
	factor := s.share
	if k == power.DRAM {
		factor = s.memory
	}
	points := make([]model.Point, len(z.Curve))
	for i, p := range z.Curve {
		points[i] = model.Point{Utilization: p.Utilization, Watts: p.Watts * factor}
	}
	c.Curve, err = model.NewCurve(points)
	return c, err
}

func (*Zone) needs() []model.Feature { return nil }

func (z *Zone) relativeError() float64 { return z.Error }
