// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"errors"
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvml"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// energy reads the energy counter of a GPU, or its power if no counter works. Utilization samples
// appear hundreds of milliseconds late. Therefore energy keeps its readings, and returns the energy
// at the time of the last sample.
type energy struct {
	points  []point // ascending in time
	isPower bool
	average time.Duration // averaging time of power readings
	counter uint64        // last reading, in mJ
	moved   time.Time     // when counter last changed
	at      time.Time     // time of the reading that was returned last
}

// point is a reading: µJ of the counter, or µW.
type point struct {
	at    time.Time
	value uint64
}

const (
	// standsStill is the maximum time without a change of the counter. In this time, the counter of a
	// GPU that uses 1 W advances by 10,000 steps.
	standsStill = 10 * time.Second
	// drawn is the minimum power, in mW, of a GPU whose energy counter must advance.
	drawn = 1000
	// averaged is the averaging time of mean power. NVML documents one second for Ampere (except
	// GA100) and later.
	averaged = time.Second
)

// read adds a reading.
func (e *energy) read(device nvml.Device) error {
	counter, err := device.TotalEnergy()
	now := time.Now()
	switch {
	case err == nil && (counter != e.counter || e.moved.IsZero()):
		e.counter, e.moved = counter, now
	case err != nil && !isMissing(err):
		return fmt.Errorf("energy: %w", err)
	}
	if err == nil && now.Sub(e.moved) < standsStill {
		return e.add(point{now, counter * 1000}, false)
	}
	milliwatts, isAverage, powerErr := device.Power()
	now = time.Now()
	switch {
	case powerErr == nil && (err != nil || milliwatts >= drawn):
		e.average = 0
		if isAverage {
			e.average = averaged
		}
		return e.add(point{now, uint64(milliwatts) * 1000}, true)
	case err == nil: // the counter may be right: a GPU that is switched off draws no power
		return e.add(point{now, counter * 1000}, false)
	case isMissing(powerErr):
		return errNeither
	default:
		return fmt.Errorf("power: %w", powerErr)
	}
}

var errNeither = errors.New("the GPU has neither an energy counter nor a power sensor that can be read")

func (e *energy) add(p point, isPower bool) error {
	if isPower != e.isPower {
		e.points = e.points[:0]
	}
	e.isPower = isPower
	e.points = append(e.points, p)
	return nil
}

// handOut sets the energy or power of a device at a time, which is at least the time of the
// previous call. If the time is outside the readings, it is replaced by the time of the nearest
// reading. Readings that are no longer needed are dropped.
func (e *energy) handOut(d *gpulibrary.Device, at time.Time, err error) {
	if err != nil || len(e.points) == 0 {
		d.Err, d.At = err, at
		return
	}
	if at.Before(e.at) {
		at = e.at
	}
	last := 0
	for last+1 < len(e.points) && !e.points[last+1].at.After(at) {
		last++
	}
	e.points = append(e.points[:0], e.points[last:]...)
	value := e.points[0].value
	switch {
	case at.Before(e.points[0].at):
		at = e.points[0].at
	case len(e.points) > 1:
		value = e.between(e.points[0], e.points[1], at)
	case at.After(e.points[0].at):
		at = e.points[0].at
	}
	e.at, d.At = at, at
	if e.isPower {
		d.HasPower, d.Power, d.Average = true, int64(value), e.average
	} else {
		d.Energy = value
	}
}

// between interpolates linearly between a and b. A counter that was reset has the value of a until
// b.
func (e *energy) between(a, b point, at time.Time) uint64 {
	d, of := uint64(at.Sub(a.at)), uint64(b.at.Sub(a.at))
	switch {
	case b.value >= a.value:
		return a.value + units.MulDiv(b.value-a.value, d, of)
	case e.isPower:
		return a.value - units.MulDiv(a.value-b.value, d, of)
	default:
		return a.value
	}
}
