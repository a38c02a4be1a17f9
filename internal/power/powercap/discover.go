// SPDX-License-Identifier: Apache-2.0

package powercap

import (
	"bytes"
	"cmp"
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

// raplControl is the control type of the CPU's own registers, for both Intel and AMD. Other control
// types may repeat its zones.
const raplControl = "intel-rapl"

// find lists the current zones. It opens no counter, so it succeeds even if counters may not be
// read. The error is fs.ErrNotExist if there is no powercap interface. If there is no usable zone,
// it is power.ErrNoZones, joined with the errors of zones. This is the case in a container whose
// runtime masks /sys/devices/virtual/powercap. Other errors concern the directory.
func (s *source) find() func() error {
	entries, err := os.ReadDir(s.dir)
	_, err = kernfs.Result(s.dir, nil, err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return func() error {
			s.Merge(nil, nil)
			return fmt.Errorf("no powercap interface below %s: %w", s.root, err)
		}
	case err != nil:
		return func() error { return fmt.Errorf("list powercap zones: %w", err) }
	}
	dirs := zoneDirs(s.dir, entries)
	f := s.inspect(dirs)
	return func() error {
		s.Merge(f.files, func(z *power.Zone) (stays, open bool) {
			first, taken := f.owner[s.names[z.ID]]
			return !taken || first == controlOf(z.ID), f.unread[z.ID] // otherwise the zone repeats a zone that was found later
		})
		return s.lacks(&f, len(dirs))
	}
}

// lacks returns an error if a discovery found no zone in dirs directories.
func (s *source) lacks(f *found, dirs int) error {
	switch {
	case len(f.files) > 0:
		return nil
	case f.reason != nil:
		return fmt.Errorf("powercap: %w in %s: %w", power.ErrNoZones, s.dir, f.reason)
	}
	return fmt.Errorf("powercap: %w in %s (%d zone directories, but not of a configured zone kind)", power.ErrNoZones, s.dir, dirs)
}

// zoneDirs returns the path of every zone directory by ID, given the entries of the class
// directory. The kernel lists all zones in this directory, as links. Copies of the tree may have
// subzones only in their parents. The ID of a subzone begins with the ID of its parent.
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
			continue // a file, a dangling link, or a zone that was removed: inspect reports errors
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
	files  []power.CounterFile
	owner  map[string]string // control type that a qualified name belongs to
	unread map[string]bool   // IDs of zones that could not be read
	reason error             // the error of the first zone in unread
}

// inspect reads the descriptions in the zone directories and selects the zones to use.
func (s *source) inspect(dirs map[string]string) found {
	f := found{owner: make(map[string]string, len(dirs)), unread: make(map[string]bool)}
	for z := range s.Zones { // a zone that is temporarily absent still owns its counter
		if controlOf(z.ID) == raplControl {
			f.owner[s.names[z.ID]] = raplControl
		}
	}
	for _, id := range ownersFirst(dirs) {
		if parent := ParentOf(id); f.unread[parent] && s.names[parent] == "" { // the name of its package has not been read yet
			f.unread[id] = true
			continue
		}
		name, err := s.readName(dirs[id])
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				f.unread[id] = true
				f.reason = cmp.Or(f.reason, err)
			}
			continue
		}
		qualified := s.qualify(id, name)
		c, ok := s.counterOf(id, name, dirs[id])
		if !ok {
			continue
		}
		if first, taken := f.owner[qualified]; taken && first != controlOf(id) {
			continue // the same counter through another interface: intel-rapl-mmio
		}
		f.owner[qualified] = controlOf(id)
		f.files = append(f.files, c)
	}
	return f
}

// ownersFirst returns the IDs of intel-rapl first, because other control types repeat its zones,
// and parents before their children.
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

// qualify returns the qualified name of a zone: the names of its parents and its name. It stores
// the result for the children.
func (s *source) qualify(id, name string) string {
	qualified := name
	if parent := ParentOf(id); parent != "" {
		above, ok := s.names[parent]
		if !ok { // the parent was never found: its number replaces its name
			above = strings.TrimPrefix(parent, controlOf(id))
		}
		qualified = above + "/" + name
	}
	s.names[id] = qualified
	return qualified
}

// counterOf returns the counter of the zone in a directory. ok reports whether the zone has a
// wanted kind and counts energy.
func (s *source) counterOf(id, name, dir string) (c power.CounterFile, ok bool) {
	kind, ok := KindOf(name)
	if !ok || !s.want(kind) {
		return c, false
	}
	c = power.CounterFile{Path: filepath.Join(dir, "energy_uj"), Zone: power.Zone{
		ID: id, Name: name, Kind: kind, Parent: ParentOf(id), Method: power.Measured,
		Domain: domainOf(s.names[id]), MaxWatts: power.MaxWatts(kind), Prompt: kind != power.PSys,
	}}
	info, err := os.Stat(c.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, false // the zone limits power without counting energy
	}
	if err == nil {
		c.Info = info
	}
	c.Range, ok = s.readRange(dir)
	return c, ok || controlOf(id) == raplControl // otherwise it is not a counter that wraps: dtpm estimates energy
}

var errNameCut = errors.New("the zone's name has no end of line")

func (s *source) readName(dir string) (string, error) {
	path := filepath.Join(dir, "name")
	text, err := kernfs.ReadSmall(path, s.buf[:])
	if err == nil && !bytes.HasSuffix(text, []byte("\n")) {
		err = fmt.Errorf("%s: %w", path, errNameCut)
	}
	return string(bytes.TrimSpace(text)), err
}

// readRange returns the range of the zone's counter, or 0 if its text is not a number. The bool
// reports whether the zone has a range.
func (s *source) readRange(dir string) (units.Energy, bool) {
	text, err := kernfs.ReadSmall(filepath.Join(dir, "max_energy_range_uj"), s.buf[:])
	wrapAt, _ := kernfs.ParseUintLine(text)
	return units.Energy(wrapAt), !errors.Is(err, fs.ErrNotExist)
}
