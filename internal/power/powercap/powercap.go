// SPDX-License-Identifier: Apache-2.0

// Package powercap reads RAPL, the energy counters of Intel and AMD CPUs, through the kernel's
// powercap interface (Documentation/power/powercap/powercap.rst).
package powercap

import (
	"path/filepath"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// source is the power.Source of powercap's zones: energy_uj in microjoules, which wraps at
// max_energy_range_uj. Counters are mode 0400, readable by root or with CAP_DAC_READ_SEARCH.
//
// A zone is kept after it was found. It is removed only if another zone replaces it: its ID has a
// new name, or its counter proves to be the counter of another zone.
type source struct {
	power.Files
	root  string
	dir   string
	want  func(power.Kind) bool
	buf   [256]byte         // scratch buffer of find
	names map[string]string // qualified names (parent and own name) of all zones that were found, by ID
}

// New returns a meter for the powercap zones of the host whose root directory is root. want reports
// whether to read zones of a kind. If want is nil, all zones are read. New does not read files.
//
// The error of Read is fs.ErrNotExist if there is no powercap interface, and power.ErrNoZones if it
// has no zone to use.
func New(root string, want func(power.Kind) bool) power.Meter {
	return power.Direct("powercap", newSource(root, want))
}

func newSource(root string, want func(power.Kind) bool) *source {
	if want == nil {
		want = func(power.Kind) bool { return true }
	}
	s := &source{root: root, dir: filepath.Join(root, "sys/class/powercap"), want: want, names: make(map[string]string)}
	s.Meter, s.Search.Root, s.Search.Dir, s.Find = "powercap", root, s.dir, s.find
	return s
}
