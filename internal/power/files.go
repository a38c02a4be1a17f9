// SPDX-License-Identifier: Apache-2.0

package power

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	// How much sample time may pass until zones that appeared or vanished are looked for, and how much
	// while something fails.
	discoverEvery = 10 * time.Second
	retryEvery    = time.Second
	// longestPause is the longest time between two discoveries of a meter without zones.
	longestPause = time.Minute
)

// Absence measures how long the discoveries of a meter have found no zone.
type Absence struct{ first, last time.Time }

// Note records a discovery at a sample time, and whether a zone was found.
func (a *Absence) Note(at time.Time, found bool) {
	if a.last = at; found || a.first.IsZero() {
		a.first = at
	}
}

// Pause returns the time from the last discovery to the next: as long as no zone was found, at
// least a second and at most a minute. So a driver that is loaded during boot is found soon, and a
// machine without the meter is searched once a minute.
func (a *Absence) Pause() time.Duration {
	return min(max(a.last.Sub(a.first), retryEvery), longestPause)
}

// CounterFile is a zone whose energy counter is the number in a small file of the kernel.
type CounterFile struct {
	Zone
	File    kernfs.File
	Counter *Counter

	raw    units.Energy // what the last read found
	err    error        // or failed with
	at     time.Time    // of the last good read
	failed time.Time    // when it last could not be read
	closed error        // why the last search could not open the file
}

// CloseFile closes the counter. The next read opens it again, or the next search; see CounterFiles.
func (z *CounterFile) CloseFile() { _ = z.File.Close() } // opened for reading: nothing can be lost

// TakeOver adopts the result of a discovery. It calls SetZones with all zones that are then known,
// on the goroutine that calls Read. The error is the reason why the discovery found no zone.
type TakeOver func() error

// CounterFiles is the common part of meters whose counters are files. It reads the zones, and
// decides when the meter looks for zones.
//
// A zone once known stays known until the meter leaves it out. While it cannot be read its Reading
// says why and keeps its Total; the next good read adds what was missed, as far as its counter
// shows it.
//
// Below a root directory with a sysfs, another goroutine discovers zones and opens files, because
// any user can block both (kernfs.Search). Read waits for it for up to a second once, and reads the
// open files meanwhile. A closed file is then opened by the next discovery; below other root
// directories, by the next read.
//
// Set Meter, Search and Discover. A CounterFiles is not safe for concurrent use.
type CounterFiles struct {
	Meter string // its name, for errors
	// Search configures where Discover looks.
	Search kernfs.Search[TakeOver]
	// Discover looks for zones. Read and Close may run meanwhile, but no other Discover, and no TakeOver.
	Discover func() TakeOver
	// Files are other files that the meter reads. They are opened together with the files of the zones.
	Files []*kernfs.File
	// Patience is how much sample time passes between discoveries as long as nothing that was found
	// fails. 0 means 10 s, Absence.Pause while there is no zone, and no pause while the meter's
	// directory cannot be listed.
	Patience time.Duration
	// Missing reports that a zone which the meter reads by other means has vanished. Zones are then
	// discovered as if one of the files had failed.
	Missing bool
	// Parse returns the energy in a counter's text. nil means that it is a number of microjoules.
	Parse func(text []byte) (units.Energy, error)
	// Torn reports whether counters changed while all were read: then they are read again, up to
	// three times. nil means no.
	Torn func() bool

	zones        []*CounterFile
	readings     []Reading // of zones
	buf          [64]byte  // 20 digits, a unit, a time and a newline, with room to see what is too long
	started      bool
	discovered   time.Time // sample time of the last discovery
	absence      Absence
	opener       kernfs.Search[[]opened]
	undiscovered error // what that failed with
	due          bool  // something began to fail: discover at the next Read
	failing      bool  // a zone could not be read at the last Read
	closed       bool
}

// SetZones replaces the known zones, in the order in which they are read.
func (f *CounterFiles) SetZones(zones []*CounterFile) {
	f.zones, f.readings = zones, make([]Reading, len(zones))
}

// Read reads the known zones, including zones that failed before. It discovers zones at the first
// read, after a read in which a zone began to fail, and every 10 s of sample time, or every second
// while a zone fails; see Patience. It returns the error of the last discovery only if no zone
// could be read because of that error, and always returns an error while a discovery hangs. After
// Close it returns fs.ErrClosed. A read without discoveries and failures makes one system call per
// zone and allocates nothing.
func (f *CounterFiles) Read(s Sample) ([]Reading, error) {
	if f.closed {
		return nil, fmt.Errorf("%s meter: %w", f.Meter, fs.ErrClosed)
	}
	at := s.At
	f.Search.Waits, f.opener.Waits = s.Waits, s.Waits
	f.rediscover(at)
	f.readZones()
	good := false
	f.failing = false
	for i, z := range f.zones {
		r := &f.readings[i]
		*r = Reading{Zone: &z.Zone, Total: z.Counter.Total(), At: z.at, Raw: z.Counter.Raw()}
		if r.Err = z.err; r.Err != nil {
			f.failing = true
			// It fails for the first time in a while: what is there may not be what was there.
			f.due = f.due || at.Sub(z.failed) >= retryEvery
			z.failed = at
			continue
		}
		good = true
		z.at = at
		_, r.Event = z.Counter.Add(z.raw, at)
		r.Total, r.At, r.Raw = z.Counter.Total(), at, z.Counter.Raw()
	}
	if err := cmp.Or(f.Search.Err(), f.opener.Err()); err != nil {
		return f.readings, fmt.Errorf("%s meter: %w", f.Meter, err)
	}
	if good {
		return f.readings, nil
	}
	return f.readings, f.undiscovered
}

