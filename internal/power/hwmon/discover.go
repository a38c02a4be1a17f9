// SPDX-License-Identifier: Apache-2.0

package hwmon

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// chip is a hwmon directory with energy or power sensors.
type chip struct {
	driver  string // content of the file name
	device  string // name of its device, or the driver of a virtual chip: "amd_energy.0", "0000:03:00.0"
	path    string // of the device
	dir     string // of the attributes, below the device: hwmon numbers in sys/class/hwmon are reused for other devices
	sensors []*sensor
}

// sensor is an energy or a power of a chip.
type sensor struct {
	chip  *chip
	name  string // "energy1", "power1"
	label string // as the driver or the firmware calls it, or empty
	// The files that exist. A sensor without both is the product of a voltage and a current.
	average, input bool
}

func (s *sensor) isEnergy() bool { return strings.HasPrefix(s.name, "energy") }

// digits returns the sensor's number: "1".
func (s *sensor) digits() string {
	return strings.TrimPrefix(strings.TrimPrefix(s.name, "energy"), "power")
}

// finder looks for sensors.
type finder struct {
	root  string
	class string
	want  func(power.Kind) bool
	named []Sensor
	seen  []bool // reports for each named sensor whether it was found at least once
	buf   [256]byte
}

// found is the result of a search.
type found struct {
	inputs  []*input // inputs that are used, at most one per ID
	chips   []*chip
	unused  []string // sensors that the table does not contain
	err     error    // the reason why no sensor is used, or nil
	missing error    // error of a named sensor that was never found or is ambiguous, or nil
}

// lists reports whether a sensor, used or not, has the zone ID.
func (f *found) lists(id string) bool {
	return slices.ContainsFunc(f.chips, func(c *chip) bool {
		return slices.ContainsFunc(c.sensors, func(s *sensor) bool { return s.id() == id })
	})
}

var errNotListed = errors.New("list hwmon chips")

// search looks for sensors. It reads no sensor.
func (m *finder) search() (f found) {
	entries, err := os.ReadDir(m.class)
	_, err = kernfs.Result(m.class, nil, err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.err = fmt.Errorf("no hwmon interface below %s: %w", m.root, err)
		return f
	case err != nil:
		f.err = fmt.Errorf("%w: %w", errNotListed, err)
		return f
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return power.CompareIDs(a.Name(), b.Name()) })
	for _, e := range entries {
		c, err := m.inspect(filepath.Join(m.class, e.Name()))
		if c != nil {
			c.number(f.chips)
			f.chips = append(f.chips, c)
		}
		f.err = cmp.Or(f.err, err)
	}
	m.assign(&f)
	switch {
	case len(f.inputs) > 0:
		f.err = nil
	case f.missing != nil:
		f.err = f.missing
	case f.err != nil:
		f.err = fmt.Errorf("hwmon: %w in %s: %w", power.ErrNoZones, m.class, f.err)
	default:
		f.err = fmt.Errorf("hwmon: %w in %s (%d chips)", power.ErrNoZones, m.class, len(entries))
	}
	return f
}

// number makes the names of devices unique if a driver makes several chips of one device, such as
// one for each socket. A driver makes them in the same order each time.
func (c *chip) number(before []*chip) {
	n := 0
	for _, other := range before {
		if other.driver == c.driver && other.path == c.path {
			n++
		}
	}
	if n > 0 {
		c.device += "-" + strconv.Itoa(n)
	}
}

// inspect returns the chip of a hwmon directory, or nil if it has neither energy nor power.
// Batteries and adapters (drivers/power/supply/power_supply_hwmon.c) do not measure the power of
// the machine. Some drivers, such as acpi_power_meter before Linux 6.18, have their attributes in
// the directory of the device.
func (m *finder) inspect(class string) (*chip, error) {
	kernfs.List(class)
	dir := class
	driver, err := m.read(dir, "name")
	if errors.Is(err, fs.ErrNotExist) {
		dir = filepath.Join(class, "device")
		driver, err = m.read(dir, "name")
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // the chip was just removed, or the directory is not a chip
		}
		return nil, err
	}
	c := &chip{driver: driver, device: driver}
	c.findSensors(dir)
	c.dir, err = filepath.EvalSymlinks(dir)
	if err != nil || len(c.sensors) == 0 {
		return nil, nil //nolint:nilerr // the chip was just removed
	}
	c.path = c.dir
	if device, err := filepath.EvalSymlinks(filepath.Join(class, "device")); err == nil {
		c.device, c.path = filepath.Base(device), device
	}
	if filepath.Base(filepath.Dir(c.path)) == "power_supply" {
		return nil, nil
	}
	if err := m.label(c); err != nil || len(c.sensors) == 0 {
		return nil, err
	}
	return c, nil
}

// findSensors lists the sensors of a chip in its directory, energies first.
func (c *chip) findSensors(dir string) {
	entries, _ := os.ReadDir(dir) // fails if the chip was just removed
	byName := make(map[string]*sensor)
	for _, e := range entries {
		name, attribute, _ := strings.Cut(e.Name(), "_")
		_, isEnergy := match("energy#", name)
		_, isPower := match("power#", name)
		isInput := attribute == "input" && (isEnergy || isPower)
		isAverage := attribute == "average" && isPower
		if !isInput && !isAverage {
			continue
		}
		if byName[name] == nil {
			byName[name] = &sensor{chip: c, name: name}
		}
		byName[name].input = byName[name].input || isInput
		byName[name].average = byName[name].average || isAverage
	}
	for i := range bothFiles[c.driver] {
		if n := strconv.Itoa(i + 1); slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "curr"+n+"_input" }) {
			byName["power"+n] = &sensor{chip: c, name: "power" + n}
		}
	}
	c.sensors = slices.SortedFunc(maps.Values(byName), func(a, b *sensor) int { return power.CompareIDs(a.name, b.name) })
}

// label sets the labels of a chip's sensors. A label comes from the driver or, for an ACPI power
// meter, from the firmware. label removes batteries, and power sensors whose energy another sensor
// counts.
func (m *finder) label(c *chip) error {
	energies := make(map[string]string) // labels by number
	var failure error
	c.sensors = slices.DeleteFunc(c.sensors, func(s *sensor) bool {
		name, digits := s.name+"_label", s.digits()
		if !s.average && !s.input {
			name = "in" + digits + "_label"
		}
		var err error
		if s.label, err = m.read(c.dir, name); errors.Is(err, fs.ErrNotExist) && !s.isEnergy() {
			s.label, err = m.read(c.dir, s.name+"_oem_info")
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failure = cmp.Or(failure, err)
		}
		if s.isEnergy() {
			energies[digits] = s.label
			return false
		}
		label, counted := energies[digits]
		return counted && label == s.label || m.text(c.dir, s.name+"_is_battery") == "1" // ACPI power meters have _is_battery
	})
	return failure
}

// text returns the text of a small attribute, empty if it cannot be read.
func (m *finder) text(elem ...string) string {
	text, _ := m.read(elem...)
	return text
}

// read returns the text of a small attribute without leading and trailing white space.
func (m *finder) read(elem ...string) (string, error) {
	text, err := kernfs.ReadSmall(filepath.Join(elem...), m.buf[:])
	return string(bytes.TrimSpace(text)), err
}
