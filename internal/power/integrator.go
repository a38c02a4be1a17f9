// SPDX-License-Identifier: Apache-2.0

package power

import (
	"math"
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
	most       uint64        // bound on the power, in µW
	gap        time.Duration // the longest
	total      units.Energy
	remainder  uint64 // of total, in halves of a µW ns, below remainderUnit
	power      uint64 // at the moment at, in µW
	at         time.Time
	seen       bool // at is known
	skipped    bool // power is not known
	unmeasured time.Duration
}

// remainderUnit is a microjoule in halves of a µW ns.
const remainderUnit = 2 * uint64(time.Second)

// NewIntegrator returns an integrator for a zone that never uses more than maxWatts.
func NewIntegrator(maxWatts uint64, longestGap time.Duration) *Integrator {
	return &Integrator{most: units.MulSaturating(maxWatts, 1e6), gap: longestGap}
}

// Total returns the energy since the first good reading. It saturates at 2^64-1 µJ.
func (i *Integrator) Total() units.Energy { return i.total }

// Unmeasured returns the time between readings that no energy was added for. It saturates.
func (i *Integrator) Unmeasured() time.Duration { return i.unmeasured }

// Add takes a reading in microwatts that the sensor made at the given moment, averaged over the time before it, 0 where it is
// the power of that moment. It returns what the reading added to the total.
//
// A reading below 0 or above the bound is Rejected and counts as not made. A second reading of the same moment adds nothing.
// An earlier one shows that the clock was set back: it is Rebased, adds nothing, and the next one counts from there. Readings
// with a monotonic clock reading do not meet that; their time stands still while the machine is suspended.
func (i *Integrator) Add(microwatts int64, average time.Duration, at time.Time) (units.Energy, Event) {
	if microwatts < 0 || uint64(microwatts) > i.most {
		return 0, Rejected
	}
	now, before, elapsed := uint64(microwatts), i.power, at.Sub(i.at)
	first, blind := !i.seen, i.skipped || elapsed > i.gap
	i.power, i.at, i.seen, i.skipped = now, at, true, false
	switch {
	case first:
		return 0, Appeared
	case elapsed < 0:
		return 0, Rebased
	case elapsed == 0:
		return 0, NoEvent
	}
	covered := min(max(average, 0), elapsed)
	if blind && covered < elapsed {
		i.miss(elapsed - covered)
		return i.add(2*now, covered, 0, 0), Gap
	}
	return i.add(2*now, covered, before+now, elapsed-covered), NoEvent
}

// Skip notes that the power is not known at a moment, and that the time until then is measured in another way, or is not
// measured.
func (i *Integrator) Skip(at time.Time, measured bool) {
	if elapsed := at.Sub(i.at); i.seen && !measured && elapsed > 0 {
		i.miss(elapsed)
	}
	i.at, i.seen, i.skipped = at, true, true
}

func (i *Integrator) miss(d time.Duration) {
	i.unmeasured += min(d, math.MaxInt64-i.unmeasured)
}

// add adds two products of twice a power in µW and a time, and returns by how much the total grew.
func (i *Integrator) add(power1 uint64, time1 time.Duration, power2 uint64, time2 time.Duration) units.Energy {
	hi1, lo1 := bits.Mul64(power1, uint64(time1)) // below 2^127: times are below 2^63
	hi2, lo2 := bits.Mul64(power2, uint64(time2))
	lo, carry1 := bits.Add64(lo1, lo2, 0)
	lo, carry2 := bits.Add64(lo, i.remainder, 0)
	hi := hi1 + hi2 + carry1 + carry2
	before := i.total
	if hi >= remainderUnit {
		i.total, i.remainder = ^units.Energy(0), 0
		return i.total - before
	}
	energy, remainder := bits.Div64(hi, lo, remainderUnit)
	i.total, i.remainder = units.AddSaturating(i.total, units.Energy(energy)), remainder
	return i.total - before
}
