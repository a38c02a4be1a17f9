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

// CounterFile is a zone that a discovery found. Its energy counter is the number in a small file of
// the kernel.
type CounterFile struct {
	Zone
	Path string
	// Info is the result of os.Stat for Path, or nil. It detects that the file was replaced.
	Info os.FileInfo
	// Range is the energy in µJ after which the counter restarts at 0. If it is 0, the zone keeps its
	// previous range.
	Range units.Energy
}

// Files is a Source whose counters are files. It opens and reads the files. The function Find of
// its Discovery passes the zones that it finds to Merge.
//
// A zone is kept after it was found. While it cannot be read, it has an error.
//
// If the root directory contains a sysfs, the goroutine of the Search opens the files, because any
// user can block an open. Answer waits up to a second for a blocked open, and then reads only the
// open files. A closed file is opened again by the next discovery. Below other root
// directories, a closed file is opened again by the next read.
//
// Set the fields of Discovery before the first Answer. A Files is not safe for concurrent use.
type Files struct {
	Discovery
	// More contains other files that the meter reads. They are opened together with the counters.
	More []*kernfs.File
	// Parse returns the energy in the text of a counter. If Parse is nil, the text is a number of
	// microjoules.
	Parse func(text []byte) (units.Energy, error)
	// Torn reports whether counters were updated during a read of all counters. The counters are then
	// read again, at most three times in total. If Torn is nil, they are read once.
	Torn func() bool

	zones   []*counterFile
	shown   []Shown
	buf     [64]byte                            // larger than any valid text (20 digits, a unit, a time and a newline)
	open    func(path string) (*os.File, error) // nil except in tests
	opening bool                                // the Search opens files, and does not search
}

// counterFile is a zone with its file.
type counterFile struct {
	file   kernfs.File
	shown  Shown // result of the last read
	closed error // the reason why the last search could not open the file
}

func (z *counterFile) close() { _ = z.file.Close() } // read only: no data can be lost

// Merge adds the found zones. If the properties of a zone changed, it is a new zone. If several
// zones have the same ID, only the first is added. left is called for each previous zone that was
// not found. It reports whether the zone stays, and whether its file stays open. If left is nil,
// the zone stays and its file is closed.
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
			z.close() // the descriptor of a deleted plain file would continue to return the last value
		}
		if stays {
			f.zones = append(f.zones, z)
		}
	}
	slices.SortFunc(f.zones, func(a, b *counterFile) int { return CompareIDs(a.shown.Zone.ID, b.shown.Zone.ID) })
}

// update returns z with the path and range of c, or a new zone if z is nil or its properties
// changed.
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

// Answer reads all zones, and discovers zones if a discovery is due. Without a discovery or
// failure, it makes one system call per zone and does not allocate.
func (f *Files) Answer(_ context.Context, s Sample) (Answer, error) {
	opening := f.opening // Run takes over the files. If one cannot be opened, the next discovery opens it again
	if f.Run(s, len(f.zones)) && !opening && f.Search.IsGuarded() {
		f.openClosed()
	}
	f.readZones()
	f.shown = f.shown[:0]
	good, failing := false, false
	for _, z := range f.zones {
		f.shown = append(f.shown, z.shown)
		good, failing = good || z.shown.Err == nil, failing || z.shown.Err != nil
	}
	return Answer{Shown: f.shown}, f.Note(s.At, good, failing)
}

// readZones reads all counters. It repeats the read if counters were updated during the read
// (Torn).
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

// read returns the energy in the file of a counter. A read from sysfs fails with ENODEV after the
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
	zone *counterFile // nil for a file in More
	of   *kernfs.File
	file *os.File
	err  error
}

// openClosed opens the closed files on the goroutine of the Search. If this takes too long, a later
// Discovery.Run takes over the files, and no discovery runs until then. If the meter has been
// closed since, the files are closed.
func (f *Files) openClosed() {
	closed := f.findClosed()
	if len(closed) == 0 {
		return
	}
	f.opening = true
	f.Search.Drop = func(func() error) {
		for _, o := range closed {
			if o.err == nil {
				_ = o.file.Close() // read only: no data can be lost
			}
		}
	}
	use, ok := f.Search.Run(func() func() error { // the paths do not change while it runs
		for i := range closed {
			closed[i].file, closed[i].err = closed[i].of.OpenPath()
		}
		return func() error { return f.use(closed) }
	})
	if ok {
		_ = use() // Answer reports the error of the last discovery
	}
}

// use takes over opened files, and returns the error of the last discovery.
func (f *Files) use(all []opened) error {
	f.opening, f.Search.Drop = false, nil
	for _, o := range all {
		if o.err == nil {
			o.of.Use(o.file)
		}
		if o.zone != nil {
			o.zone.closed = o.err
		}
	}
	return f.err
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

// Close closes all files.
func (f *Files) Close() error {
	f.Search.Close()
	var errs []error
	for _, z := range f.zones {
		errs = append(errs, z.file.Close())
	}
	for _, file := range f.More {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}
