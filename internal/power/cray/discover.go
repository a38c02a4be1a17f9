// SPDX-License-Identifier: Apache-2.0

package cray

import (
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

// whole is the counter of the node, which contains the others.
const whole = "energy"

// describe returns the zone of a counter file. ok is false for other files, and for counters that
// repeat those that are used: cpu0_energy and so on are parts of cpu_energy. Which socket they are
// is not documented.
func describe(file string) (z power.Zone, ok bool) {
	z = power.Zone{
		ID: "pm_counters:" + file, Name: strings.TrimSuffix(file, "_energy"), Parent: "pm_counters:" + whole,
		Method: power.Measured, Domain: units.NodeCPUs, MaxWatts: power.MaxPlatformWatts, // of all sockets together
	}
	switch file {
	case whole:
		z.Name, z.Kind, z.Parent = "node", power.Platform, ""
		return z, true
	case "cpu_energy":
		z.Kind = power.Package
		return z, true
	case "memory_energy":
		z.Kind = power.DRAM
		return z, true
	}
	number, isCard := strings.CutPrefix(z.Name, "accel")
	z.Kind, z.Domain = power.GPU, units.GPU(z.Name) // its PCI address is not known
	return z, isCard && file == z.Name+"_energy" && strings.Trim(number, "0123456789") == ""
}

// foundZone is a counter file and its zone.
type foundZone struct {
	power.Zone
	file os.FileInfo // nil if it is not known
}

// discover looks for counters. Only the TakeOver changes zones.
func (m *Meter) discover() power.TakeOver {
	entries, err := os.ReadDir(m.dir)
	_, err = kernfs.Result(m.dir, nil, err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return func() error {
			m.merge(nil, nil)
			return fmt.Errorf("no counters of a Cray node: %w", err)
		}
	case err != nil:
		return func() error { return fmt.Errorf("list Cray's counters: %w", err) }
	}
	found := map[string]foundZone{}
	cards := 0
	for _, e := range entries {
		z, ok := describe(e.Name())
		if !ok || !m.want(z.Kind) || z.Kind == power.GPU && !m.hasCounted(e.Name()) {
			continue
		}
		found[e.Name()] = foundZone{z, infoOf(filepath.Join(m.dir, e.Name()))}
		if z.Kind == power.GPU && e.Name() != allCards {
			cards++
		}
	}
	if cards > 0 {
		delete(found, allCards) // it is their sum
	}
	freshness := infoOf(m.freshness.Path)
	return func() error {
		m.merge(found, freshness)
		if len(found) == 0 {
			return fmt.Errorf("cray: %w in %s", power.ErrNoZones, m.dir)
		}
		return nil
	}
}

// infoOf describes the file at a path. It returns nil if that fails.
func infoOf(path string) os.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

// allCards is the counter of all graphics cards, on some nodes beside those of each.
const allCards = "accel_energy"

// hasCounted reports whether a counter is above 0. Nodes without graphics cards may have counters for them.
func (m *Meter) hasCounted(file string) bool {
	text, err := os.ReadFile(filepath.Join(m.dir, file))
	if err != nil {
		return m.zones[file] != nil
	}
	energy, err := parseEnergy(text)
	return err != nil || energy > 0
}

// merge makes the known zones those that were found and those that were known before.
func (m *Meter) merge(found map[string]foundZone, freshness os.FileInfo) {
	for file, zone := range found {
		z := m.zones[file]
		if z == nil {
			m.zones[file] = &power.CounterFile{
				Zone: zone.Zone, File: kernfs.File{Path: filepath.Join(m.dir, file)}, Counter: power.NewCounter(zone.MaxWatts, 0),
			}
		} else if z.File.IsOther(zone.file) {
			z.CloseFile()
		}
	}
	for file, z := range m.zones {
		if _, ok := found[file]; !ok {
			z.CloseFile() // vanished; the descriptor of a plain file would go on giving its last value
		}
	}
	if m.freshness.IsOther(freshness) {
		_ = m.freshness.Close() // opened for reading: nothing can be lost
	}
	m.files.SetZones(slices.SortedFunc(maps.Values(m.zones), func(a, b *power.CounterFile) int {
		return power.CompareIDs(a.ID, b.ID)
	}))
}
