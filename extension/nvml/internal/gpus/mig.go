// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvml"
)

// slicing holds the slices of a GPU that is divided (MIG). The GPU time of a slice is its activity,
// which the performance monitors report (GPM, Hopper and later), times its share of the streaming
// multiprocessors. NVML reports no process utilization for slices, so the receiver divides the GPU
// time of a slice in proportion to the memory of its processes. Before Hopper, the receiver divides
// the time of the whole GPU in this way, and the GPU counts as busy while a process holds memory.
type slicing struct {
	slices          []*slice
	multiprocessors uint32 // of the whole GPU, 0 before it is read
}

// slice is a MIG device.
type slice struct {
	id     string
	sample nvml.GPMSample // of the last poll
}

// minActivity is the minimum time between two polls that sample the performance monitors. The
// samples of a slice must be 100 ms apart. The margin is needed because the time from the start of
// a poll to the sample varies.
const minActivity = 150 * time.Millisecond

// readSlices sets the usage of a device, and returns the end of the time that it covers.
func (b *board) readSlices(d *gpulibrary.Device) time.Time {
	u, now := &b.usage, time.Now()
	if u.started && now.Sub(u.polled) < minActivity {
		return u.until
	}
	elapsed := now.Sub(u.until)
	devices, err := b.device.MIGDevices()
	if err != nil {
		err = fmt.Errorf("MIG devices: %w", err)
	} else if err = b.readActivities(d, devices, elapsed); isMissing(err) { // before Hopper
		err = readHolders(d, devices, elapsed)
	}
	if err != nil {
		d.UsageErr, d.Users, d.Busy, d.Unattributed = err, d.Users[:0], 0, 0
		return now
	}
	if !u.until.IsZero() {
		d.Elapsed = elapsed
	}
	if !u.started {
		d.Busy, d.Unattributed, d.Users = d.Elapsed, d.Elapsed, d.Users[:0]
	}
	u.started, u.until, u.polled = true, now, now
	return now
}

// readActivities adds one user for the processes of each slice. The GPU time of a slice that
// appeared since the last poll is unattributed.
func (b *board) readActivities(d *gpulibrary.Device, devices []nvml.Device, elapsed time.Duration) (err error) {
	g := &b.slices
	if g.multiprocessors == 0 {
		if g.multiprocessors, err = b.device.Multiprocessors(); err != nil {
			return fmt.Errorf("multiprocessors: %w", err)
		}
	}
	if g.multiprocessors == 0 {
		return errors.New("multiprocessors: the GPU reports 0")
	}
	var listed []*slice
	left := elapsed
	for _, device := range devices {
		s, err := g.find(device)
		if err != nil {
			return err
		}
		listed = append(listed, s)
		multiprocessors, err := device.Multiprocessors()
		if err != nil {
			return fmt.Errorf("multiprocessors of a MIG device: %w", err)
		}
		known := s.sample != nil
		activity, err := s.activity(device)
		if err != nil {
			return err
		}
		used := time.Duration(activity * float64(elapsed) * float64(multiprocessors) / float64(g.multiprocessors))
		used = min(used, left)
		left -= used
		d.Busy += used
		var processes []nvml.Process
		if known {
			processes, _ = device.Processes()
		}
		if user := together(processes, used); len(user.PIDs) > 0 {
			d.Users = append(d.Users, user)
		} else {
			d.Unattributed += used
		}
	}
	g.keep(listed)
	return nil
}

// find returns the slice of a MIG device.
func (g *slicing) find(device nvml.Device) (*slice, error) {
	id, err := device.UUID()
	if err != nil {
		return nil, fmt.Errorf("UUID of a MIG device: %w", err)
	}
	if i := slices.IndexFunc(g.slices, func(s *slice) bool { return s.id == id }); i >= 0 {
		return g.slices[i], nil
	}
	s := &slice{id: id}
	g.slices = append(g.slices, s)
	return s, nil
}

// keep removes the slices that are not in listed, and frees their samples.
func (g *slicing) keep(listed []*slice) {
	g.slices = slices.DeleteFunc(g.slices, func(s *slice) bool {
		isGone := !slices.Contains(listed, s)
		if isGone && s.sample != nil {
			s.sample.Free()
		}
		return isGone
	})
}

// activity returns the part of the time since the last poll during which the slice was busy, or 1
// for a new slice.
func (s *slice) activity(device nvml.Device) (float64, error) {
	sample, err := device.GPMSample()
	if err != nil {
		return 0, fmt.Errorf("activity of MIG devices: %w", err)
	}
	earlier := s.sample
	s.sample = sample
	if earlier == nil {
		return 1, nil
	}
	defer earlier.Free()
	percent, err := sample.Activity(earlier)
	switch {
	case err != nil:
		return 0, fmt.Errorf("activity of MIG devices: %w", err)
	case math.IsNaN(percent):
		return 0, errors.New("activity of MIG devices: not a number")
	}
	return min(max(percent/100, 0), 1), nil
}

// readHolders adds the processes of all slices as one user. The user has the whole interval,
// because the GPU does not report its activity.
func readHolders(d *gpulibrary.Device, devices []nvml.Device, elapsed time.Duration) error {
	var holders []nvml.Process
	for _, device := range devices {
		processes, err := device.Processes()
		if err != nil {
			return fmt.Errorf("processes of a MIG device: %w", err)
		}
		holders = append(holders, processes...)
	}
	d.Users, d.Busy, d.Unattributed = d.Users[:0], 0, 0
	if user := together(holders, elapsed); len(user.PIDs) > 0 {
		d.Users, d.Busy, d.Assumed = append(d.Users, user), elapsed, true
	}
	return nil
}
