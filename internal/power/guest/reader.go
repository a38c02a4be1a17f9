// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/powercap"
	"github.com/energyreceiver/energyreceiver/internal/regular"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	// maxEntries is the maximum number of entries of a directory, and of directories in a tree.
	// Real machines have far fewer.
	maxEntries = 1024
	// maxFile is the maximum size in bytes of a file of another program's tree. Files of sysfs have
	// the size of a page, 4096 bytes on machines with RAPL.
	maxFile = 4096
	// controlType is the control type whose zones are read. Zones of other control types repeat
	// these zones, or are estimates.
	controlType = "intel-rapl"
)

var (
	errNoZone      = errors.New("no zone with energy_uj: is the share mounted, and does the hypervisor write to it?")
	errHalfWritten = errors.New("it is half-written")
	errTooMany     = fmt.Errorf("more than %d entries", maxEntries)
)

// reader reads the report in the directory of a virtual machine: report.json or, without this file,
// a powercap tree of another program. After report.json was read, it is expected until report is
// cleared. Scaphandre's trees have no names and no ranges, and its files are rewritten in place.
//
// The directory may hold anything. No link is followed, and only regular files of limited size are
// read.
type reader struct {
	path     string
	want     func(power.Kind) bool
	report   Report    // the last one
	modified time.Time // when a counter of another program's tree was last written
}

// read returns the report. Its generation is the last one until there is a new report. The error is
// errHalfWritten while a file is being rewritten.
func (r *reader) read() (*Report, error) {
	root, err := openPath(r.path)
	if err != nil {
		return nil, cause(err)
	}
	defer func() { _ = root.Close() }()
	text, err := regular.ReadIn(root, reportFile, maxDocument)
	if errors.Is(err, fs.ErrNotExist) && r.report.Epoch == "" {
		return r.readForeign(root)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", reportFile, cause(err))
	}
	report, err := unmarshal(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", reportFile, err)
	}
	r.report = *report
	return report, nil
}

// readForeign reads a tree of another program. A counter that changed, or was rewritten, makes a
// new generation.
func (r *reader) readForeign(root *os.Root) (*Report, error) {
	f := foreign{want: r.want}
	if err := f.readZonesIn(root, ""); err != nil {
		return nil, err
	}
	if len(f.zones) == 0 {
		return nil, errNoZone
	}
	slices.SortFunc(f.zones, func(a, b Zone) int { return power.CompareIDs(a.ID, b.ID) })
	if !slices.Equal(f.zones, r.report.Zones) || !f.modified.Equal(r.modified) {
		r.report.Generation++
	}
	r.report.Zones, r.modified = f.zones, f.modified
	return &r.report, nil
}

// foreign is a powercap tree of another program. Zones lie in the tree or in a directory of their
// control type, subzones in their parents or next to them.
type foreign struct {
	want     func(power.Kind) bool
	zones    []Zone
	modified time.Time // when a counter was last written
	visited  int       // directories
}

// readZonesIn reads the zones in the directory of the control type or of a zone, or in the tree if
// parent is empty.
func (f *foreign) readZonesIn(dir *os.Root, parent string) error {
	names, err := list(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		isRead := slices.ContainsFunc(f.zones, func(z Zone) bool { return z.ID == name })
		switch {
		case parent == "" && name == controlType:
		case !isZoneID(name) || !strings.HasPrefix(name, parent) || name == parent || isRead:
			continue
		}
		if err := f.readZonesAt(dir, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// readZonesAt reads the zone with the ID and its subzones, or the zones of the control type.
func (f *foreign) readZonesAt(in *os.Root, id string) error {
	if f.visited++; f.visited > maxEntries {
		return errTooMany
	}
	dir, err := openDirectory(in, id)
	if err != nil {
		return cause(err)
	}
	defer func() { _ = dir.Close() }()
	if id != controlType {
		if err := f.readZone(dir, id); err != nil || powercap.ParentOf(id) != "" {
			return err // RAPL's zones have no grandchildren
		}
	}
	return f.readZonesIn(dir, id)
}

// readZone adds the zone of a directory, if it counts energy.
func (f *foreign) readZone(dir *os.Root, id string) error {
	z := Zone{ID: id, Parent: powercap.ParentOf(id)}
	name, named, err := readLine(dir, nameFile)
	switch {
	case err != nil:
		return err
	case named:
		z.Name = string(name)
	case z.Parent == "": // Scaphandre
		z.Name = "package-" + strings.TrimPrefix(id, controlType+":")
	}
	var isKnown bool
	if z.Kind, isKnown = powercap.KindOf(z.Name); !isKnown || f.want != nil && !f.want(z.Kind) {
		return nil
	}
	limit, _, err := readNumber(dir, rangeFile)
	if err != nil {
		return err
	}
	energy, counts, err := readNumber(dir, energyFile)
	if err != nil || !counts {
		return err
	}
	if info, err := dir.Lstat(energyFile); err == nil && info.ModTime().After(f.modified) {
		f.modified = info.ModTime()
	}
	z.Range, z.Energy = units.Energy(limit), units.Energy(energy)
	f.zones = append(f.zones, z)
	return nil
}

// isZoneID reports whether a name is the ID of a zone or subzone, such as intel-rapl:0:1.
func isZoneID(name string) bool {
	rest, ok := strings.CutPrefix(name, controlType+":")
	zone, subzone, nested := strings.Cut(rest, ":")
	return ok && isShortNumber(zone) && (!nested || isShortNumber(subzone))
}

func isShortNumber(s string) bool {
	return s != "" && len(s) <= 4 && strings.Trim(s, "0123456789") == ""
}

// list returns the names in a directory, except links to subzones, which lie in their
// parents.
func list(dir *os.Root) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, cause(err)
	}
	defer func() { _ = f.Close() }()
	entries, err := f.ReadDir(maxEntries + 1)
	switch {
	case len(entries) > maxEntries:
		return nil, errTooMany
	case err != nil && !errors.Is(err, io.EOF):
		return nil, cause(err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 || powercap.ParentOf(e.Name()) == "" {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// readNumber returns the number in a file, and reports whether the file exists. An empty file is
// being rewritten.
func readNumber(dir *os.Root, name string) (number uint64, exists bool, err error) {
	text, exists, err := readLine(dir, name)
	switch {
	case err != nil || !exists:
		return 0, exists, err
	case len(text) == 0:
		return 0, true, errHalfWritten
	}
	if number, err = kernfs.ParseUint(text); err != nil {
		return 0, true, fmt.Errorf("%s: %w", name, err)
	}
	return number, true, nil
}

// readLine returns the text of a small file without the end of its line, and reports whether the
// file exists.
func readLine(dir *os.Root, name string) (text []byte, exists bool, err error) {
	text, err = regular.ReadIn(dir, name, maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	case err != nil:
		return nil, true, fmt.Errorf("%s: %w", name, cause(err))
	}
	return bytes.TrimSuffix(text, []byte("\n")), true, nil
}
