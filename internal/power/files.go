// SPDX-License-Identifier: Apache-2.0

package power

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// CounterFile is a zone whose energy counter is the number in a small file of the kernel, as a
// discovery found it.
type CounterFile struct {
	Zone
	Path string
	// Info describes the file at Path, or is nil.
	Info os.FileInfo
	// Range is the energy after which the counter begins at 0. If it is 0, the zone keeps the range
	// that it had.
	Range units.Energy
}

// Files is a Source of counters that are files. It reads the zones and opens their files; its
// Discovery calls Merge.
//
// A zone that was found stays. While it cannot be read, it shows why.
//
// Below a root directory with a sysfs, another goroutine opens files, because any user can block
// that (kernfs.Search). Answer waits for it for up to a second once, and reads the open files
// meanwhile. A closed file is then opened by the next discovery; below other root directories, by
// the next read.
//
// Set the fields of Discovery. A Files is not safe for concurrent use.
type Files struct {
	Discovery
	// More are other files that the meter reads. They are opened together with the counters.
	More []*kernfs.File
	// Parse returns the energy in a counter's text. nil means that it is a number of microjoules.
	Parse func(text []byte) (units.Energy, error)
	// Torn reports whether counters changed while all were read: then they are read again, up to
	// three times. nil means no.
	Torn func() bool

	zones  []*counterFile
	shown  []Shown
	buf    [64]byte // 20 digits, a unit, a time and a newline, with room to see what is too long
	opener kernfs.Search[[]opened]
	open   func(path string) (*os.File, error) // nil except in tests
}

// counterFile is a zone with its file.
type counterFile struct {
	file   kernfs.File
	shown  Shown // result of the last read
	closed error // why the last search could not open the file
}

func (z *counterFile) close() { _ = z.file.Close() } // it was only read from

// Merge adds the found zones. A zone that was found with other properties than before is a new zone.
// Of several zones with one ID the first counts. left reports whether a zone that was found before and
// not this time stays, and whether its file may still be there. nil means that the zone stays without
// its file.
func (f *Files) Merge(found []CounterFile, left func(*Zone) (stays, open bool)) {
	known := make(map[string]*counterFile, len(f.zones))
	for _, z := range f.zones {
		known[z.shown.Zone.ID] = z
	}
	f.zones = nil
	present := make(map[string]bool, len(found))
	for i := range found {
		c := &found[i]
		if present[c.ID] {
			continue
		}
		present[c.ID] = true
		f.zones = append(f.zones, f.update(known[c.ID], c))
		delete(known, c.ID)
	}
	for _, z := range known {
		stays, open := true, false
		if left != nil {
			stays, open = left(z.shown.Zone)
		}
		if !stays || !open {
			z.close() // the descriptor of a plain file would go on giving its last value
		}
		if stays {
			f.zones = append(f.zones, z)
		}
	}
	slices.SortFunc(f.zones, func(a, b *counterFile) int { return CompareIDs(a.shown.Zone.ID, b.shown.Zone.ID) })
}

// update returns the zone of a file: z, or a new zone if z is nil or has other properties.
func (f *Files) update(z *counterFile, c *CounterFile) *counterFile {
	if z == nil || *z.shown.Zone != c.Zone {
		if z != nil {
			z.close()
		}
		z = &counterFile{file: kernfs.File{Path: c.Path, Open: f.open}, shown: Shown{Zone: &c.Zone}}
	}
	if z.file.Path != c.Path || z.file.IsOther(c.Info) {
		z.close()
		z.file.Path = c.Path
	}
	z.shown.Range = cmp.Or(c.Range, z.shown.Range)
	return z
}

// Zones yields all zones.
func (f *Files) Zones(yield func(*Zone) bool) {
	for _, z := range f.zones {
		if !yield(z.shown.Zone) {
			return
		}
	}
}

