// SPDX-License-Identifier: Apache-2.0

// Package perf reads RAPL, the energy counters of Intel and AMD CPUs, through the perf events of
// the kernel's power PMU (arch/x86/events/rapl.c). These are the counters that powercap reads.
// Unlike powercap, perf requires CAP_PERFMON instead of access to files that only root can read,
// and it works in containers, which mask the directory of powercap.
package perf

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// source is the power.Source of the power PMU's events. Their counters have 64 bits in units of
// 2^-32 J: the kernel absorbs the wraps of the registers.
//
// A zone is an event on one package, or on one die if the PMU counts dies. "power:energy-pkg:0" is
// energy-pkg on package 0, and "power:energy-pkg:0:1" is energy-pkg on its die 1. On AMD, the
// power_core PMU counts each core separately. If zones of cores are wanted and the power PMU does
// not count cores, the zone "power_core:energy-core:0" is the sum over the cores of package 0.
//
// A zone is kept after it was found. The exception is the zone of a package that proves to cover
// only one of several dies, because the other dies were offline. The kernel moves a counter to
// another CPU of its package or core when its CPU goes offline, so counters stay open while they
// count.
type source struct {
	power.Discovery
	root   string
	want   func(power.Kind) bool
	kernel kernel

	zones  []*zone // sorted by ID
	groups []*group
	shown  []power.Shown
	byDie  bool // the PMU has separate counters for each die of a package

	masks   string     // result of readMasks in the last discovery, or empty if the discovery found no zone
	settled bool       // that discovery read all files, with the same masks as the previous discovery
	buf     [4096]byte // scratch buffer of find, for files of sysfs, which have at most a page
}

const (
	// openEvery is the sample time between two attempts to open counters.
	openEvery = time.Second
	// registerRange is the smallest range of a socket's registers: 2^32 units of 2^-16 J. The
	// kernel misses a wrap if a register wraps twice between reads. Its own timer suffices up to
	// 400 W (arch/x86/events/rapl.c, rapl_check_hw_unit).
	registerRange = 65_536 * units.Joule
)

// zone is a zone that was found.
type zone struct {
	power.Zone
	energy  units.Energy // energy that the events of the zone have counted; it may wrap
	offline bool         // no group has an event of the zone
	err     error        // error of the current read
}

// New returns a meter for the CPUs whose files are below root: "/" or the mount point of the host's
// root. The files must belong to the running kernel. want reports whether to read zones of a kind.
// If want is nil, all zones are read. New does not read files.
//
// The error of Read is fs.ErrNotExist if there is no power PMU, and power.ErrNoZones if it has no
// usable event, if its only event never counts, or if the files below root belong to another
// kernel. A missing permission is an error of the zones.
func New(root string, want func(power.Kind) bool) power.Meter {
	return power.Direct("perf", newSource(root, want, linux{}))
}

func newSource(root string, want func(power.Kind) bool, kernel kernel) *source {
	if want == nil {
		want = func(power.Kind) bool { return true }
	}
	s := &source{root: root, want: want, kernel: kernel}
	s.Meter, s.Search.Root, s.Search.Dir, s.Find = "perf", root, filepath.Join(root, "sys/devices"), s.find
	return s
}

// Answer reads the zones with one system call for each CPU that the PMU counts on.
func (s *source) Answer(_ context.Context, now power.Sample) (power.Answer, error) {
	s.Run(now, len(s.zones))
	for _, z := range s.zones {
		z.err = nil
	}
	for _, g := range s.groups {
		if err := g.read(s.kernel, now.At); err != nil {
			g.fail(err)
		}
	}
	s.shown = s.shown[:0]
	good, failing := false, false
	for _, z := range s.zones {
		shown := z.show()
		good, failing = good || shown.Err == nil, failing || shown.Err != nil
		if shown.Err != nil || z.counts() {
			s.shown = append(s.shown, shown)
		}
	}
	err := s.Note(now.At, good, failing)
	if err == nil && good && len(s.shown) == 0 {
		err = errStill
	}
	return power.Answer{Shown: s.shown}, err
}

// errStill is returned if the only event is psys and it never counts, as on some virtual machines.
var errStill = fmt.Errorf("perf: %w in the power PMU: psys does not count", power.ErrNoZones)

var errOffline = errors.New("no CPU that counts it is online")

// show returns the zone's energy.
func (z *zone) show() power.Shown {
	shown := power.Shown{Zone: &z.Zone, Counter: z.energy, Transient: true}
	if z.Kind != power.PSys {
		shown.Range = registerRange
	}
	if z.offline {
		z.err = errOffline
	}
	if z.err != nil {
		shown.Err = fmt.Errorf("perf zone %s: %w", z.ID, z.err)
	}
	return shown
}

// counts reports whether the zone has a working counter. The event of psys exists on every server
// of its CPU family, even without a sensor (arch/x86/events/rapl.c, intel_rapl_spr_msrs), and
// counts on only one package. Its zone exists after the first increase.
func (z *zone) counts() bool { return z.Kind != power.PSys || z.energy > 0 }

// Close closes the counters.
func (s *source) Close() error {
	s.Search.Close()
	var errs []error
	for _, g := range s.groups {
		errs = append(errs, g.close())
	}
	s.groups = nil
	return errors.Join(errs...)
}
