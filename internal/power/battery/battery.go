// SPDX-License-Identifier: Apache-2.0

// Package battery reads the power of a laptop from its batteries while they are its only power
// supply.
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
// The error of the zone is power.ErrUnmeasured on mains power. A battery may discharge also then,
// because the power supply is weak or the battery is above its charge limit. Such a battery
// provides only a part of the machine's power.
//
// The power is power_now or, if the driver does not report power_now, current_now times
// voltage_now. Differences of energy_now are not used, because energy_now is an estimate that the
// battery corrects up and down. Most batteries report it in steps of 10 mWh (36 J), which a laptop
// uses in about 5 s.
type Source struct {
	dir   string
	zone  power.Zone
	shown [1]power.Shown
	buf   [64]byte
}

// maxWatts is the maximum plausible power of a laptop. If the current is not available, some
// firmware reports 0xffff mA, which is 786 W at 12 V.
const maxWatts = 500

// New returns a source for the batteries of the machine whose root directory is root. In a
// container, root is the mount point of the host's root directory. New reads no file.
func New(root string) *Source {
	return &Source{
		dir: filepath.Join(root, "sys/class/power_supply"),
		zone: power.Zone{
			ID: "battery", Name: "battery", Kind: power.Platform, Method: power.Measured, Domain: units.NodeCPUs, MaxWatts: maxWatts,
		},
	}
}

// The errors of the zone while the batteries do not measure the machine.
var (
	errMains    = fmt.Errorf("%w: the machine is on mains power", power.ErrUnmeasured)
	errNotInUse = fmt.Errorf("%w: no battery is discharging", power.ErrUnmeasured)
	errNoPower  = errors.New("the discharging batteries report a power of 0 W")
)

// Answer reads the batteries. The error is power.ErrNoZones if the machine has no battery.
// Batteries of peripheral devices, such as mice, are ignored.
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
		default: // online is 0: offline, 1: online at a fixed voltage, 2: online at a programmable voltage
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
	if sum == 0 && err == nil { // a running machine uses power, so that 0 W is wrong
		err = errNoPower
	}
	return int64(min(sum, 2*maxWatts*1e6)), err // the caller rejects a power above maxWatts
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

// errNotReported is the error for a property that the driver does not provide, or that the firmware
// does not report at the moment (ENODATA, ENODEV).
var errNotReported = errors.New("not reported")

// number returns the absolute value of a property. The kernel defines the current of a discharging
// battery as negative, but many drivers report a positive current.
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

// text returns a property of a power supply without surrounding white space. It returns an empty
// string if the property cannot be read.
func (s *Source) text(name, property string) string {
	text, _ := kernfs.ReadSmall(filepath.Join(s.dir, name, property), s.buf[:])
	return string(bytes.TrimSpace(text))
}

// Close returns nil. No file is open between two calls of Answer.
func (s *Source) Close() error { return nil }
