// SPDX-License-Identifier: Apache-2.0

package hwmon

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// inline reports whether the sensor is read with each collection.
func (f *input) inline() bool { return f.isEnergy() && f.is.every == 0 }

// merge makes the known zones those that were found and those that were known before and have vanished. Of several with
// one ID the first counts.
func (m *Meter) merge(found []input, chips []*chip) {
	present := make(map[string]bool, len(found))
	var added []*input
	for i := range found {
		f := &found[i]
		id := f.zone.ID
		if present[id] {
			continue
		}
		present[id] = true
		if m.zones[id] == nil && m.polled[id] == nil {
			added = append(added, f)
		}
		if f.inline() {
			m.mergeCounter(f)
		} else {
			m.mergePolled(f)
		}
	}
	m.forget(present, added, chips)
	m.files.SetZones(slices.SortedFunc(maps.Values(m.zones), func(a, b *power.CounterFile) int {
		return power.CompareIDs(a.ID, b.ID)
	}))
	m.publish()
}

func (m *Meter) mergeCounter(f *input) {
	path := f.files(false)[0]
	z := m.zones[f.zone.ID]
	switch {
	case z == nil:
		m.zones[f.zone.ID] = &power.CounterFile{
			Zone:    f.zone,
			File:    kernfs.File{Path: path, Open: m.openFile},
			Counter: power.NewCounter(f.zone.MaxWatts, f.is.wrapAt),
		}
	case z.File.Path != path || z.File.IsOther(f.file):
		z.CloseFile()
		z.File.Path = path
	}
}

func (m *Meter) openFile(path string) (*os.File, error) { return m.finder.open(path) }

func (m *Meter) mergePolled(f *input) {
	z := m.polled[f.zone.ID]
	if z == nil || z.zone.Kind != f.zone.Kind {
		zone := f.zone
		z = &polledZone{chip: m.chipOf(f), target: target{zone: &zone}}
		m.polled[zone.ID] = z
	}
	z.target = target{zone: z.zone, paths: f.files(f.is.instant), isEnergy: f.isEnergy(), every: f.is.every}
	if f.averages(f.is.instant) {
		z.interval = filepath.Join(f.chip.dir, f.name+"_average_interval")
	}
}

// chipOf returns what reads the polled zones of the input's chip.
func (m *Meter) chipOf(f *input) *polledChip {
	for _, p := range m.chips {
		if p.device == f.chip.device && p.driver == f.chip.driver {
			return p
		}
	}
	p := newPolledChip(f, m.openFile)
	m.chips = append(m.chips, p)
	slices.SortFunc(m.chips, func(a, b *polledChip) int { return power.CompareIDs(a.device, b.device) })
	return p
}

// forget closes the counters that have vanished, and drops those that a new zone replaces. It drops polled zones also
// where the sensor is there and no longer means what it meant.
func (m *Meter) forget(present map[string]bool, added []*input, chips []*chip) {
	replaced := func(z *power.Zone) bool {
		return slices.ContainsFunc(added, func(f *input) bool { return f.zone.Kind == z.Kind && f.zone.Domain == z.Domain })
	}
	exists := func(id string) bool {
		return slices.ContainsFunc(chips, func(c *chip) bool {
			return slices.ContainsFunc(c.sensors, func(s *sensor) bool { return s.id() == id })
		})
	}
	for id, z := range m.zones {
		if present[id] {
			continue
		}
		z.CloseFile() // the descriptor of a plain file would go on giving its last value
		if replaced(&z.Zone) {
			delete(m.zones, id)
		}
	}
	for id, z := range m.polled {
		if !present[id] && (replaced(z.zone) || exists(id)) {
			delete(m.polled, id)
		}
	}
}

// publish passes the goroutines their targets, and ends the goroutines without targets.
func (m *Meter) publish() {
	targets := make(map[*polledChip][]target, len(m.chips))
	for _, id := range slices.SortedFunc(maps.Keys(m.polled), power.CompareIDs) {
		z := m.polled[id]
		targets[z.chip] = append(targets[z.chip], z.target)
	}
	m.chips = slices.DeleteFunc(m.chips, func(c *polledChip) bool {
		next := targets[c]
		c.next.Store(&next)
		if len(next) == 0 {
			go func() { _ = c.poller.Close() }() // waits for a chip that does not answer; its files were only read from
		}
		return len(next) == 0
	})
}
