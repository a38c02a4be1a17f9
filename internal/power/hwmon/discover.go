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
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// input is an energy counter whose meaning is known.
type input struct {
	id    string // of its zone: the device's name and the label, "amd_energy.0:Esocket0"
	path  string
	label string
	*meaning
	domain units.Domain
}

// discover brings the known zones up to what is there now. It opens no counter.
func (m *Meter) discover() error {
	entries, err := os.ReadDir(m.class)
	_, err = kernfs.Result(m.class, nil, err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		m.merge(nil)
		return fmt.Errorf("no hwmon interface below %s: %w", m.root, err)
	case err != nil:
		return fmt.Errorf("list hwmon chips: %w", err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return power.CompareIDs(a.Name(), b.Name()) })
	var found []input
	var reason error
	m.unused = m.unused[:0]
	for _, e := range entries {
		inputs, err := m.inspect(filepath.Join(m.class, e.Name()))
		found = append(found, inputs...)
		reason = cmp.Or(reason, err)
	}
	m.merge(found)
	switch {
	case len(found) > 0:
		return nil
	case reason != nil:
		return fmt.Errorf("hwmon: %w in %s: %w", power.ErrNoZones, m.class, reason)
	}
	return fmt.Errorf("hwmon: %w in %s (%d chips)", power.ErrNoZones, m.class, len(entries))
}

// inspect returns the energy counters of a hwmon directory that are used.
func (m *Meter) inspect(dir string) ([]input, error) {
	driver, err := m.readText(filepath.Join(dir, "name"))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // it has just gone, or is no chip
		}
		return nil, err
	}
	device := driver // where it is a virtual one
	if path, err := filepath.EvalSymlinks(filepath.Join(dir, "device")); err == nil {
		device = filepath.Base(path)
	}
	var used []input
	for _, name := range energyInputs(dir) {
		if !isKnown(driver) {
			m.unused = append(m.unused, driver+" "+name)
			continue
		}
		label, err := m.readText(filepath.Join(dir, name+"_label"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return used, err
		}
		known, number := find(driver, label)
		if known == nil {
			m.unused = append(m.unused, driver+" "+cmp.Or(label, name))
			continue
		}
		domain, counts := known.domain(m, number)
		repeats := slices.ContainsFunc(used, func(u input) bool { return u.kind == known.kind && u.domain == domain })
		if !counts || repeats || !m.want(known.kind) {
			continue
		}
		used = append(used, input{
			id: device + ":" + label, path: filepath.Join(dir, name+"_input"),
			label: label, meaning: known, domain: domain,
		})
	}
	return used, nil
}

// energyInputs returns the energy counters of a hwmon directory, "energy1" for energy1_input, in order.
func energyInputs(dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // it has just gone
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), "_input")
		if _, isEnergy := match("energy#", name); ok && isEnergy {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, power.CompareIDs)
	return names
}

// merge makes the known zones those that were found and those that were known before. Of several with one ID the first
// counts.
func (m *Meter) merge(found []input) {
	present := make(map[string]bool, len(found))
	for i := range found {
		f := &found[i]
		if present[f.id] {
			continue
		}
		present[f.id] = true
		if z := m.zones[f.id]; z == nil {
			m.zones[f.id] = m.newZone(f)
		} else if z.File.Path != f.path || z.File.Stale() {
			z.CloseFile()
			z.File.Path = f.path
		}
	}
	for id, z := range m.zones {
		if present[id] {
			continue
		}
		z.CloseFile() // vanished; the descriptor of a plain file would go on giving its last value
		if slices.ContainsFunc(found, func(f input) bool { return f.kind == z.Kind && f.domain == z.Domain }) {
			delete(m.zones, id) // another one has taken its place
		}
	}
	m.files.SetZones(slices.SortedFunc(maps.Values(m.zones), func(a, b *power.CounterFile) int {
		return power.CompareIDs(a.ID, b.ID)
	}))
}

func (m *Meter) newZone(f *input) *power.CounterFile {
	z := power.Zone{
		ID: f.id, Name: f.label, Kind: f.kind,
		Source: power.Measured, Domain: f.domain, MaxWatts: power.MaxWatts(f.kind),
	}
	return &power.CounterFile{
		Zone:    z,
		File:    kernfs.File{Path: f.path, Open: func(path string) (*os.File, error) { return m.open(path) }},
		Counter: power.NewCounter(z.MaxWatts, f.wrapAt),
	}
}

// readText returns the text of a small attribute without the white space around it.
func (m *Meter) readText(path string) (string, error) {
	f := kernfs.File{Path: path, Open: m.open}
	defer func() { _ = f.Close() }()
	text, err := f.Read(make([]byte, 256))
	if err != nil {
		return "", fmt.Errorf("hwmon attribute: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