// rediscover discovers zones if that is due at the sample time.
func (f *CounterFiles) rediscover(at time.Time) {
	if f.opener.Running() {
		f.open() // zones stay as they are until their files are open
		return
	}
	if f.started && !f.due && at.Sub(f.discovered) < f.discoverEvery() && !f.Search.Running() {
		return
	}
	takeOver, ok := f.Search.Run(f.Discover)
	if !ok {
		return
	}
	f.undiscovered = takeOver()
	f.open()
	// A directory that cannot be listed costs one system call: that is tried at every read, unless
	// it takes another goroutine.
	f.due = f.undiscovered != nil && !errors.Is(f.undiscovered, ErrNoZones) && f.Patience == 0 && !f.Search.IsGuarded()
	f.started, f.discovered = true, at
	f.absence.Note(at, len(f.zones) > 0)
}

// opened is a file that a search has opened, or could not open.
type opened struct {
	zone *CounterFile // nil for one of Files
	of   *kernfs.File
	file *os.File
	err  error
}

// open opens closed files, unless reads open them.
func (f *CounterFiles) open() {
	if !f.Search.IsGuarded() {
		return
	}
	find := f.findClosed()
	if find == nil && !f.opener.Running() {
		return
	}
	found, ok := f.opener.Run(find)
	if !ok {
		return
	}
	for _, o := range found {
		if o.err == nil {
			o.of.Use(o.file)
		}
		if o.zone != nil {
			o.zone.closed = o.err
		}
	}
}

// findClosed returns a function that opens the files that are closed. No path changes while it runs.
func (f *CounterFiles) findClosed() func() []opened {
	f.opener.Root, f.opener.Dir, f.opener.Always, f.opener.Drop = f.Search.Root, f.Search.Dir, f.Search.Always, closeOpened
	if f.opener.Running() {
		return nil
	}
	var closed []opened
	for _, z := range f.zones {
		if !z.File.IsOpen() {
			closed = append(closed, opened{zone: z, of: &z.File})
		}
	}
	for _, file := range f.Files {
		if !file.IsOpen() {
			closed = append(closed, opened{of: file})
		}
	}
	if len(closed) == 0 {
		return nil
	}
	return func() []opened {
		for i := range closed {
			closed[i].file, closed[i].err = closed[i].of.OpenPath()
		}
		return closed
	}
}

func closeOpened(files []opened) {
	for _, o := range files {
		if o.err == nil {
			_ = o.file.Close() // nothing was read from it
		}
	}
}

// discoverEvery returns how much sample time may pass until the next discovery. A discovery of all
// zones takes about a hundred system calls: too many at a hundred reads per second if a counter is
// not readable.
func (f *CounterFiles) discoverEvery() time.Duration {
	switch {
	case f.failing || f.Missing || f.undiscovered != nil && len(f.zones) > 0:
		return retryEvery
	case f.undiscovered != nil && f.Patience == 0:
		return f.absence.Pause()
	}
	return cmp.Or(f.Patience, discoverEvery)
}

// readZones reads the counters so that they belong together.
func (f *CounterFiles) readZones() {
	for range 3 {
		for _, z := range f.zones {
			z.raw, z.err = f.readZone(z)
		}
		if f.Torn == nil || !f.Torn() {
			return
		}
	}
}

// readZone returns the raw counter. An attribute of sysfs fails with ENODEV once its device was unregistered.
func (f *CounterFiles) readZone(z *CounterFile) (units.Energy, error) {
	if !z.File.IsOpen() && f.Search.IsGuarded() {
		return 0, fmt.Errorf("%s zone %s: %w", f.Meter, z.ID, cmp.Or(z.closed, errNotOpen))
	}
	text, err := z.File.Read(f.buf[:])
	if err != nil {
		return 0, fmt.Errorf("%s zone %s: %w", f.Meter, z.ID, err)
	}
	raw, err := f.parse(text)
	if err != nil {
		z.CloseFile()
		return 0, fmt.Errorf("%s zone %s: %s: %w", f.Meter, z.ID, z.File.Path, err)
	}
	return raw, nil
}

var errNotOpen = errors.New("its file is not open yet")

func (f *CounterFiles) parse(text []byte) (units.Energy, error) {
	if f.Parse != nil {
		return f.Parse(text)
	}
	raw, err := kernfs.ParseUintLine(text)
	return units.Energy(raw), err
}

// Close closes the counters. It may be called again; Read may not.
func (f *CounterFiles) Close() error {
	f.closed = true
	f.Search.Close()
	f.opener.Close()
	var errs []error
	for _, z := range f.zones {
		errs = append(errs, z.File.Close())
	}
	return errors.Join(errs...)
}
