// SPDX-License-Identifier: Apache-2.0

package power

import (
	"math/bits"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Integrator converts readings of power into a monotonic total of energy that starts at zero.
//
// A reading stands for the time that the sensor averaged over, as far as it reaches back to the reading before. For the rest
// of the time between two readings the power is taken to have changed evenly from one to the other. Fractions of a
// microjoule are carried. Where two readings are further apart than the longest gap, nothing is assumed about the time that
// the second one does not cover: it adds to Unmeasured.
//
// The zero Integrator is not usable; call NewIntegrator. An Integrator is not safe for concurrent use.
type Integrator struct {
	watts      uint64        // bound on the power
	gap        time.Duration // the longest
	total      units.Energy
	remainder  uint64 // of total, in 2^-1 µW ns, below remainderUnit
	power      uint64 // of the last good reading, in µW
	at         time.Time
	seen       bool
	unmeasured time.Duration
}

// remainderUnit is a microjoule in halves of µW ns.
const remainderUnit = 2 * uint64(time.Second)

// NewIntegrator returns an integrator for a zone that never uses more than maxWatts.
func NewIntegrator(maxWatts uint64, longestGap time.Duration) *Integrator {
	return &Integrator{watts: maxWatts, gap: longestGap}
}

// Total returns the energy since the first good reading. It saturates at 2^64-1 µJ.
func (i *Integrator) Total() units.Energy { return i.total }

// Unmeasured returns the time between readings that no energy was added for.
func (i *Integrator) Unmeasured() time.Duration { return i.unmeasured }

// Add takes a reading in microwatts that the sensor made at the given moment, averaged over the time before it, 0 where it is
// the power of that moment. It returns what the reading added to the total.
//
// A reading below 0 or above the bound is Rejected and counts as not made. A reading that is no later than the one before
// adds nothing.
func (i *Integrator) Add(microwatts int64, average time.Duration, at time.Time) (units.Energy, Event) {
	if microwatts < 0 || uint64(microwatts) > i.watts*1e6 {
		return 0, Rejected
	}
	now, before := uint64(microwatts), i.power
	elapsed := at.Sub(i.at)
	if i.seen && elapsed <= 0 {
		return 0, NoEvent
	}
	seen := i.seen
	i.power, i.at, i.seen = now, at, true
	if !seen {
		return 0, Appeared
	}
	covered := min(max(average, 0), elapsed)
	if elapsed > i.gap {
		i.unmeasured += elapsed - covered
		return i.add(2*now, covered, 0, 0), Gap
	}
	return i.add(2*now, covered, before+now, elapsed-covered), NoEvent
}

// add adds two products of twice a power in µW and a time, and returns by how much the total grew.
func (i *Integrator) add(power1 uint64, time1 time.Duration, power2 uint64, time2 time.Duration) units.Energy {
	hi1, lo1 := bits.Mul64(power1, uint64(time1))
	hi2, lo2 := bits.Mul64(power2, uint64(time2))
	lo, carry := bits.Add64(lo1, lo2, 0)
	hi := hi1 + hi2 + carry
	lo, carry = bits.Add64(lo, i.remainder, 0)
	hi += carry
	before := i.total
	if hi >= remainderUnit {
		i.total = ^units.Energy(0)
		return i.total - before
	}
	energy, remainder := bits.Div64(hi, lo, remainderUnit)
	i.total, i.remainder = units.AddSaturating(i.total, units.Energy(energy)), remainder
	return i.total - before
}
