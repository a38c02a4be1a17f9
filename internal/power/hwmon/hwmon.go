// SPDX-License-Identifier: Apache-2.0

// Package hwmon reads energy and power sensors of the kernel's hardware monitoring drivers:
// energyN_input in microjoules, powerN_average and powerN_input in microwatts
// (Documentation/hwmon/sysfs-interface.rst). It uses the sensors in its table of drivers, and
// those that the configuration names.
package hwmon

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// Meter is the power.Meter of hwmon sensors.
//
// Energy counters that are fast to read are read in each collection. Powers, and counters behind a
// slow bus, are polled by one goroutine per chip, at the interval of the sensor.
//
// The ID of a zone consists of its device and its label. The number of its hwmon directory is not
// used, because it changes when the driver is reloaded. A zone whose sensor vanishes keeps its
// total, and its readings have an error.
//
// The zero Meter is not usable; call New.
type Meter struct {
	finder    finder // used by the goroutine that searches
	discovery power.Discovery
	found     found     // result of the last search that could list the chips
	inputs    []*input  // found and vanished inputs, in the order of their IDs
	sources   []*source // sources of the inputs, in the order of their devices
	readings  []power.Reading
}

// Options select the sensors to read.
type Options struct {
	Root string // root directory of the host: "/" or its mount point in a container
	// Want reports whether to read zones of a kind. If Want is nil, all zones are read.
	Want func(power.Kind) bool
	// Sensors are read in addition to the sensors in the table of drivers. They replace sensors of the
	// table that have the same kind.
	Sensors []Sensor
}

// Sensor names a sensor and the kind of hardware that it measures. Sensors of one kind are added
// up.
type Sensor struct {
	Chip   string // the chip's name: "ina226"
	Device string // the name of the chip's device, to distinguish chips with the same name: "1-0040"; empty means any
	Sensor string // "power1" or "energy1", or the sensor's label
	Kind   power.Kind
}

// String returns the sensor as a key of the setting meters::hwmon::sensors.
func (s *Sensor) String() string {
	if s.Device == "" {
		return s.Chip + "/" + s.Sensor
	}
	return s.Chip + "/" + s.Device + "/" + s.Sensor
}

// searchEvery is the sample time between two searches while no file is missing.
const searchEvery = time.Minute

// New returns a meter. It opens no file.
func New(o Options) *Meter {
	if o.Want == nil {
		o.Want = func(power.Kind) bool { return true }
	}
	class := filepath.Join(o.Root, "sys/class/hwmon")
	m := &Meter{
		finder: finder{root: o.Root, class: class, want: o.Want, named: o.Sensors, seen: make([]bool, len(o.Sensors))},
	}
	m.discovery = power.Discovery{Meter: "hwmon", Find: m.find, Patience: searchEvery}
	m.discovery.Search.Root, m.discovery.Search.Dir = o.Root, class
	return m
}

// Read returns the readings of all chips, and searches for chips every minute of sample time, or
// every second while a file is missing. The error is fs.ErrNotExist if there is no hwmon
// interface, and power.ErrNoZones if it has no zone to use. With readings, the error reports a
// sensor that the configuration names and that was never found.
func (m *Meter) Read(ctx context.Context, s power.Sample) ([]power.Reading, error) {
	m.discovery.Run(s, len(m.inputs))
	m.readings = m.readings[:0]
	var failure error
	lost := false
	for _, c := range m.sources {
		readings, err := c.meter.Read(ctx, s)
		if len(readings) == 0 { // otherwise the readings have the error
			failure = cmp.Or(failure, err)
		}
		m.readings = append(m.readings, readings...)
		lost = lost || c.lost.Load()
	}
	good := slices.ContainsFunc(m.readings, func(r power.Reading) bool { return r.Err == nil })
	return m.readings, cmp.Or(m.discovery.Note(s.At, good, lost), failure, m.found.missing)
}

// find searches for chips, and returns a function that merges the result.
func (m *Meter) find() func() error {
	found := m.finder.search()
	return func() error {
		if !errors.Is(found.err, errNotListed) {
			m.found = found
			m.merge()
		}
		return found.err
	}
}

// merge passes the inputs of the search to the sources, together with earlier inputs that have
// vanished. A vanished input is dropped if a new input measures the same hardware.
func (m *Meter) merge() {
	id := func(z *power.Zone) func(*input) bool {
		return func(f *input) bool { return f.zone.ID == z.ID }
	}
	inputs := m.found.inputs
	for _, known := range m.inputs {
		replaces := func(f *input) bool {
			return f.zone.Kind == known.zone.Kind && f.zone.Domain == known.zone.Domain && !slices.ContainsFunc(m.inputs, id(f.zone))
		}
		if i := slices.IndexFunc(m.found.inputs, id(known.zone)); i >= 0 {
			if m.found.inputs[i].zone.Kind == known.zone.Kind {
				m.found.inputs[i].zone = known.zone
			}
		} else if !m.found.lists(known.zone.ID) && !slices.ContainsFunc(m.found.inputs, replaces) {
			inputs = append(inputs, known)
		}
	}
	m.inputs = slices.SortedFunc(slices.Values(inputs), func(a, b *input) int { return power.CompareIDs(a.zone.ID, b.zone.ID) })

	next := make(map[*source][]*input)
	for _, in := range m.inputs {
		c := m.sourceOf(in)
		next[c] = append(next[c], in)
	}
	m.sources = slices.DeleteFunc(m.sources, func(c *source) bool {
		inputs := next[c]
		c.next.Store(&inputs)
		if len(inputs) == 0 {
			go func() { _ = c.meter.Close() }() // waits for a chip that does not answer; its files were only read from
		}
		return len(inputs) == 0
	})
}

// sourceOf returns the source that reads an input.
func (m *Meter) sourceOf(in *input) *source {
	i := slices.IndexFunc(m.sources, func(c *source) bool {
		return c.chip.driver == in.chip.driver && c.chip.device == in.chip.device && c.fast == in.fast()
	})
	if i >= 0 {
		return m.sources[i]
	}
	c := newSource(in)
	m.sources = append(m.sources, c)
	slices.SortFunc(m.sources, func(a, b *source) int { return power.CompareIDs(a.chip.device, b.chip.device) })
	return c
}

// Unused returns the sensors of the last search that the table of drivers does not contain. They
// have the format of the setting meters::hwmon::sensors, such as xe/0000:03:00.0/energy2.
func (m *Meter) Unused() []string { return m.found.unused }

// Close stops the goroutines and closes the files. Close may be called again. Read must not be
// called after Close.
func (m *Meter) Close() error {
	m.discovery.Search.Close()
	errs := make([]error, len(m.sources))
	var closing sync.WaitGroup
	for i, c := range m.sources {
		closing.Go(func() { errs[i] = c.meter.Close() })
	}
	closing.Wait()
	return errors.Join(errs...)
}
