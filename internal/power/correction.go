// SPDX-License-Identifier: Apache-2.0

package power

import (
	"cmp"
	"math/bits"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Correction is the calibration result of a meter: the true power is Factor times the meter's
// power, plus Offset, and the meter shows it Lag too late. The zero Correction changes nothing.
type Correction struct {
	// Lag is how late the meter is, from 0 to MaxLag.
	Lag time.Duration
	// Factor is in parts per million, from MinFactor to MaxFactor. 0 means Unscaled.
	Factor uint64
	// Offset is a power in microwatts, at least -MaxOffset and at most MaxOffset.
	Offset int64
}

// The bounds of a Correction, and the factor that changes nothing.
const (
	MaxLag    = 2 * time.Minute
	Unscaled  = 1_000_000
	MinFactor = Unscaled / 10
	MaxFactor = 10 * Unscaled
	MaxOffset = 10_000 * 1_000_000
)

// Scale returns the factor as a number.
func (c Correction) Scale() float64 { return float64(cmp.Or(c.Factor, Unscaled)) / Unscaled }

// IsZero reports whether the correction changes nothing.
func (c Correction) IsZero() bool { return c.Lag == 0 && !c.Scales() }

// Scales reports whether the correction changes energies.
func (c Correction) Scales() bool { return c.Factor != 0 && c.Factor != Unscaled || c.Offset != 0 }

// corrected is the corrected total of a zone. It is exact: after any readings the total is the
// correction applied to the energy and the time of all readings together, rounded down to a
// microjoule. The one exception is a time in which Offset makes the power negative: the total does
// not change then, and the negative energy is carried, at most 60 s of Offset.
type corrected struct {
	Correction
	zone       *Zone
	since, at  time.Time    // of the first and the last reading that was taken, by the meter
	raw        units.Energy // total of the meter
	unmeasured time.Duration
	total      units.Energy
	lacks      int64 // energy below the total in µJ, at most 0
	remainder  int64 // of the total in µW ns, from 0 to below perMicrojoule
}

// perMicrojoule is a microjoule in µW ns.
const perMicrojoule = int64(time.Second)

// maxMicrojoules bounds the terms of a sum, so that it does not overflow.
const maxMicrojoules = 1 << 60

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
	if !r.At.Equal(c.at) || r.Total != c.raw {
		elapsed := r.At.Sub(c.at) - (r.Unmeasured - c.unmeasured)
		if r.Event == Rebased {
			elapsed = 0 // its energy is not known
		}
		c.total = units.AddSaturating(c.total, c.convert(units.Advance(c.raw, r.Total), elapsed))
		c.at, c.raw, c.unmeasured = r.At, r.Total, r.Unmeasured
	}
	r.Total, r.At = c.total, r.At.Add(-c.Lag)
}

// convert returns the true energy of a time in which the meter counted an energy, and carries the
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
	sum := scaled + sign*added + c.lacks
	c.remainder += scaledRest + sign*addedRest
	for ; c.remainder >= perMicrojoule; c.remainder -= perMicrojoule {
		sum++
	}
	for ; c.remainder < 0; c.remainder += perMicrojoule {
		sum--
	}
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

// beside returns the true energy since the past that is not in the total of the last reading, of a
// zone whose counter counted an energy in a time since then.
func (c *corrected) beside(energy units.Energy, elapsed time.Duration) units.Energy {
	return c.convert(units.Advance(c.raw, energy), elapsed-c.at.Sub(c.since))
}

// correct corrects the readings of a meter.
func (s *Set) correct(m *Status) {
	if m.Correction == nil {
		return
	}
	m.corrected = append(m.corrected[:0], m.Readings...) // the meter's own are not to be changed
	m.Readings = m.corrected
	for i := range m.Readings {
		r := &m.Readings[i]
		if c := m.correctionOf(r.Zone); c != nil {
			c.correct(r)
		}
	}
}

// correctionOf returns the corrected total of a zone, or nil if the zone is not corrected. A zone
// that replaces another one with the same ID has a total of its own.
func (m *Status) correctionOf(zone *Zone) *corrected {
	c, known := m.corrections[zone.ID]
	if known && (c == nil || c.zone == zone) {
		return c
	}
	if correction := m.Correction(zone); !correction.IsZero() {
		c = &corrected{Correction: correction, zone: zone}
	}
	if m.corrections == nil {
		m.corrections = map[string]*corrected{}
	}
	m.corrections[zone.ID] = c
	return c
}
