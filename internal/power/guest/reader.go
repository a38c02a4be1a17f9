// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/powercap"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// What a tree may hold. No machine comes near it.
const (
	maxEntries = 1024 // of a directory, and directories of all levels together
	maxZones   = 256
	maxFile    = 256 // bytes
)

var (
	errNoZone      = errors.New("no zone with energy_uj: is the share mounted, and does the hypervisor write to it?")
	errHalfWritten = errors.New("it is half-written")
	errNotRegular  = errors.New("not a regular file")
	errTooLong     = fmt.Errorf("longer than %d bytes", maxFile)
	errTooMany     = fmt.Errorf("more than %d entries or %d zones", maxEntries, maxZones)
	errNoWord      = errors.New("not a word of letters, digits and dashes")
)

// reader reads the report in a powercap tree: one of this package, or one without generations, as
// Scaphandre writes (no names, no ranges, files rewritten in place) or as a copy of the kernel's.
// Zones are directories of the tree or of its directory intel-rapl; subzones lie in their parents
// or beside them.
//
// A tree may hold anything. No link leads out of it, only regular files are read, and little of each.
type reader struct {
	path     string
	want     func(power.Kind) bool
	report   Report    // the last one
	next     Report    // what is being read
	known    bool      // there is a report
	lines    bool      // each file must end with a newline, as in a tree with generations: else it was not read to its end
	visited  int       // directories that were opened for next
	modified time.Time // of a tree without generations: the newest file of next
	newest   time.Time // and of report
	buf      [maxFile + 1]byte
}

