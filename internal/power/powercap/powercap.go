// SPDX-License-Identifier: Apache-2.0

// Package powercap reads RAPL, the energy counters of Intel and AMD CPUs, through the kernel's powercap interface
// (Documentation/power/powercap/powercap.rst).
package powercap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	classDir = "sys/class/powercap"
	// How much sample time may pass until zones that appeared or vanished are looked for, and how much
	// while something fails.
	discoverEvery = 10 * time.Second
	retryEvery    = time.Second
)

// Meter is the power.Meter of powercap's zones: energy_uj in microjoules, which wraps at max_energy_range_uj. Counters
// are mode 0400, readable by root or with CAP_DAC_READ_SEARCH.
//
// A zone once seen stays known. While it cannot be read its Reading says why and keeps its Total; the
// next good read adds what was missed, as far as its counter shows it. Only a zone whose place was taken
// by another (its ID has a new name, or it turned out to be a repeat) is forgotten.
//
// The zero Meter is not usable; call New.
type Meter struct {
	root  string
	dir   string
	want  func(power.Kind) bool
	open  func(path string) (*os.File, error)
	zones []*zone // sorted by ID, aligned with readings

	names    map[string]string // qualified names by ID, of every zone ever seen
	readings []power.Reading
	buf      [32]byte  // 20 digits and a newline, with room to see what is too long
	listed   time.Time // sample time of the last discovery
	unlisted error     // what that failed with
	fresh    bool      // discovered since the last Read
	again    bool      // something began to fail: discover at the next Read
	failing  bool      // a zone could not be read at the last Read
	closed   bool
}

// zone is a known zone and its counter.
type zone struct {
	power.Zone
	qualified string // own name after the parents', unique within a control type
	file      kernfs.File
	counter   *power.Counter
	at        time.Time
	failed    time.Time // when it last could not be read
}

// New returns a meter for the zones below root, "/" or where the host's root is mounted. want reports whether zones of
// the kind are to be read; nil means all. New touches nothing.
func New(root string, want func(power.Kind) bool) *Meter {
	if want == nil {
		want = func(power.Kind) bool { return true }
	}
	return &Meter{
		root:  root,
		dir:   filepath.Join(root, classDir),
		want:  want,
		open:  os.Open,
		names: make(map[string]string),
		again: true,
	}
}

// SoonestWrap returns how soon a known zone's counter can wrap at the highest power that the zone can have,
// 0 where no range is known, or none that is real.
func (m *Meter) SoonestWrap() time.Duration {
	var soonest time.Duration
	for _, z := range m.zones {
		if after := z.counter.WrapsAfter(); after > 0 && (soonest == 0 || after < soonest) {
			soonest = after
		}
	}
	return soonest
}

// Read reads the known zones, those that failed before too. It discovers them at first, after a read in
// which a zone began to fail, and every 10 s of sample time, or every second as long as anything fails. It
// returns an error, that of the last discovery, only if no zone could be read because of it; after Close it
// returns fs.ErrClosed. A read without discoveries and failures makes one system call per zone and
// allocates nothing.
func (m *Meter) Read(_ context.Context, s power.Sample) ([]power.Reading, error) {
	if m.closed {
		return nil, fmt.Errorf("powercap meter: %w", fs.ErrClosed)
	}
	m.rediscover(s.At)
	good := false
	m.failing = false
	for i, z := range m.zones {
		r := &m.readings[i]
		*r = power.Reading{Zone: &z.Zone, Total: z.counter.Total(), At: z.at}
		var raw units.Energy
		if raw, r.Err = m.readZone(z); r.Err != nil {
			m.failing = true
			// It fails for the first time in a while: what is there may not be what was there.
			m.again = m.again || s.At.Sub(z.failed) >= retryEvery
			z.failed = s.At
			continue
		}
		good = true
		z.at = s.At
		_, r.Event = z.counter.Add(raw, s.At)
		r.Total, r.At = z.counter.Total(), s.At
	}
	if good {
		return m.readings, nil
	}
	return m.readings, m.unlisted
}

// rediscover discovers zones if that is due at the sample time.
func (m *Meter) rediscover(at time.Time) {
	switch {
	case m.again || !m.fresh && at.Sub(m.listed) >= m.discoverEvery():
		_, m.unlisted = m.Discover()
		// A directory that cannot be listed costs one system call: that is tried at every read.
		m.again = m.unlisted != nil && !errors.Is(m.unlisted, power.ErrNoZones)
		m.listed = at
	case m.fresh:
		m.listed = at
	}
	m.fresh = false
}

// discoverEvery returns how much sample time may pass until the next discovery. One of all zones takes some
// hundred system calls: too many for a hundred reads a second with a counter that nobody may read.
func (m *Meter) discoverEvery() time.Duration {
	if m.failing || m.unlisted != nil {
		return retryEvery
	}
	return discoverEvery
}

// readZone returns the raw counter. A sysfs attribute fails with ENODEV once its zone was unregistered.
func (m *Meter) readZone(z *zone) (units.Energy, error) {
	text, err := z.file.Read(m.buf[:])
	if err != nil {
		return 0, fmt.Errorf("powercap zone %s: %w", z.ID, err)
	}
	raw, err := kernfs.ParseUintLine(text)
	if err != nil {
		z.closeFile()
		return 0, fmt.Errorf("powercap zone %s: %s: %w", z.ID, z.file.Path, err)
	}
	return units.Energy(raw), nil
}

// closeFile makes the next read open the counter again.
func (z *zone) closeFile() { _ = z.file.Close() } // opened for reading: nothing can be lost

// Close closes the counters. It may be called again; Read may not.
func (m *Meter) Close() error {
	m.closed = true
	var errs []error
	for _, z := range m.zones {
		errs = append(errs, z.file.Close())
	}
	return errors.Join(errs...)
}
