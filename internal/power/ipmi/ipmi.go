// SPDX-License-Identifier: Apache-2.0

// Package ipmi reads the power of the whole machine from its BMC (baseboard management controller),
// by the command Get Power Reading of DCMI (Data Center Manageability Interface 1.5) through the
// kernel's device /dev/ipmi0.
package ipmi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Sensor is the power.Source of a BMC. Several devices usually lead to the same BMC, so a Sensor has
// only one zone. The zone has the power and the name, such as "ipmi0", of the first device whose BMC
// reports power.
//
// DCMI's current power is the power at the moment of the poll. A BMC with DCMI's enhanced system
// power statistics also has rolling averages, which include the changes of power between two polls.
// The power is then the average over the longest window that is not longer than the time between
// two polls.
//
// The device is open only during a poll, so that the kernel's driver can be unloaded and late
// responses are discarded. Other programs can use the device at the same time, because the kernel
// returns each response to its requester.
//
// The zero Sensor is not usable; call New.
type Sensor struct {
	root  string
	every time.Duration
	open  func(path string) (device, error)

	finding kernfs.Search[error] // of Find
	path    string               // of the device that was read last, empty before the first
	zone    *power.Zone          // nil until there was a reading
	window  window               // the rolling average that is read, 0 for the current power
	chosen  bool                 // window is set
	shown   [1]power.Shown
}

// device sends requests to a BMC.
type device interface {
	// request sends a request of the network function for groups, and returns the response from its
	// completion code on. It returns soon after ctx is done.
	request(ctx context.Context, command byte, data []byte) ([]byte, error)
	Close() error
}

// New returns a sensor for the devices below root, "/" or the mount point of the host's root. every
// is the time between two polls. New does not read files.
func New(root string, every time.Duration) *Sensor {
	return &Sensor{
		root: root, every: every, open: openDevice,
		finding: kernfs.Search[error]{Root: root, Dir: filepath.Join(root, "dev")},
	}
}

// Find returns fs.ErrNotExist if there is no device. If the directory cannot be listed in time,
// it returns an error until a later call has the list.
func (s *Sensor) Find() error {
	err, ok := s.finding.Run(func() error {
		_, err := s.devices()
		return err
	})
	if !ok {
		return errListHangs
	}
	return err
}

var errListHangs = errors.New("looking for BMC devices in /dev hangs: a process may block this directory")

// Answer reads the power. The error is fs.ErrNotExist if there is no device. It is power.ErrNoZones
// if no BMC has ever reported power, and the first device has no DCMI, has no sensor, or may not be
// opened. In the last case, it is also fs.ErrPermission.
func (s *Sensor) Answer(ctx context.Context, _ power.Sample) (power.Answer, error) {
	paths, err := s.devices()
	if err != nil {
		return power.Answer{}, err
	}
	var reason error
	for _, path := range paths {
		shown, err := s.read(ctx, path)
		if err == nil {
			s.path, s.shown[0] = path, shown
			return power.Answer{Shown: s.shown[:]}, nil
		}
		reason = cmp.Or(reason, fmt.Errorf("BMC %s: %w", name(path), err))
	}
	if s.zone == nil && isMissing(reason) {
		reason = fmt.Errorf("%w: %w", power.ErrNoZones, reason)
	}
	return power.Answer{}, reason
}

// isMissing reports whether err means that the machine has no device, and not that a read failed.
func isMissing(err error) bool {
	return isRefused(err) || errors.Is(err, errNoPower) || errors.Is(err, fs.ErrPermission)
}

// devices returns the paths of the devices to read: the device that was read last, or all devices.
func (s *Sensor) devices() ([]string, error) {
	if _, err := os.Stat(s.path); err == nil {
		return []string{s.path}, nil
	}
	var paths []string
	for _, place := range [][2]string{{"dev", "ipmi"}, {"dev/ipmi", ""}, {"dev/ipmidev", ""}} { // as udev and others name them
		dir := filepath.Join(s.root, place[0])
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if number, ok := strings.CutPrefix(e.Name(), place[1]); ok && isNumber(number) {
				paths = append(paths, filepath.Join(dir, e.Name()))
			}
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no BMC device, as ipmi0, in %s: %w", filepath.Join(s.root, "dev"), fs.ErrNotExist)
	}
	slices.SortStableFunc(paths, func(a, b string) int { return power.CompareIDs(name(a), name(b)) })
	return paths, nil
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// name returns the name of the device in any directory: "ipmi0".
func name(path string) string {
	base := filepath.Base(path)
	return "ipmi" + strings.TrimPrefix(base, "ipmi")
}

// errNoPower is the answer of a BMC that does not measure power.
var errNoPower = errors.New("it reports no power")

// read reads the power through one device. If the zone exists, the error of a BMC without a power
// reading is an error of the zone.
func (s *Sensor) read(ctx context.Context, path string) (power.Shown, error) {
	d, err := s.open(path)
	if err != nil {
		return power.Shown{}, err
	}
	defer func() { _ = d.Close() }() // no data can be lost
	if !s.chosen {
		s.choose(ctx, d)
	}
	r, err := get(ctx, d, s.window)
	if s.window != 0 && isRefused(err) {
		s.window = 0
		r, err = get(ctx, d, s.window)
	}
	if err != nil {
		return power.Shown{}, err
	}
	at := time.Now()
	watts := r.current
	if s.window != 0 {
		watts = r.average
	}
	switch {
	case !r.active:
		err = fmt.Errorf("%w: its power measurement is not active", errNoPower)
	case !hasPower(watts):
		err = fmt.Errorf("%w: its reading is %d W", errNoPower, watts)
	}
	if s.zone == nil && err == nil {
		s.zone = &power.Zone{
			ID: name(path), Name: "BMC", Kind: power.Platform, Method: power.Measured,
			Domain: units.NodeCPUs, MaxWatts: power.MaxWatts(power.Platform),
		}
	}
	if s.zone == nil {
		return power.Shown{}, err
	}
	return power.Shown{Zone: s.zone, At: at, Err: err, IsPower: true, Power: int64(watts) * 1e6, Average: s.window.duration()}, nil
}

// choose finds out which rolling average to read, if any.
func (s *Sensor) choose(ctx context.Context, d device) {
	w, err := s.longestWindow(ctx, d)
	if err == nil && w != 0 {
		var sinceReset, rolling powerReading
		if sinceReset, err = get(ctx, d, 0); err == nil {
			rolling, err = get(ctx, d, w)
		}
		if err == nil && rolling.isOf(w, &sinceReset) { // some BMCs return the same statistics for all requests
			s.window = w
		}
	}
	s.chosen = err == nil || isRefused(err) || errors.Is(err, errMalformed)
}

// longestWindow returns the longest rolling average of the BMC that is no longer than the time
// between two polls, 0 if it has no such average.
func (s *Sensor) longestWindow(ctx context.Context, d device) (longest window, err error) {
	response, err := d.request(ctx, commandCapabilities, []byte{groupDCMI, parameterStatistics})
	if err != nil {
		return 0, err
	}
	windows, err := parseWindows(response)
	for _, w := range windows {
		if w.duration() <= s.every && w.duration() > longest.duration() {
			longest = w
		}
	}
	return longest, err
}

// get requests a power reading.
func get(ctx context.Context, d device, w window) (powerReading, error) {
	response, err := d.request(ctx, commandPowerReading, powerRequest(w))
	if err != nil {
		return powerReading{}, err
	}
	return parsePower(response)
}

// Close ends Find. No device is open between polls.
func (s *Sensor) Close() error {
	s.finding.Close()
	return nil
}