// read returns the report, with the generation of the one before if nothing is new. The error is
// errHalfWritten while the tree is being written. The report is valid until the next call.
func (r *reader) read() (*Report, error) {
	info, err := os.Stat(r.path)
	if err == nil && !info.IsDir() {
		err = errNoDirectory // to open a pipe would wait for a writer
	}
	if err != nil {
		return nil, cause(err)
	}
	root, err := os.OpenRoot(r.path)
	if err != nil {
		return nil, cause(err)
	}
	defer func() { _ = root.Close() }()
	for range 3 {
		if err = r.tryRead(root); !errors.Is(err, errHalfWritten) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return &r.report, nil
}

// tryRead reads the report, between two looks at the generation.
func (r *reader) tryRead(root *os.Root) error {
	r.lines = false
	generation, numbered, err := r.readNumber(root, generationFile)
	switch {
	case err != nil:
		return err
	case !numbered:
		return r.readUnnumbered(root)
	case generation%2 != 0:
		return errHalfWritten
	}
	r.lines = true
	epoch, err := r.readEpoch(root)
	if err != nil {
		return err
	}
	if r.known && r.report.Generation == generation && r.report.Epoch == epoch {
		return nil
	}
	r.next = Report{Epoch: epoch, Generation: generation, Zones: r.next.Zones[:0]}
	at, known, err := r.readNumber(root, updateTimeFile)
	if err != nil {
		return err
	}
	if known {
		r.next.Time = time.Unix(0, int64(at))
	}
	if err := r.readZones(root); err != nil {
		return err
	}
	again, _, err := r.readNumber(root, generationFile)
	if err != nil {
		return err
	}
	if again != generation {
		return errHalfWritten
	}
	r.keep()
	return nil
}

// readUnnumbered reads a tree without generations. A counter that changed, or was written again, makes a new one.
func (r *reader) readUnnumbered(root *os.Root) error {
	r.next, r.modified = Report{Generation: r.report.Generation, Zones: r.next.Zones[:0]}, time.Time{}
	if err := r.readZones(root); err != nil {
		return err
	}
	if !slices.Equal(r.next.Zones, r.report.Zones) || !r.modified.Equal(r.newest) {
		r.next.Generation++
	}
	r.newest = r.modified
	r.keep()
	return nil
}

func (r *reader) keep() {
	r.report, r.next, r.known = r.next, r.report, true
}

// readZones reads all zones of wanted kinds that count energy.
func (r *reader) readZones(root *os.Root) error {
	r.visited = 0
	if err := r.readZonesIn(root, ""); err != nil {
		return err
	}
	if len(r.next.Zones) == 0 {
		return errNoZone
	}
	slices.SortFunc(r.next.Zones, func(a, b Zone) int { return power.CompareIDs(a.ID, b.ID) })
	return nil
}

// readZonesIn reads the zones in a directory: that of the zone with the ID parent, or one that may have any zones.
func (r *reader) readZonesIn(dir *os.Root, parent string) error {
	names, err := list(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		switch {
		case parent == "" && name == controlType:
		case !isZoneID(name) || !strings.HasPrefix(name, parent) || name == parent || r.has(name):
			continue
		}
		if err := r.readZonesAt(dir, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// readZonesAt reads the zone with the ID and the zones in it, or the zones of the control type.
func (r *reader) readZonesAt(in *os.Root, id string) error {
	if r.visited++; r.visited > maxEntries {
		return errTooMany
	}
	dir, err := openDirectory(in, id)
	if err != nil {
		return cause(err)
	}
	defer func() { _ = dir.Close() }()
	if id == controlType {
		return r.readZonesIn(dir, "")
	}
	if err := r.readZone(dir, id); err != nil {
		return err
	}
	if powercap.ParentOf(id) != "" {
		return nil // RAPL's zones have no grandchildren
	}
	return r.readZonesIn(dir, id)
}

// readZone adds the zone of a directory, if it counts energy.
func (r *reader) readZone(dir *os.Root, id string) error {
	z := Zone{ID: id, Parent: powercap.ParentOf(id)}
	name, named, err := r.readText(dir, nameFile)
	switch {
	case err != nil:
		return err
	case named:
		z.Name = string(name)
	case z.Parent == "": // Scaphandre
		z.Name = "package-" + strings.TrimPrefix(id, controlType+":")
	}
	var isKnown bool
	if z.Kind, isKnown = powercap.KindOf(z.Name); !isKnown || r.want != nil && !r.want(z.Kind) {
		return nil
	}
	limit, _, err := r.readNumber(dir, rangeFile)
	if err != nil {
		return err
	}
	energy, counts, err := r.readNumber(dir, energyFile)
	if err != nil || !counts {
		return err
	}
	if len(r.next.Zones) == maxZones {
		return errTooMany
	}
	z.Range, z.Energy = units.Energy(limit), units.Energy(energy)
	r.next.Zones = append(r.next.Zones, z)
	return nil
}

// has reports whether a zone was read.
func (r *reader) has(id string) bool {
	return slices.ContainsFunc(r.next.Zones, func(z Zone) bool { return z.ID == id })
}

// controlType is the prefix of zone IDs. Zones of other control types repeat the same zones, or
// estimate.
const controlType = "intel-rapl"

// isZoneID reports whether a name is that of a zone or subzone: intel-rapl:0:1.
func isZoneID(name string) bool {
	rest, ok := strings.CutPrefix(name, controlType+":")
	zone, subzone, nested := strings.Cut(rest, ":")
	return ok && isShortNumber(zone) && (!nested || isShortNumber(subzone))
}

func isShortNumber(s string) bool {
	return s != "" && len(s) <= 4 && strings.Trim(s, "0123456789") == ""
}

// list returns the names in a directory, without those of symbolic links to subzones: they repeat
// what is in the parents.
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

// readEpoch returns the epoch of a tree with generations.
func (r *reader) readEpoch(root *os.Root) (string, error) {
	text, _, err := r.readText(root, epochFile)
	if err != nil {
		return "", err
	}
	epoch := string(text)
	if !safeName(epoch) {
		return "", fmt.Errorf("epoch: %w", errNoWord)
	}
	return epoch, nil
}

// readNumber returns the number in a file, and reports whether there is the file. A file without a
// text is being written in place.
func (r *reader) readNumber(dir *os.Root, name string) (number uint64, there bool, err error) {
	text, there, err := r.readText(dir, name)
	switch {
	case err != nil || !there:
		return 0, there, err
	case len(text) == 0:
		return 0, true, errHalfWritten
	}
	if number, err = kernfs.ParseUint(text); err != nil {
		return 0, true, fmt.Errorf("%s: %w", name, err)
	}
	return number, true, nil
}

// readText returns the text of a small file without the end of its line, and reports whether there is the file.
func (r *reader) readText(dir *os.Root, name string) (text []byte, there bool, err error) {
	text, err = r.readFile(dir, name)
	if kernfs.FaultsInjected() {
		text, err = kernfs.Result(path.Join(r.path, filepath.Base(dir.Name()), name), text, err)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	case err != nil:
		return nil, true, fmt.Errorf("%s: %w", name, cause(err))
	}
	line, ended := bytes.CutSuffix(text, []byte("\n"))
	if r.lines && !ended {
		return nil, true, errHalfWritten
	}
	return line, true, nil
}

func (r *reader) readFile(dir *os.Root, name string) ([]byte, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // to open a pipe would wait for a writer
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errNotRegular
	}
	if at := info.ModTime(); at.After(r.modified) {
		r.modified = at
	}
	n, err := f.Read(r.buf[:])
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case n > maxFile:
		return nil, errTooLong
	}
	return r.buf[:n], nil
}
