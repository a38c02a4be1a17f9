// SPDX-License-Identifier: Apache-2.0

package cray

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// whole is the counter of the whole node. It includes all other counters.
const whole = "energy"

// describe returns the zone of a counter file. ok is false for other files, and for counters whose
// energy is included in other counters: cpu0_energy and so on are parts of cpu_energy. The
// documentation does not map them to sockets.
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
	z.Kind, z.Domain = power.GPU, units.GPU(z.Name) // its PCI address is not available
	return z, isCard && file == z.Name+"_energy" && strings.Trim(number, "0123456789") == ""
}

// find looks for counters.
func (s *source) find() func() error {
	entries, err := os.ReadDir(s.dir)
	_, err = kernfs.Result(s.dir, nil, err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return func() error {
			s.files.Merge(nil, nil)
			return fmt.Errorf("no counters of a Cray node: %w", err)
		}
	case err != nil:
		return func() error { return fmt.Errorf("list Cray's counters: %w", err) }
	}
	var found []power.CounterFile
	cards := 0
	for _, e := range entries {
		z, ok := describe(e.Name())
		path := filepath.Join(s.dir, e.Name())
		if !ok || !s.want(z.Kind) || z.Kind == power.GPU && !s.hasCounted(&z, path) {
			continue
		}
		found = append(found, power.CounterFile{Zone: z, Path: path, Info: infoOf(path)})
		if z.Kind == power.GPU && e.Name() != allCards {
			cards++
		}
	}
	if cards > 0 { // allCards is their sum
		found = slices.DeleteFunc(found, func(c power.CounterFile) bool { return filepath.Base(c.Path) == allCards })
	}
	freshness := infoOf(s.freshness.Path)
	return func() error {
		s.files.Merge(found, nil)
		if s.freshness.IsOther(freshness) {
			_ = s.freshness.Close() // opened for reading: no data can be lost
		}
		if len(found) == 0 {
			return fmt.Errorf("cray: %w in %s", power.ErrNoZones, s.dir)
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

// allCards is the counter of all graphics cards, on some nodes in addition to the counter of each
// card.
const allCards = "accel_energy"

// hasCounted reports whether a counter is above 0. Nodes without graphics cards may have counters
// for them.
func (s *source) hasCounted(z *power.Zone, path string) bool {
	text, err := os.ReadFile(path)
	if err == nil {
		energy, err := parseEnergy(text)
		return err != nil || energy > 0
	}
	for known := range s.files.Zones {
		if known.ID == z.ID {
			return true
		}
	}
	return false
}