// Answer reads all zones, and discovers zones if that is due. Without discoveries and failures it
// makes one system call for each zone and does not allocate.
func (f *Files) Answer(_ context.Context, s Sample) (Answer, error) {
	f.opener.Waits = s.Waits
	if f.opener.Running() || f.Run(s, len(f.zones)) { // zones stay as they are until their files are open
		f.openClosed()
	}
	f.readZones()
	f.shown = f.shown[:0]
	good, failing := false, false
	for _, z := range f.zones {
		f.shown = append(f.shown, z.shown)
		good, failing = good || z.shown.Err == nil, failing || z.shown.Err != nil
	}
	err := f.Note(s.At, good, failing)
	if hangs := f.opener.Err(); hangs != nil {
		err = fmt.Errorf("%s meter: %w", f.Meter, hangs)
	}
	return Answer{Shown: f.shown}, err
}

// readZones reads the counters so that they belong together.
func (f *Files) readZones() {
	for range 3 {
		for _, z := range f.zones {
			if z.shown.Counter, z.shown.Err = f.read(z); z.shown.Err != nil {
				z.shown.Err = fmt.Errorf("%s zone %s: %w", f.Meter, z.shown.Zone.ID, z.shown.Err)
			}
		}
		if f.Torn == nil || len(f.zones) == 0 || !f.Torn() {
			return
		}
	}
}

var errNotOpen = errors.New("its file is not open yet")

// read returns the energy in a counter's file. An attribute of sysfs fails with ENODEV once its
// device was unregistered.
func (f *Files) read(z *counterFile) (units.Energy, error) {
	if !z.file.IsOpen() && f.Search.IsGuarded() {
		return 0, cmp.Or(z.closed, errNotOpen)
	}
	text, err := z.file.Read(f.buf[:])
	if err != nil {
		return 0, err
	}
	energy, err := f.parse(text)
	if err != nil {
		z.close()
		return 0, fmt.Errorf("%s: %w", z.file.Path, err)
	}
	return energy, nil
}

func (f *Files) parse(text []byte) (units.Energy, error) {
	if f.Parse != nil {
		return f.Parse(text)
	}
	microjoules, err := kernfs.ParseUintLine(text)
	return units.Energy(microjoules), err
}

// opened is a file that a search has opened, or could not open.
type opened struct {
	zone *counterFile // nil for one of More
	of   *kernfs.File
	file *os.File
	err  error
}

// openClosed opens closed files, unless reads open them.
func (f *Files) openClosed() {
	if !f.Search.IsGuarded() {
		return
	}
	var find func() []opened
	if !f.opener.Running() {
		f.opener.Root, f.opener.Dir, f.opener.Always, f.opener.Drop = f.Search.Root, f.Search.Dir, f.Search.Always, closeOpened
		closed := f.findClosed()
		if len(closed) == 0 {
			return
		}
		find = func() []opened { // no path changes while it runs
			for i := range closed {
				closed[i].file, closed[i].err = closed[i].of.OpenPath()
			}
			return closed
		}
	}
	found, _ := f.opener.Run(find)
	for _, o := range found {
		if o.err == nil {
			o.of.Use(o.file)
		}
		if o.zone != nil {
			o.zone.closed = o.err
		}
	}
}

func (f *Files) findClosed() (closed []opened) {
	for _, z := range f.zones {
		if !z.file.IsOpen() {
			closed = append(closed, opened{zone: z, of: &z.file})
		}
	}
	for _, file := range f.More {
		if !file.IsOpen() {
			closed = append(closed, opened{of: file})
		}
	}
	return closed
}

func closeOpened(files []opened) {
	for _, o := range files {
		if o.err == nil {
			_ = o.file.Close() // it was not read from
		}
	}
}

// Close closes all files.
func (f *Files) Close() error {
	f.Search.Close()
	f.opener.Close()
	var errs []error
	for _, z := range f.zones {
		errs = append(errs, z.file.Close())
	}
	for _, file := range f.More {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}
