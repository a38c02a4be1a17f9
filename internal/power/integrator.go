// SPDX-License-Identifier: Apache-2.0

package power

import (
	"math"
	"math/bits"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// integrator converts readings of power to energy.
//
// Each reading covers the sensor's averaging period, truncated at the previous reading. In the rest
// of the time between two readings, the power is assumed to change linearly. Fractions of a
// microjoule are carried. If two readings are further apart than the longest gap, the time that the
// second reading does not cover has no energy and adds to unmeasured.
type integrator struct {
	maxPower   uint64 // in µW; a reading above is rejected
	longestGap time.Duration
	remainder  uint64 // energy below a microjoule, in halves of a µW ns: less than remainderUnit
	power      uint64 // at the time at, in µW
	at         time.Time
	started    bool          // at is set
	skipped    bool          // skip was the last call, so power is not valid
	unmeasured time.Duration // time between readings without energy; it saturates
}

// remainderUnit is a microjoule in halves of a µW ns.
const remainderUnit = 2 * uint64(time.Second)

// newIntegrator returns an integrator for a zone that never uses more than maxWatts.
func newIntegrator(maxWatts uint64, longestGap time.Duration) *integrator {
	return &integrator{maxPower: units.MulSaturating(maxWatts, 1e6), longestGap: longestGap}
}

// addPower adds a reading, a power in microwatts, and returns the energy since the last reading.
// The reading is the mean over the time average that ends at the time at. If average is 0, it is
// the instantaneous power.
//
// A reading below 0 or above the zone's maximum power is Rejected and has no other effect. A second
// reading of the same time adds no energy. A reading of an earlier time means that the clock was
// set back. It is Rebased, adds no energy, and the next reading counts from its time. Times with a
// monotonic clock reading are never set back, and do not advance while the machine is suspended.
func (i *integrator) addPower(microwatts int64, average time.Duration, at time.Time) (units.Energy, Event) {
	if microwatts < 0 || uint64(microwatts) > i.maxPower {
		return 0, Rejected
	}
	power, previous, elapsed := uint64(microwatts), i.power, at.Sub(i.at)
	first, gap := !i.started, i.skipped || elapsed > i.longestGap
	i.power, i.at, i.started, i.skipped = power, at, true, false
	switch {
	case first:
		return 0, Appeared
	case elapsed < 0:
		return 0, Rebased
	case elapsed == 0:
		return 0, NoEvent
	}
	covered := min(max(average, 0), elapsed)
	if gap && covered < elapsed {
		i.addUnmeasured(elapsed - covered)
		return i.add(2*power, covered, 0, 0), Gap
	}
	return i.add(2*power, covered, previous+power, elapsed-covered), NoEvent
}

// skip records that no power is available for the time at. measured reports whether the energy up
// to this time was counted in another way. If not, the time since the last reading adds to
// unmeasured.
func (i *integrator) skip(at time.Time, measured bool) {
	if elapsed := at.Sub(i.at); i.started && !measured && elapsed > 0 {
		i.addUnmeasured(elapsed)
	}
	i.at, i.started, i.skipped = at, true, true
}

func (i *integrator) addUnmeasured(d time.Duration) {
	i.unmeasured += min(d, math.MaxInt64-i.unmeasured)
}

// add returns the energy of two periods, at most 2^64-1 µJ. power1 and power2 are twice the mean
// power of their period, in µW: the sum of two readings is twice their mean and needs no division.
func (i *integrator) add(power1 uint64, time1 time.Duration, power2 uint64, time2 time.Duration) units.Energy {
	hi1, lo1 := bits.Mul64(power1, uint64(time1)) // below 2^127: times are below 2^63
	hi2, lo2 := bits.Mul64(power2, uint64(time2))
	lo, carry1 := bits.Add64(lo1, lo2, 0)
	lo, carry2 := bits.Add64(lo, i.remainder, 0)
	hi := hi1 + hi2 + carry1 + carry2
	if hi >= remainderUnit {
		i.remainder = 0
		return math.MaxUint64
	}
	energy, remainder := bits.Div64(hi, lo, remainderUnit)
	i.remainder = remainder
	return units.Energy(energy)
}
