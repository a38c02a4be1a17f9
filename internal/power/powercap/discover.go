// SPDX-License-Identifier: Apache-2.0

package powercap

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

// raplControl is the control type of the CPU's own registers, for Intel and AMD alike. Others may repeat its zones.
const raplControl = "intel-rapl"

// discover lists the current zones. It opens no counter, so it succeeds even if counters may not be
// read. The error is fs.ErrNotExist if there is no powercap interface; power.ErrNoZones, joined
// with errors of reading zones, if there is no zone to use, as in a container whose runtime masks
// /sys/devices/virtual/powercap; and otherwise the error of reading the directory. Previously known
// zones stay known. Only the TakeOver changes zones.
func (m *Meter) discover() power.TakeOver {
	entries, err := os.ReadDir(m.dir)
	_, err = kernfs.Result(m.dir, nil, err)
	if err != nil {
		return func() error { return m.lose(err) }
	}
	dirs := zoneDirs(m.dir, entries)
	f := m.inspect(dirs)
	return func() error {
		m.merge(f)
		return m.lacks(&f, len(dirs))
	}
}

// lose notes that the class directory could not be listed.
func (m *Meter) lose(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list powercap zones: %w", err)
	}
	for _, z := range m.zones {
		z.CloseFile()
	}
	return fmt.Errorf("no powercap interface below %s: %w", m.root, err)
}

// lacks returns why a discovery found no zone in some directories, nil if it found one.
func (m *Meter) lacks(f *found, dirs int) error {
	switch {
	case len(f.zones) > 0:
		return nil
	case f.reason != nil:
		return fmt.Errorf("powercap: %w in %s: %w", power.ErrNoZones, m.dir, f.reason)
	}
	return fmt.Errorf("powercap: %w in %s (%d zone directories, none of a configured zone kind)", power.ErrNoZones, m.dir, dirs)
}

// zoneDirs returns the path of every zone directory by ID, given the entries of the class directory. The
// kernel lists all zones flat in it, as links; copies of the tree may keep subzones only in their
// parents, whose ID begins theirs.
func zoneDirs(class string, entries []fs.DirEntry) map[string]string {
	dirs := make(map[string]string, len(entries))
	var parents []string // IDs of zones, names of control types
	for _, e := range entries {
		dirs[e.Name()] = filepath.Join(class, e.Name())
		parents = append(parents, e.Name())
	}
	for len(parents) > 0 {
		parent := parents[0]
		parents = parents[1:]
		children, err := os.ReadDir(dirs[parent])
		if err != nil {
			continue // a file, a dangling link, gone meanwhile: inspect says what matters
		}
		for _, e := range children {
			id := e.Name()
			if _, known := dirs[id]; known || !strings.HasPrefix(id, parent+":") {
				continue
			}
			dirs[id] = filepath.Join(dirs[parent], id)
			parents = append(parents, id)
		}
	}
	for id := range dirs {
		if !strings.Contains(id, ":") { // a control type
			delete(dirs, id)
		}
	}
	return dirs
}

// found is the result of a discovery.
type found struct {
	zones  []foundZone
	owner  map[string]string // control type that a qualified name belongs to
	unread map[string]bool   // IDs that are there and could not be looked at
	reason error             // why the first of them could not
}

// foundZone is a zone as its directory describes it.
type foundZone struct {
	id, name, control, qualified, dir string
	kind                              power.Kind
	wrapAt                            units.Energy
	counter                           os.FileInfo // nil if it is not known
}

// inspect reads what the zone directories say of themselves and selects the zones to use.
func (m *Meter) inspect(dirs map[string]string) found {
	f := found{owner: make(map[string]string, len(dirs)), unread: make(map[string]bool)}
	for _, z := range m.zones { // a zone that is away for now keeps others from its counter
		if controlOf(z.ID) == raplControl {
			f.owner[z.qualified] = raplControl
		}
	}
	for _, id := range ownersFirst(dirs) {
		z := foundZone{id: id, dir: dirs[id], control: controlOf(id)}
		if parent := ParentOf(id); f.unread[parent] && m.names[parent] == "" { // the name of its package could not be read yet
			f.unread[id] = true
			continue
		}
		var err error
		if z.name, err = m.readName(z.dir); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				f.unread[id] = true
				if f.reason == nil {
					f.reason = err
				}
			}
			continue
		}
		z.qualified = m.qualify(&z)
		if !m.usable(&z) {
			continue
		}
		if first, taken := f.owner[z.qualified]; taken && first != z.control {
			continue // the same counter by another way: intel-rapl-mmio
		}
		f.owner[z.qualified] = z.control
		f.zones = append(f.zones, z)
	}
	return f
}

// ownersFirst returns the IDs with those of intel-rapl first, which owns what others repeat, and parents before their
// children.
func ownersFirst(dirs map[string]string) []string {
	ids := make([]string, 0, len(dirs))
	for id := range dirs {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int {
		if ra, rb := controlOf(a) == raplControl, controlOf(b) == raplControl; ra != rb {
			if ra {
				return -1
			}
			return 1
		}
		return power.CompareIDs(a, b)
	})
	return ids
}

