// SPDX-License-Identifier: Apache-2.0

// Package powercap reads RAPL, the energy counters of Intel and AMD CPUs, through the kernel's powercap interface
// (Documentation/power/powercap/powercap.rst).
package powercap

import (
	"context"
	"os"
	"path/filepath"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// Meter is the power.Meter of powercap's zones: energy_uj in microjoules, which wraps at max_energy_range_uj. Counters
// are mode 0400, readable by root or with CAP_DAC_READ_SEARCH.
//
// A zone once seen stays known. Only a zone whose place was taken by another (its ID has a new
// name, or it turned out to be a repeat) is forgotten.
//
// The zero Meter is not usable; call New.
type Meter struct {
	root  string
	dir   string
	want  func(power.Kind) bool
	open  func(path string) (*os.File, error)
	files power.CounterFiles
	zones []*zone           // sorted by ID
	names map[string]string // qualified names by ID, of every zone ever seen
}

// zone is a known zone and its counter.
type zone struct {
	power.CounterFile
	qualified string // own name after the parents', unique within a control type
}

// New returns a meter for the zones below root, "/" or where the host's root is mounted. want reports whether zones of
// the kind are to be read; nil means all. New touches nothing.
func New(root string, want func(power.Kind) bool) *Meter {
	if want == nil {
		want = func(power.Kind) bool { return true }
	}
	m := &Meter{
		root:  root,
		dir:   filepath.Join(root, "sys/class/powercap"),
		want:  want,
		open:  os.Open,
		names: make(map[string]string),
	}
	m.files.Meter = "powercap"
	m.files.Search.Root, m.files.Search.Dir = root, m.dir
	m.files.Discover = m.discover
	return m
}

// Read reads the known zones, and discovers them when that is due; see power.CounterFiles. The error is fs.ErrNotExist
// where there is no powercap interface, and power.ErrNoZones where it has no zone to use.
func (m *Meter) Read(_ context.Context, s power.Sample) ([]power.Reading, error) {
	return m.files.Read(s)
}

// Close closes the counters. It may be called again; Read may not.
func (m *Meter) Close() error { return m.files.Close() }
