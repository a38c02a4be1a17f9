// SPDX-License-Identifier: Apache-2.0

// Package cray reads the power management counters of HPE Cray EX and Cray XC nodes,
// /sys/cray/pm_counters. The node's controller measures them ten times a second, and any user can
// read them.
//
// What the files mean is described in HPE's documentation (CSM, "User Access to Compute Node Power
// Data") and in that of the centers which run such machines. The text is an energy in joules, and
// the time at which it was measured where the interface has version 3 or above: "123456789 J
// 1718000000000000 us".
package cray

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Meter is the power.Meter of the counters of one node.
//
// The file freshness counts the controller's measurements. As long as it stays the same there is
// nothing new; where it changes while the counters are read, they are read again, so that the parts
// belong to the whole. A controller that restarts begins at 0, which power.Counter sees. The file
// generation, which counts changes of power caps, does not matter.
//
// The zero Meter is not usable; call New.
type Meter struct {
	dir   string
	want  func(power.Kind) bool
	files power.CounterFiles
	zones map[string]*power.CounterFile // by file

	freshness kernfs.File
	buf       [64]byte
	measured  uint64          // the freshness of what was read last
	since     time.Time       // sample time at which that was read
	readings  []power.Reading // of the last read
	failing   bool            // a zone could not be read then
}

const (
	// searchEvery is how often the counters are looked for. Hardly any machine has them.
	searchEvery = time.Minute
	// frozenAfter is how long the controller may measure nothing until its zones have an error.
	frozenAfter = 10 * time.Second
)

var errFrozen = errors.New("cray: the node's controller has stopped measuring (its freshness stands still)")

// New returns a meter for the counters below root, "/" or where the host's root is mounted. want
// reports whether zones of the kind are to be read; nil means all. New touches nothing.
func New(root string, want func(power.Kind) bool) *Meter {
	if want == nil {
		want = func(power.Kind) bool { return true }
	}
	dir := filepath.Join(root, "sys/cray/pm_counters")
	m := &Meter{dir: dir, want: want, zones: map[string]*power.CounterFile{}}
	m.freshness.Path = filepath.Join(dir, "freshness")
	m.files = power.CounterFiles{Meter: "cray", Discover: m.discover, Patience: searchEvery, Parse: parseEnergy, Torn: m.torn}
	m.files.Search.Root, m.files.Search.Dir = root, dir
	m.files.Files = []*kernfs.File{&m.freshness}
	return m
}

// Read reads the known zones if there is something new, and discovers them when that is due; see
// power.CounterFiles. The error is fs.ErrNotExist where there are no such counters, and
// power.ErrNoZones where there is none to use.
func (m *Meter) Read(_ context.Context, s power.Sample) ([]power.Reading, error) {
	measured, err := m.readFreshness()
	switch {
	case err != nil:
	case measured == m.measured && len(m.readings) > 0 && !m.failing:
		return m.repeat(s.At), nil
	default:
		m.measured = measured
	}
	m.readings, err = m.files.Read(s)
	m.since = s.At
	m.failing = slices.ContainsFunc(m.readings, func(r power.Reading) bool { return r.Err != nil })
	return m.readings, err
}

// repeat returns the readings of the last read again.
func (m *Meter) repeat(at time.Time) []power.Reading {
	for i := range m.readings {
		m.readings[i].Event = power.NoEvent
		if at.Sub(m.since) >= frozenAfter {
			m.readings[i].Err = errFrozen
		}
	}
	return m.readings
}

// torn reports whether the freshness counter has changed since its last read.
func (m *Meter) torn() bool {
	if len(m.zones) == 0 {
		return false
	}
	measured, err := m.readFreshness()
	before := m.measured
	m.measured = measured
	return err == nil && measured != before
}

// readFreshness returns how often the controller has measured.
func (m *Meter) readFreshness() (uint64, error) {
	if !m.freshness.IsOpen() && m.files.Search.IsGuarded() {
		return 0, fs.ErrClosed // until the next discovery
	}
	text, err := m.freshness.Read(m.buf[:])
	if err != nil {
		return 0, err
	}
	number, _ := cutNumber(text)
	return kernfs.ParseUint(number)
}

// cutNumber returns the number that the text begins with, and what follows it.
func cutNumber(text []byte) (number, rest []byte) {
	n := bytes.IndexAny(text, " \n")
	if n < 0 {
		n = len(text)
	}
	return text[:n], text[n:]
}

// parseEnergy returns the energy in the text of a counter: "123456789 J 1718000000000000 us".
func parseEnergy(text []byte) (units.Energy, error) {
	number, rest := cutNumber(text)
	joules, err := kernfs.ParseUint(number)
	switch unit, ok := bytes.CutPrefix(rest, []byte(" J")); {
	case err != nil:
		return 0, err
	case !ok || len(unit) > 0 && unit[0] != ' ' && unit[0] != '\n':
		return 0, fmt.Errorf("not a number of joules: %q", text)
	case joules > math.MaxUint64/uint64(units.Joule):
		return 0, fmt.Errorf("%d J is impossible", joules)
	}
	return units.Energy(joules) * units.Joule, nil
}

// Close closes the counters. It may be called again; Read may not.
func (m *Meter) Close() error { return errors.Join(m.files.Close(), m.freshness.Close()) }