// qualify returns the zone's name after those of its parents, and remembers it for its children.
func (m *Meter) qualify(z *foundZone) string {
	qualified := z.name
	if parent := ParentOf(z.id); parent != "" {
		above, ok := m.names[parent]
		if !ok { // the parent was never seen: its number takes the place of its name
			above = strings.TrimPrefix(parent, z.control)
		}
		qualified = above + "/" + z.name
	}
	m.names[z.id] = qualified
	return qualified
}

// usable reports whether the zone is of a wanted kind and counts energy, and fills in its kind and range.
func (m *Meter) usable(z *foundZone) bool {
	var ok bool
	if z.kind, ok = KindOf(z.name); !ok || !m.want(z.kind) {
		return false
	}
	counter, err := os.Stat(filepath.Join(z.dir, "energy_uj"))
	if errors.Is(err, fs.ErrNotExist) {
		return false // limits power without counting energy
	}
	if err == nil {
		z.counter = counter
	}
	z.wrapAt, ok = m.readRange(z.dir)
	return ok || z.control == raplControl // else not a counter that wraps: dtpm estimates
}

// merge brings the known zones up to what was found.
func (m *Meter) merge(f found) {
	byID := make(map[string]*zone, len(m.zones)+len(f.zones))
	for _, z := range m.zones {
		byID[z.ID] = z
	}
	present := make(map[string]bool, len(f.zones))
	for i := range f.zones {
		seen := &f.zones[i]
		present[seen.id] = true
		z := byID[seen.id]
		if z != nil && z.qualified != seen.qualified { // sockets that came back in another order
			z.CloseFile()
			z = nil
		}
		if z == nil {
			byID[seen.id] = m.newZone(seen)
			continue
		}
		if seen.wrapAt != 0 {
			z.Counter.SetWrapAt(seen.wrapAt)
		}
		if path := filepath.Join(seen.dir, "energy_uj"); z.File.Path != path || z.File.IsOther(seen.counter) {
			z.CloseFile()
			z.File.Path = path
		}
	}

	m.zones = m.zones[:0:0]
	for id, z := range byID {
		if first, taken := f.owner[z.qualified]; taken && first != controlOf(id) {
			z.CloseFile() // a repeat that was seen before its owner
			continue
		}
		if !present[id] && !f.unread[id] {
			z.CloseFile() // vanished; the descriptor of a plain file would go on giving its last value
		}
		m.zones = append(m.zones, z)
	}
	slices.SortFunc(m.zones, func(a, b *zone) int { return power.CompareIDs(a.ID, b.ID) })
	files := make([]*power.CounterFile, len(m.zones))
	for i, z := range m.zones {
		files[i] = &z.CounterFile
	}
	m.files.SetZones(files)
}

func (m *Meter) newZone(seen *foundZone) *zone {
	z := power.Zone{
		ID: seen.id, Name: seen.name, Kind: seen.kind, Parent: ParentOf(seen.id),
		Method: power.Measured, Domain: domainOf(seen.qualified), MaxWatts: power.MaxWatts(seen.kind),
		Prompt: seen.kind != power.PSys,
	}
	return &zone{
		CounterFile: power.CounterFile{
			Zone: z,
			File: kernfs.File{
				Path: filepath.Join(seen.dir, "energy_uj"),
				Open: func(path string) (*os.File, error) { return m.open(path) },
			},
			Counter: power.NewCounter(z.MaxWatts, seen.wrapAt),
		},
		qualified: seen.qualified,
	}
}

// readText returns the text of a small attribute as it is.
func (m *Meter) readText(path string) (string, error) {
	f := kernfs.File{Path: path, Open: m.open}
	defer func() { _ = f.Close() }()
	text, err := f.Read(make([]byte, 256))
	if err != nil {
		return "", fmt.Errorf("powercap attribute: %w", err)
	}
	return string(text), nil
}

var errNameCut = errors.New("the zone's name has no end of line")

func (m *Meter) readName(dir string) (string, error) {
	text, err := m.readText(filepath.Join(dir, "name"))
	if err != nil {
		return "", err
	}
	name, ok := strings.CutSuffix(text, "\n")
	if !ok {
		return "", fmt.Errorf("powercap attribute %s: %w", filepath.Join(dir, "name"), errNameCut)
	}
	return strings.TrimSpace(name), nil
}

// readRange returns where the zone's counter wraps, 0 if that cannot be made out, and reports whether the zone
// has a range at all.
func (m *Meter) readRange(dir string) (units.Energy, bool) {
	text, err := m.readText(filepath.Join(dir, "max_energy_range_uj"))
	if err != nil {
		return 0, !errors.Is(err, fs.ErrNotExist)
	}
	wrapAt, err := kernfs.ParseUintLine([]byte(text))
	if err != nil {
		return 0, true
	}
	return units.Energy(wrapAt), true
}
