// SPDX-License-Identifier: Apache-2.0

package trained

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// version is the version of the format. A reader refuses others.
const version = 1

// Model is a model of energy model.
type Model struct {
	// Created is when it was trained, to the second.
	Created time.Time `json:"created"`
	// Machine is the machine that the model was trained on.
	Machine machine.Machine `json:"machine"`
	Zones   Zones           `json:"zones"`
}

// Zones are the zones of a model by their kinds.
type Zones map[power.Kind]Zone

// UnmarshalJSON implements json.Unmarshaler. It returns an error if a zone kind occurs twice.
func (z *Zones) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return errors.New("zones must be an object")
	}
	if *z == nil {
		*z = Zones{}
	}
	for d.More() {
		key, _ := d.Token() // data is valid JSON
		kind := power.Kind(fmt.Sprint(key))
		if _, twice := (*z)[kind]; twice {
			return fmt.Errorf("zone %.40q occurs twice", kind)
		}
		var zone Zone
		if err := d.Decode(&zone); err != nil {
			return err
		}
		(*z)[kind] = zone
	}
	return nil
}

// Zone is the trained curve of a zone kind, over all zones of the kind together.
type Zone struct {
	// Curve includes the power with no CPU busy and with all CPUs busy.
	Curve model.Curve `json:"points"`
	// Error is the mean absolute error of the power, relative to the mean power, if parts of the
	// record are predicted from the other parts.
	Error float64 `json:"error"`
	// Seconds is the length of the training record in seconds.
	Seconds float64 `json:"seconds"`
	// Utilization has the lowest and the highest utilization, 0 to 1, of the training. Beyond them,
	// the curve is extrapolated.
	Utilization []float64 `json:"utilization"`
}

// The limits of the fields.
const (
	maxPoints  = 1000
	maxWatts   = 1e6     // of a node
	maxThreads = 1 << 16 // Linux has 8192 at most
	maxText    = 200     // bytes of a name
)

// file is the format of a Model.
type file struct {
	Version int `json:"version"`
	Model
}

// Encode returns the model's JSON. The error reports what Parse would reject.
func (m *Model) Encode() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	f := file{version, *m}
	f.Created = m.Created.UTC().Truncate(time.Second)
	data, err := json.MarshalIndent(f, "", "  ")
	return append(data, '\n'), err
}

// EncodeMachine returns the JSON of a machine on one line, in the format of a model.
func EncodeMachine(m *machine.Machine) ([]byte, error) { return json.Marshal(m) }

// ParseMachine reads the JSON that EncodeMachine returns.
func ParseMachine(data []byte) (m machine.Machine, err error) {
	if err := strictly(data, &m); err != nil {
		return m, err
	}
	return m, checkMachine(&m)
}

// Parse reads a model of energy model.
func Parse(data []byte) (*Model, error) {
	var f file
	if err := json.Unmarshal(data, &struct{ Version *int }{&f.Version}); err != nil {
		return nil, err
	}
	if f.Version != version {
		return nil, fmt.Errorf("version %d of the format is not supported, only %d is", f.Version, version)
	}
	if err := strictly(data, &f); err != nil {
		return nil, err
	}
	return &f.Model, f.check()
}

// strictly decodes JSON. A field that into lacks is an error.
func strictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// parse reads a model of either format.
func parse(data []byte, path string) (*trainedModel, error) {
	name := filepath.Base(path)
	if err := printable(name); err != nil {
		return nil, fmt.Errorf("name of the file: %w", err)
	}
	var head struct{ Version *json.RawMessage }
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	if head.Version == nil {
		return parseKepler(data, path)
	}
	m, err := Parse(data)
	if err != nil {
		return nil, err
	}
	t := &trainedModel{name: name, by: "energy model", machine: m.Machine, zones: map[power.Kind]zone{}}
	for k, z := range m.Zones {
		t.zones[k] = &z
	}
	return t, nil
}

// printable returns an error if a text from a file is too long for a log line, or has characters
// that cannot be printed.
func printable(s string) error {
	if len(s) > maxText || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%.40q is too long, or cannot be printed", s)
	}
	return nil
}

func (m *Model) check() error {
	if err := checkMachine(&m.Machine); err != nil {
		return fmt.Errorf("machine: %w", err)
	}
	if len(m.Zones) == 0 {
		return errors.New("it has no zones")
	}
	for k, z := range m.Zones {
		if !slices.Contains(Kinds, k) {
			return fmt.Errorf("zone %.40q is not one of %v", k, Kinds)
		}
		if err := z.check(); err != nil {
			return fmt.Errorf("zone %s: %w", k, err)
		}
	}
	return nil
}

func (z *Zone) check() error {
	switch u := z.Utilization; {
	case len(z.Curve) > maxPoints:
		return fmt.Errorf("%d points, at most %d are allowed", len(z.Curve), maxPoints)
	case !(z.Error >= 0 && z.Error <= 1e3):
		return fmt.Errorf("error: must be from 0 to 1000, is %v", z.Error)
	case !(z.Seconds >= 0 && z.Seconds <= math.MaxInt32):
		return fmt.Errorf("seconds: must be from 0 to %d, is %v", math.MaxInt32, z.Seconds)
	case len(u) != 2 || !(0 <= u[0] && u[0] <= u[1] && u[1] <= 1):
		return fmt.Errorf("utilization: must be two ascending values from 0 to 1, is %v", u)
	}
	for i, p := range z.Curve {
		if !(p.Watts <= maxWatts) {
			return fmt.Errorf("point %d: %v W is more than %g W", i, p.Watts, float64(maxWatts))
		}
	}
	_, err := model.NewCurve(z.Curve)
	return err
}

func checkMachine(m *machine.Machine) error {
	for _, text := range []string{m.CPU, m.Chip, m.Vendor} {
		if err := printable(text); err != nil {
			return err
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

// curve returns the curve scaled to the threads, or for DRAM the memory, of this machine.
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
