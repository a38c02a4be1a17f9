// SPDX-License-Identifier: Apache-2.0

package power

import (
	"cmp"
	"math/bits"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Correction is the calibration result of a meter: the true power is Factor times the meter's
// power, plus Offset, and the meter reports it with a delay of Lag. The zero Correction has no
// effect.
type Correction struct {
	// Lag is the delay of the meter, from 0 to MaxLag.
	Lag time.Duration
	// Factor is in parts per million, from MinFactor to MaxFactor. 0 means Unscaled.
	Factor uint64
	// Offset is a power in microwatts, at least -MaxOffset and at most MaxOffset.
	Offset int64
}

// The bounds of a Correction, and the factor without effect.
const (
	MaxLag    = 2 * time.Minute
	Unscaled  = 1_000_000
	MinFactor = Unscaled / 10
	MaxFactor = 10 * Unscaled
	MaxOffset = 10_000 * 1_000_000
)

// Scale returns the factor as a number.
func (c Correction) Scale() float64 { return float64(cmp.Or(c.Factor, Unscaled)) / Unscaled }

// IsZero reports whether the correction has no effect.
func (c Correction) IsZero() bool { return c.Lag == 0 && !c.Scales() }

// Scales reports whether the correction changes energies.
func (c Correction) Scales() bool { return c.Factor != 0 && c.Factor != Unscaled || c.Offset != 0 }

// corrections is the step of a Set that corrects the readings of a meter.
type corrections struct {
	of       func(*Zone) Correction // nil if no zone is corrected
	zones    map[string]*corrected  // by ID; nil for a zone without a correction
	readings []Reading
}

// correct returns the corrected readings, which are valid until the next call. It does not change
// the meter's readings.
func (c *corrections) correct(readings []Reading) []Reading {
	if c.of == nil {
		return readings
	}
	c.readings = append(c.readings[:0], readings...)
	for i := range c.readings {
		if zone := c.zone(c.readings[i].Zone); zone != nil {
			zone.correct(&c.readings[i])
		}
	}
	return c.readings
}

// zone returns the corrected total of a zone, or nil if the zone is not corrected. A zone that
// replaces a zone with the same ID has a new total.
func (c *corrections) zone(z *Zone) *corrected {
	zone, ok := c.zones[z.ID]
	if ok && (zone == nil || zone.zone == z) {
		return zone
	}
	if zone = nil; c.zones == nil {
		c.zones = map[string]*corrected{}
	}
	if correction := c.of(z); !correction.IsZero() {
		zone = &corrected{Correction: correction, zone: z}
	}
	c.zones[z.ID] = zone
	return zone
}

// corrected is the corrected total of a zone. It is exact: the total is the correction of the
// energy and the time of all readings together, rounded down to a microjoule. The exception is a
// time when Offset makes the power negative. The total does not change in this time, and the
// negative energy is carried, up to 60 s of Offset.
type corrected struct {
	Correction
	zone       *Zone
	since, at  time.Time    // times of the first and the last accepted reading, by the meter
	raw        units.Energy // total of the meter
	unmeasured time.Duration
	total      units.Energy
	lacks      int64 // energy below the total in µJ, at most 0
	remainder  int64 // of the total in µW ns, from 0 to below perMicrojoule
}

const (
	perMicrojoule  = int64(time.Second) // in µW ns
	maxMicrojoules = 1 << 60            // bounds the terms of a sum, so that it does not overflow
)

// correct corrects a reading.
func (c *corrected) correct(r *Reading) {
	r.Correction = c.Correction
	if r.At.IsZero() {
		return
	}
	if c.since.IsZero() {
		c.since, c.at, c.unmeasured = r.At, r.At, r.Unmeasured
	}
	if r.At.Before(c.at) { // the clock of the sensor was set back
		r.At = c.at
	}
	elapsed := r.At.Sub(c.at) - (r.Unmeasured - c.unmeasured)
	if r.Event == Rebased {
		elapsed = 0 // no energy was measured in this time
	}
	if !r.At.Equal(c.at) || r.Total != c.raw {
		c.total = units.AddSaturating(c.total, c.convert(units.Advance(c.raw, r.Total), elapsed))
		c.at, c.raw, c.unmeasured = r.At, r.Total, r.Unmeasured
	}
	r.Total, r.At = c.total, r.At.Add(-c.Lag)
}

// convert returns the true energy for the energy that the meter counted in a time, and carries the
// remainder.
func (c *corrected) convert(energy units.Energy, elapsed time.Duration) units.Energy {
	if !c.Scales() {
		return energy
	}
	offset, sign := uint64(c.Offset), int64(1)
	if c.Offset < 0 {
		offset, sign = uint64(-c.Offset), -1
	}
	scaled, scaledRest := product(uint64(energy), cmp.Or(c.Factor, Unscaled)*(uint64(perMicrojoule)/Unscaled))
	added, addedRest := product(offset, uint64(max(elapsed, 0)))
	rest := c.remainder + scaledRest + sign*addedRest // more than -perMicrojoule
	carried := (rest+perMicrojoule)/perMicrojoule - 1 // rounded down
	c.remainder = rest - carried*perMicrojoule
	sum := scaled + sign*added + c.lacks + carried
	if c.lacks = min(sum, 0); c.lacks < 0 {
		c.lacks = max(c.lacks, -60*int64(offset))
		return 0
	}
	return units.Energy(sum)
}

// product returns the product of two numbers in units of perMicrojoule, and the rest. It saturates.
func product(a, b uint64) (quotient, rest int64) {
	hi, lo := bits.Mul64(a, b)
	if hi >= uint64(perMicrojoule) {
		return maxMicrojoules, 0
	}
	q, r := bits.Div64(hi, lo, uint64(perMicrojoule))
	return int64(min(q, maxMicrojoules)), int64(r)
}

// resumed returns the true energy between the restored state and the meter's first reading, which
// is not part of the total. energy and elapsed are the increase of the zone's counter and the time
// between the restored state and the last reading.
func (c *corrected) resumed(energy units.Energy, elapsed time.Duration) units.Energy {
	return c.convert(units.Advance(c.raw, energy), elapsed-c.at.Sub(c.since))
}
