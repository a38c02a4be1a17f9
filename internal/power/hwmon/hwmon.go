// SPDX-License-Identifier: Apache-2.0

// Package hwmon reads energy and power sensors of the kernel's hardware monitoring drivers:
// energyN_input in microjoules, powerN_average and powerN_input in microwatts
// (Documentation/hwmon/sysfs-interface.rst). It uses those whose meaning it knows, which the table
// of drivers says, and those that the configuration names.
package hwmon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// Meter is the power.Meter of hwmon's sensors.
//
// Energy counters that are fast to read are read with each collection. Powers, and counters behind
// a slow bus, are read by a goroutine for each chip, at the sensor's own pace.
//
// A zone is known by its device and its label, and not by the number of its hwmon directory, which changes when the
// driver is loaded again. A zone once seen stays known.
//
// The zero Meter is not usable; call New.
type Meter struct {
	finder  finder // of the goroutine that discovers
	files   power.CounterFiles
	zones   map[string]*power.CounterFile // read with each collection, by ID
	polled  map[string]*polledZone        // read by a goroutine, by ID
	chips   []*polledChip                 // that have polled zones, in the order of their devices
	unused  []string
	missing error // see finder

	readings []power.Reading
}

// Options say which sensors are read.
type Options struct {
	Root string // "/" or where the host's root is mounted
	// Want reports whether zones of the kind are to be read. nil means all.
	Want func(power.Kind) bool
	// Sensors are read beside those whose meaning is known. They take the place of known ones of the same kind.
	Sensors []Sensor
}

// Sensor names a sensor and says what it measures. Several sensors of one kind measure different things and are added.
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

// searchEvery is how often sensors are looked for as long as nothing that is known has vanished.
const searchEvery = time.Minute

// New returns a meter. It touches nothing.
func New(o Options) *Meter {
	if o.Want == nil {
		o.Want = func(power.Kind) bool { return true }
	}
	m := &Meter{
		finder: finder{
			root:  o.Root,
			class: filepath.Join(o.Root, "sys/class/hwmon"),
			want:  o.Want,
			named: o.Sensors,
			open:  os.Open,
			seen:  make([]bool, len(o.Sensors)),
		},
		zones:  make(map[string]*power.CounterFile),
		polled: make(map[string]*polledZone),
	}
	m.files.Search.Root, m.files.Search.Dir = o.Root, m.finder.class
	m.files.Meter, m.files.Discover, m.files.Patience = "hwmon", m.discover, searchEvery
	return m
}

// Read reads the counters, and returns what the goroutines of the other zones have read. It looks
// for zones when that is due; see power.CounterFiles. The error is fs.ErrNotExist where there is no
// hwmon interface, and power.ErrNoZones where it has no zone to use. Where a sensor that the
// configuration names was never found, the error says so, beside the readings.
func (m *Meter) Read(ctx context.Context, s power.Sample) ([]power.Reading, error) {
	m.files.Missing = m.vanished()
	counters, err := m.files.Read(s)
	m.readings = append(m.readings[:0], counters...)
	for _, c := range m.chips {
		readings, pollErr := c.poller.Read(ctx, s)
		if err == nil && len(readings) == 0 { // else it is in the readings
			err = pollErr
		}
		for i := range readings {
			if m.isKnown(readings[i].Zone) {
				m.readings = append(m.readings, readings[i])
			}
		}
	}
	if err != nil {
		return m.readings, err
	}
	return m.readings, m.missing
}

// vanished reports whether a file of a polled zone is no longer where it was.
func (m *Meter) vanished() bool {
	for _, c := range m.chips {
		if c.vanished.Load() {
			return true
		}
	}
	return false
}

// isKnown reports whether a polled zone is still read. A poller remembers those that it once read.
func (m *Meter) isKnown(zone *power.Zone) bool {
	z := m.polled[zone.ID]
	return z != nil && z.zone == zone
}

// Unused lists the sensors that the last discovery found and whose meaning is not known, as they can be named in the
// configuration: `xe/0000:03:00.0/energy2`.
func (m *Meter) Unused() []string { return m.unused }

// Close ends the goroutines and closes the files. It may be called again; Read may not.
func (m *Meter) Close() error {
	pollers := make([]*power.Poller, len(m.chips))
	for i, c := range m.chips {
		pollers[i] = c.poller
	}
	return errors.Join(power.ClosePollers(pollers...), m.files.Close())
}
