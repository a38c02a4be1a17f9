// SPDX-License-Identifier: Apache-2.0

// Package battery reads the power of a laptop from its batteries while they are its only supply.
package battery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Source is the power.Source of the batteries in /sys/class/power_supply. Its only zone is the
// whole machine. The power of the zone is the sum over all discharging batteries.
//
// On mains power the zone has an error, so that the time counts as unmeasured. A battery may
// discharge next to an online supply that is weak, or because it is above its charge limit. Then it
// provides only a part of the machine's power.
//
// The power is power_now, else current_now times voltage_now. Differences of energy_now are not
// used: the battery's gauge corrects this estimate in both directions. Its steps are mostly 10 mWh,
// 36 J, which a laptop uses in about 5 s.
type Source struct {
	dir   string
	zone  power.Zone
	shown [1]power.Shown
	buf   [64]byte
}

// maxWatts is more than any laptop uses. Some firmware reports 0xffff mA at 12 V, 786 W, for a
// current that is not available.
const maxWatts = 500

// New returns a source for the batteries below root, "/" or the mount point of the host's root. It
// reads no file.
func New(root string) *Source {
	return &Source{
		dir: filepath.Join(root, "sys/class/power_supply"),
		zone: power.Zone{
			ID: "battery", Name: "battery", Kind: power.Platform, Method: power.Measured, Domain: units.NodeCPUs, MaxWatts: maxWatts,
		},
	}
}

// The reasons why the batteries do not measure the machine.
var (
	errMains    = errors.New("on mains power, which batteries do not measure")
	errNotInUse = errors.New("no battery is discharging")
	errNoPower  = errors.New("the discharging batteries report a power of 0 W")
)

// Answer reads the batteries. The error is power.ErrNoZones if the machine has no battery.
// Batteries of attached devices, such as mice, are not batteries of the machine.
func (s *Source) Answer(context.Context, power.Sample) (power.Answer, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return power.Answer{}, err
	}
	var batteries []string
	online := false
	for _, e := range entries {
		switch name := e.Name(); {
		case s.text(name, "scope") == "Device":
		case s.text(name, "type") == "Battery":
			batteries = append(batteries, name)
		default: // 0: offline, 1: online at a fixed voltage, 2: online at a programmable voltage
			state := s.text(name, "online")
			online = online || state != "" && state != "0"
		}
	}
	if len(batteries) == 0 {
		return power.Answer{}, fmt.Errorf("%w: no battery of this machine in %s", power.ErrNoZones, s.dir)
	}
	s.shown[0] = power.Shown{Zone: &s.zone, IsPower: true, Err: errMains}
	if !online {
		s.shown[0].Power, s.shown[0].Err = s.power(batteries)
	}
	return power.Answer{Shown: s.shown[:]}, nil
}

// power returns the power of all discharging batteries in microwatts.
func (s *Source) power(batteries []string) (int64, error) {
	sum, err := uint64(0), errNotInUse
	for _, name := range batteries {
		if s.text(name, "status") != "Discharging" {
			continue
		}
		microwatts, failed := s.powerOf(name)
		if failed != nil {
			return 0, fmt.Errorf("battery %s: %w", name, failed)
		}
		sum, err = units.AddSaturating(sum, microwatts), nil
	}
	if sum == 0 && err == nil { // while it discharges, this machine runs on it
		err = errNoPower
	}
	return int64(min(sum, 2*maxWatts*1e6)), err // impossible powers are rejected by the zone's account
}

// powerOf returns the power of one battery in microwatts.
func (s *Source) powerOf(name string) (uint64, error) {
	microwatts, err := s.number(name, "power_now")
	if !errors.Is(err, errNotReported) {
		return microwatts, err
	}
	microamperes, err := s.number(name, "current_now")
	if err != nil {
		return 0, fmt.Errorf("power_now and %w", err)
	}
	microvolts, err := s.number(name, "voltage_now")
	return units.MulDiv(microamperes, microvolts, 1e6), err
}

// errNotReported means that the driver does not have the value, or that the firmware does not
// report it at the moment (ENODATA, ENODEV).
var errNotReported = errors.New("not reported")

// number returns the absolute value of a number. The kernel defines the current of a discharging
// battery as negative, but many drivers report a positive one.
func (s *Source) number(name, property string) (uint64, error) {
	text := s.text(name, property)
	if text == "" {
		return 0, fmt.Errorf("%s is %w", property, errNotReported)
	}
	n, err := kernfs.ParseUint(bytes.TrimPrefix([]byte(text), []byte("-")))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", property, err)
	}
	return n, nil
}

// text returns a property of a supply without white space at its ends, empty if it cannot be read.
func (s *Source) text(name, property string) string {
	f := kernfs.File{Path: filepath.Join(s.dir, name, property)}
	defer func() { _ = f.Close() }() // it was only read from
	text, err := f.Read(s.buf[:])
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(text))
}

// Close returns nil. No file is open between two calls of Answer.
func (s *Source) Close() error { return nil }
