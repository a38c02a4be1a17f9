// SPDX-License-Identifier: Apache-2.0

package hwmon

import (
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
	device  string // name of its device, the driver where it is a virtual one: "amd_energy.0", "0000:03:00.0"
	path    string // of the device
	dir     string // where the attributes are
	sensors []*sensor
}

// sensor is an energy or a power of a chip.
type sensor struct {
	chip  *chip
	name  string // "energy1", "power1"
	label string // as the driver or the firmware calls it, or empty
	// Which files there are. A sensor with none of them is the product of a voltage and a current.
	average, input bool
}

func (s *sensor) isEnergy() bool { return strings.HasPrefix(s.name, "energy") }

// number returns the sensor's number: "1".
func (s *sensor) number() string {
	return strings.TrimPrefix(strings.TrimPrefix(s.name, "energy"), "power")
}

// averages reports whether the average is read. instant prefers the input.
func (s *sensor) averages(instant bool) bool { return s.average && (!s.input || !instant) }

// files returns the files that hold the sensor's value.
func (s *sensor) files(instant bool) []string {
	in := func(name string) string { return filepath.Join(s.chip.dir, name) }
	switch {
	case s.averages(instant):
		return []string{in(s.name + "_average")}
	case s.input:
		return []string{in(s.name + "_input")}
	}
	return []string{in("in" + s.number() + "_input"), in("curr" + s.number() + "_input")}
}

// finder looks for sensors.
type finder struct {
	root  string
	class string
	want  func(power.Kind) bool
	named []Sensor
	open  func(path string) (*os.File, error)

	unused  []string
	seen    []bool // which of the named sensors were ever found
	missing error  // a named sensor that was never found, or is not the only one
}

// discover looks for sensors. It reads no sensor, and only the TakeOver changes zones.
func (m *Meter) discover() power.TakeOver {
	found, chips, err := m.finder.search()
	unused, missing := slices.Clone(m.finder.unused), m.finder.missing
	return func() error {
		if !errors.Is(err, errNotListed) {
			m.merge(found, chips)
			m.unused, m.missing = unused, missing
		}
		return err
	}
}

var errNotListed = errors.New("list hwmon chips")

// search returns the sensors that are used and all chips that are there now. The error is why no sensor is used.
func (m *finder) search() ([]input, []*chip, error) {
	entries, err := os.ReadDir(m.class)
	_, err = kernfs.Result(m.class, nil, err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("no hwmon interface below %s: %w", m.root, err)
	case err != nil:
		return nil, nil, fmt.Errorf("%w: %w", errNotListed, err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return power.CompareIDs(a.Name(), b.Name()) })
	var chips []*chip
	var reason error
	for _, e := range entries {
		c, err := m.inspect(filepath.Join(m.class, e.Name()))
		if c != nil {
			c.number(chips)
			chips = append(chips, c)
		}
		reason = cmp.Or(reason, err)
	}
	found := m.assign(chips)
	for i := range found {
		if f := &found[i]; f.inline() {
			f.file, _ = os.Stat(f.files(false)[0]) // nil if that fails
		}
	}
	switch {
	case len(found) > 0:
		return found, chips, nil
	case m.missing != nil:
		return found, chips, m.missing
	case reason != nil:
		return found, chips, fmt.Errorf("hwmon: %w in %s: %w", power.ErrNoZones, m.class, reason)
	}
	return found, chips, fmt.Errorf("hwmon: %w in %s (%d chips)", power.ErrNoZones, m.class, len(entries))
}

// number makes the names of devices unique where a driver makes several chips of one device: one of each socket. They
// are made in the same order each time.
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

// inspect returns the chip of a hwmon directory, nil if it has neither energy nor power, or shows what a battery or an
// adapter gives (drivers/power/supply/power_supply_hwmon.c), which is not what the machine uses. Some drivers, such as
// acpi_power_meter before Linux 6.18, have their attributes in the directory of the device.
func (m *finder) inspect(dir string) (*chip, error) {
	kernfs.List(dir)
	device, linkErr := filepath.EvalSymlinks(filepath.Join(dir, "device"))
	if filepath.Base(filepath.Dir(device)) == "power_supply" {
		return nil, nil
	}
	driver, err := m.readText(filepath.Join(dir, "name"))
	if errors.Is(err, fs.ErrNotExist) && linkErr == nil {
		dir = filepath.Join(dir, "device")
		driver, err = m.readText(filepath.Join(dir, "name"))
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // it has just gone, or is no chip
		}
		return nil, err
	}
	c := &chip{driver: driver, device: driver, path: dir, dir: dir}
	if linkErr == nil {
		c.device, c.path = filepath.Base(device), device
	}
	if err := m.findSensors(c); err != nil || len(c.sensors) == 0 {
		return nil, err
	}
	return c, nil
}

// findSensors lists the sensors of a chip, energies first.
func (m *finder) findSensors(c *chip) error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return nil // it has just gone
	}
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
	for _, name := range slices.SortedFunc(maps.Keys(byName), power.CompareIDs) {
		s := byName[name]
		if s.label, err = m.label(s); err != nil {
			return err
		}
		if m.isBattery(s) {
			continue
		}
		c.sensors = append(c.sensors, s)
	}
	c.sensors = slices.DeleteFunc(c.sensors, func(s *sensor) bool { // a power that an energy says more exactly
		energy := byName["energy"+s.number()]
		return !s.isEnergy() && energy != nil && energy.label == s.label
	})
	return nil
}

// label returns what the driver calls a sensor, or the firmware in case of an ACPI power meter.
func (m *finder) label(s *sensor) (string, error) {
	names := []string{s.name + "_label", s.name + "_oem_info"}
	if !s.average && !s.input {
		names = []string{"in" + s.number() + "_label"}
	}
	for _, name := range names {
		if text, err := m.readText(filepath.Join(s.chip.dir, name)); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return text, err
		}
	}
	return "", nil
}

// isBattery reports whether an ACPI power meter measures a battery.
func (m *finder) isBattery(s *sensor) bool {
	text, err := m.readText(filepath.Join(s.chip.dir, s.name+"_is_battery"))
	return err == nil && text == "1"
}

// readText returns the text of a small attribute without the white space around it.
func (m *finder) readText(path string) (string, error) {
	f := kernfs.File{Path: path, Open: m.open}
	defer func() { _ = f.Close() }()
	text, err := f.Read(make([]byte, 256))
	if err != nil {
		return "", fmt.Errorf("hwmon attribute: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
