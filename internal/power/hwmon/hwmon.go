// SPDX-License-Identifier: Apache-2.0

// Package hwmon reads energy counters of the kernel's hardware monitoring drivers: energyN_input, in microjoules
// (Documentation/hwmon/sysfs-interface.rst). It uses those whose meaning it knows; the table of drivers says which.
package hwmon

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// Meter is the power.Meter of hwmon's energy counters.
//
// A zone is known by its device and its label, and not by the number of its hwmon directory, which changes when the
// driver is loaded again. A zone once seen stays known.
//
// The zero Meter is not usable; call New.
type Meter struct {
	root   string
	class  string
	want   func(power.Kind) bool
	open   func(path string) (*os.File, error)
	files  power.CounterFiles
	zones  map[string]*power.CounterFile // by ID
	unused []string
}

// searchEvery is how often a first zone is looked for. Most machines have none, and ten chips with other sensors.
const searchEvery = time.Minute

// New returns a meter for the zones below root, "/" or where the host's root is mounted. want reports whether zones of
// the kind are to be read; nil means all. New touches nothing.
func New(root string, want func(power.Kind) bool) *Meter {
	if want == nil {
		want = func(power.Kind) bool { return true }
	}
	m := &Meter{
		root:  root,
		class: filepath.Join(root, "sys/class/hwmon"),
		want:  want,
		open:  os.Open,
		zones: make(map[string]*power.CounterFile),
	}
	m.files.Meter, m.files.Discover, m.files.Patience = "hwmon", m.discover, searchEvery
	return m
}

// Read reads the known zones, and discovers them when that is due; see power.CounterFiles. The error is fs.ErrNotExist
// where there is no hwmon interface, and power.ErrNoZones where it has no zone to use.
func (m *Meter) Read(_ context.Context, s power.Sample) ([]power.Reading, error) {
	return m.files.Read(s.At)
}

// SoonestWrap returns how soon a known zone's counter can wrap, 0 where no range is known.
func (m *Meter) SoonestWrap() time.Duration { return m.files.SoonestWrap() }

// Unused lists the energy counters that the last discovery found and whose meaning is not known: "xe energy1".
func (m *Meter) Unused() []string { return m.unused }

// Close closes the counters. It may be called again; Read may not.
func (m *Meter) Close() error { return m.files.Close() }
