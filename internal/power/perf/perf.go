// SPDX-License-Identifier: Apache-2.0

// Package perf reads RAPL, the energy counters of Intel and AMD CPUs, through the perf events of
// the kernel's power PMU (arch/x86/events/rapl.c). It is another way to the counters that powercap
// reads: it needs CAP_PERFMON instead of files that only root may read, and it works in a
// container, where powercap's directory is masked.
package perf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Meter is the power.Meter of the power PMU's events. Their counters have 64 bits in units of 2^-32
// J: the kernel absorbs the wraps of the registers.
//
// A zone is an event on one package, or on one die where the PMU counts dies: "power:energy-pkg:0"
// is energy-pkg on package 0, "power:energy-pkg:0:1" on its die 1. Where cores are wanted and only
// the power_core PMU counts them (AMD, each core by itself), the zone "power_core:energy-core:0" is
// the sum over the cores of package 0.
//
// A zone once seen stays known, unless it turns out to be that of a die. The kernel moves a counter
// to another CPU of its package or core when its CPU goes offline, so counters stay open for as
// long as they count.
//
// The zero Meter is not usable; call New.
type Meter struct {
	root   string
	want   func(power.Kind) bool
	kernel kernel

	zones    []*zone // sorted by ID
	groups   []*group
	readings []power.Reading
	byDie    bool // packages have several dies with counters of their own

	search       kernfs.Search[power.TakeOver]
	started      bool
	discovered   time.Time // sample time of the last discovery
	absence      power.Absence
	undiscovered error // what that failed with
	due          bool  // something began to fail: discover at the next Read
	failing      bool  // a zone could not be read at the last Read
	closed       bool
}

const (
	// How much sample time may pass until zones that appeared or vanished are looked for, and how
	// much while something fails.
	discoverEvery = 10 * time.Second
	retryEvery    = time.Second
	// registerRange is the smallest range of a socket's registers: 2^32 units of 2^-16 J. The kernel
	// misses a wrap if a register wraps twice between reads. Its own timer suffices up to 400 W
	// (arch/x86/events/rapl.c, rapl_check_hw_unit).
	registerRange = 65_536 * units.Joule
)

// zone is a known zone and its counter.
type zone struct {
	power.Zone
	counter *power.Counter
	energy  units.Energy // that its events have counted; it may wrap
	groups  int          // how many have an event of it
	at      time.Time    // of the last good read
	err     error        // of the current read
}

// New returns a meter for the CPUs whose files are below root, "/" or where the host's root is
// mounted. It counts nothing unless these are of the kernel that it runs on. want reports whether
// zones of the kind are to be read; nil means all. New touches nothing.
func New(root string, want func(power.Kind) bool) *Meter {
	if want == nil {
		want = func(power.Kind) bool { return true }
	}
	return &Meter{
		root: root, want: want, kernel: linux{},
		search: kernfs.Search[power.TakeOver]{Root: root, Dir: filepath.Join(root, "sys/devices")},
	}
}

// Read reads the known zones with one system call for each CPU that the PMU counts on. It looks for
// zones at first, after a read in which one began to fail, and every 10 s of sample time. The
// interval is a second while a zone fails, and power.Absence.Pause while there is no zone.
//
// The error is fs.ErrNotExist where there is no power PMU, and power.ErrNoZones where it has no
// event to use, where its only event counts nothing, or where the files below root are of another
// kernel. A missing permission is an error of the zones. Where any user can block a discovery, Read
// waits for it like a power.CounterFiles.
func (m *Meter) Read(_ context.Context, s power.Sample) ([]power.Reading, error) {
	if m.closed {
		return nil, fmt.Errorf("perf meter: %w", fs.ErrClosed)
	}
	m.search.Waits = s.Waits
	m.rediscover(s.At)
	for _, z := range m.zones {
		z.err = nil
	}
	for _, g := range m.groups {
		if err := g.read(m.kernel, s.At); err != nil {
			m.due = m.due || !m.failing
			g.fail(err)
		}
	}
	m.readings, m.failing = m.readings[:0], false
	good := false
	for _, z := range m.zones {
		r := z.reading(s.At)
		m.failing = m.failing || r.Err != nil
		good = good || r.Err == nil
		if r.Err != nil || z.counts() {
			m.readings = append(m.readings, r)
		}
	}
	if err := m.search.Err(); err != nil {
		return m.readings, fmt.Errorf("perf meter: %w", err)
	}
	switch {
	case good && len(m.readings) == 0:
		return nil, errStill
	case good:
		return m.readings, nil
	}
	return m.readings, m.undiscovered
}

// errStill is returned if the only event is psys and it never counts, as on some virtual machines.
var errStill = fmt.Errorf("perf: %w in the power PMU: psys counts nothing", power.ErrNoZones)

var errOffline = errors.New("no CPU that counts it is online")

// reading takes the zone's energy at the sample time.
func (z *zone) reading(at time.Time) power.Reading {
	r := power.Reading{Zone: &z.Zone}
	switch {
	case z.groups == 0:
		r.Err = fmt.Errorf("perf zone %s: %w", z.ID, errOffline)
	case z.err != nil:
		r.Err = fmt.Errorf("perf zone %s: %w", z.ID, z.err)
	default:
		_, r.Event = z.counter.Add(z.energy, at)
		z.at = at
	}
	r.Total, r.At, r.Raw = z.counter.Total(), z.at, power.Raw{Range: registerRange, MaxWatts: power.MaxSocketWatts}
	return r
}

// counts reports whether the zone's counter is real. The event of psys is there on every server of
// its family, with or without a sensor (arch/x86/events/rapl.c, intel_rapl_spr_msrs), and counts on
// one package only. Its zone is one when it moves.
func (z *zone) counts() bool { return z.Kind != power.PSys || z.energy > 0 }

// rediscover discovers zones if that is due at the sample time.
func (m *Meter) rediscover(at time.Time) {
	pause := discoverEvery
	switch {
	case m.failing || m.undiscovered != nil && len(m.zones) > 0:
		pause = retryEvery
	case m.undiscovered != nil:
		pause = m.absence.Pause()
	}
	if m.started && !m.due && at.Sub(m.discovered) < pause && !m.search.Running() {
		return
	}
	takeOver, ok := m.search.Run(m.discover)
	if !ok {
		return
	}
	m.undiscovered = takeOver()
	m.started, m.due, m.discovered = true, false, at
	m.absence.Note(at, len(m.zones) > 0)
}

// Close closes the counters. It may be called again; Read may not.
func (m *Meter) Close() error {
	m.closed = true
	m.search.Close()
	var errs []error
	for _, g := range m.groups {
		errs = append(errs, g.close())
	}
	m.groups = nil
	return errors.Join(errs...)
}
