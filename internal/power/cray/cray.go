// SPDX-License-Identifier: Apache-2.0

// Package cray reads the power management counters of HPE Cray EX and Cray XC nodes,
// /sys/cray/pm_counters. The node's controller measures them ten times a second, and any user can
// read them.
//
// HPE's documentation (CSM, "User Access to Compute Node Power Data") and computing centers
// describe the files. The text of a file is an energy in joules. From version 3 of the interface
// on, the time of the measurement follows: "123456789 J 1718000000000000 us".
package cray

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// source is the power.Source of the counters of one node.
//
// The file freshness counts the measurements of the controller. While it is unchanged, there is no
// new reading. If it changes during a read of the counters, they are read again, so that all
// counters are from the same measurement. After a restart of the controller, the counters restart
// at 0, which power.Counter detects. The file generation counts changes of power caps and is not
// used.
type source struct {
	dir   string
	want  func(power.Kind) bool
	files power.Files

	freshness kernfs.File
	buf       [64]byte
	measured  uint64       // freshness of the last new reading
	since     time.Time    // sample time of the last new reading
	last      power.Answer // the last new reading
	failing   bool         // a zone could not be read in the last new reading
}

const (
	// searchEvery is the time between two searches for the counters. Few machines have them.
	searchEvery = time.Minute
	// frozenAfter is the time without a new measurement after which the zones have an error.
	frozenAfter = 10 * time.Second
)

var errFrozen = errors.New("cray: the node's controller has stopped measuring (its freshness is no longer updated)")

// New returns a meter for the counters below root, "/" or the mount point of the host's root. want
// reports whether zones of the kind are to be read; nil means all. New does not read files.
//
// The error of Read is fs.ErrNotExist if there are no such counters, and power.ErrNoZones if there
// is no counter to use.
func New(root string, want func(power.Kind) bool) power.Meter {
	return power.Direct("cray", newSource(root, want))
}

func newSource(root string, want func(power.Kind) bool) *source {
	if want == nil {
		want = func(power.Kind) bool { return true }
	}
	dir := filepath.Join(root, "sys/cray/pm_counters")
	s := &source{dir: dir, want: want, freshness: kernfs.File{Path: filepath.Join(dir, "freshness")}}
	f := &s.files
	f.Meter, f.Search.Root, f.Search.Dir, f.Find, f.Patience = "cray", root, dir, s.find, searchEvery
	f.Parse, f.Torn, f.More = parseEnergy, s.torn, []*kernfs.File{&s.freshness}
	return s
}

// Answer reads the zones if there is a new measurement. Otherwise it returns the last Answer.
func (s *source) Answer(ctx context.Context, now power.Sample) (power.Answer, error) {
	measured, err := s.readFreshness()
	switch {
	case err != nil:
	case measured == s.measured && len(s.last.Shown) > 0 && !s.failing:
		return s.repeat(now.At), nil
	default:
		s.measured = measured
	}
	s.last, err = s.files.Answer(ctx, now)
	s.since, s.failing = now.At, false
	for i := range s.last.Shown {
		shown := &s.last.Shown[i]
		shown.At = now.At
		s.failing = s.failing || shown.Err != nil
	}
	return s.last, err
}

// repeat returns the last Answer.
func (s *source) repeat(at time.Time) power.Answer {
	if at.Sub(s.since) >= frozenAfter {
		for i := range s.last.Shown {
			s.last.Shown[i].Err = errFrozen
		}
	}
	return s.last
}

// torn reports whether the freshness counter has changed since its last read.
func (s *source) torn() bool {
	measured, err := s.readFreshness()
	before := s.measured
	s.measured = measured
	return err == nil && measured != before
}

// readFreshness returns the number of measurements of the controller.
func (s *source) readFreshness() (uint64, error) {
	if !s.freshness.IsOpen() && s.files.Search.IsGuarded() {
		return 0, fs.ErrClosed // until the next discovery
	}
	text, err := s.freshness.Read(s.buf[:])
	if err != nil {
		return 0, err
	}
	number, _ := cutNumber(text)
	return kernfs.ParseUint(number)
}

// cutNumber returns the number at the beginning of the text, and the rest.
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

// Close closes the counters.
func (s *source) Close() error { return s.files.Close() }
