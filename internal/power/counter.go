// SPDX-License-Identifier: Apache-2.0

package power

import (
	"math"
	"math/bits"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// The maximum power of a zone, in watts. A counter step that implies a higher power is a reset. The
// largest sockets sold draw about 500 W and peak below 1 kW. The largest nodes, with eight GPUs,
// have power supplies of about 20 kW, and their CPUs stay below 10 kW.
const (
	MaxSocketWatts   = 1_500  // package, core, uncore and dram of one socket or die
	MaxPSysWatts     = 10_000 // psys, whose counter wraps
	MaxCardWatts     = 4_000  // one graphics card; the largest sold draw about 1.4 kW
	MaxPlatformWatts = 30_000 // platform, and all other kinds
)

// smallestRange is less than any counter's range: the narrowest, of 32 bits in units of 15.3 µJ,
// has 65 kJ.
const smallestRange = 1000 * units.Joule

// counterSlack is added to every elapsed time. RAPL updates about once per millisecond, and the
// sample time is taken before the counter is read. Therefore more time may pass between two reads
// of the counter than between their sample times.
const counterSlack = 10 * time.Millisecond

// reportSlack replaces counterSlack for totals that a hypervisor reports. A report may include
// energy from a time when the guest's clock was stopped, and energy that a meter of the host
// reported late.
const reportSlack = time.Minute

// MaxWatts returns the maximum power of one zone of the kind, in watts. Any other kind has the
// maximum power of the whole machine.
func MaxWatts(k Kind) uint64 {
	switch k {
	case Package, Core, Uncore, DRAM:
		return MaxSocketWatts
	case PSys:
		return MaxPSysWatts
	default:
		return MaxPlatformWatts
	}
}

// counter computes the energy between the raw readings of an energy counter.
//
// A raw value below the previous one is a wraparound if the energy it implies is possible for the
// zone's maximum power in the elapsed time; otherwise it is a reset and adds no energy. A counter
// that wraps twice between two readings is counted once.
type counter struct {
	watts  uint64        // maximum power
	slack  time.Duration // added to the next elapsed time
	refill time.Duration // the maximum of slack, which grows while the power is below watts; 0 if slack is constant
	wrapAt units.Energy  // 0 if not available
	prev   units.Energy
	at     time.Time // when prev was read; if wrapAt is 0, when it was read first
	seen   bool
}

// newCounter returns a counter for a zone that never uses more than maxWatts. Its raw value wraps
// to 0 after wrapAt; if wrapAt is 0, each step back is a reset. A total that a hypervisor reports
// has an epoch, may be the total of the whole host, and never wraps. The slack of such a total is
// replenished over time, so that its average power is bounded as well.
//
// The kernel reports the highest value of the counter, (2^32-1) hardware units, as
// max_energy_range_uj (drivers/powercap/intel_rapl_common.c, get_max_energy_counter). The true
// period is one unit (15 or 61 µJ) longer. newCounter ignores this unit, as the specification does.
func newCounter(maxWatts uint64, wrapAt units.Energy, epoch string) *counter {
	if epoch != "" {
		return &counter{watts: MaxPlatformWatts, slack: reportSlack, refill: reportSlack}
	}
	return &counter{watts: maxWatts, slack: counterSlack, wrapAt: wrapAt}
}

// raw returns the last raw reading of the counter, or the zero Raw before the first reading.
func (c *counter) raw() Raw {
	if !c.seen {
		return Raw{}
	}
	return Raw{Energy: c.prev, Range: c.wrapAt, MaxWatts: c.watts, At: c.at}
}

// add adds the raw reading cur of the time at and returns the energy since the last reading. A
// counter whose range is not available may be updated rarely, so its steps are checked against the
// time since its last change.
//
// A time without a monotonic clock reading is allowed. If at is before the last reading, the
// elapsed time is 0. The monotonic clock of Linux stops while the machine is suspended. This is
// intended: a suspended CPU uses almost no energy and its counter restarts, so the time of the
// suspension must not make an impossible step plausible.
func (c *counter) add(cur units.Energy, at time.Time) (units.Energy, Event) {
	if c.seen && cur == c.prev && c.wrapAt == 0 {
		return 0, NoEvent // the counter may be updated rarely: the next step may hold the energy since its last change
	}
	prev, elapsed := c.prev, at.Sub(c.at)
	c.prev, c.at = cur, at
	if !c.seen {
		c.seen = true
		return 0, Appeared
	}
	elapsed = max(elapsed, 0)

	delta, event := cur-prev, NoEvent
	if cur < prev {
		switch {
		case prev > c.wrapAt: // always so if the range is not available
			return 0, Rebased
		// A step back by less than 1/16384 of the range would be a wrap after nearly a whole range.
		case prev-cur <= c.wrapAt>>14:
			return 0, Rebased
		}
		delta, event = c.wrapAt-prev+cur, Wrapped
	}
	if c.impossible(delta, elapsed) {
		c.addSpare(elapsed)
		return 0, Rebased
	}
	c.addSpare(elapsed - time.Duration(uint64(delta)/c.watts+1)*time.Microsecond) // µJ / W = µs
	return delta, event
}

// impossible reports whether delta is more than the zone can have used in elapsed.
func (c *counter) impossible(delta units.Energy, elapsed time.Duration) bool {
	// In nanojoules: 1 W is 1 nJ per ns. The products need up to 78 bits.
	usedHi, usedLo := bits.Mul64(uint64(delta), 1000)
	mostHi, mostLo := bits.Mul64(c.watts, uint64(elapsed)+uint64(c.slack))
	return usedHi > mostHi || usedHi == mostHi && usedLo > mostLo
}

// addSpare adds to the slack the time that the zone did not need at its maximum power, or subtracts
// the time that it lacked.
func (c *counter) addSpare(spare time.Duration) {
	if c.refill > 0 {
		c.slack = min(max(c.slack+spare, 0), c.refill)
	}
}

// wrapsAfter returns the time until the counter has passed through its range at the maximum power
// of the zone. It returns 0 if the range is not available, or too small to be valid.
func (r *Raw) wrapsAfter() time.Duration {
	if r.Range < smallestRange {
		return 0
	}
	// µJ / W = µs
	return time.Duration(min(uint64(r.Range)/r.MaxWatts, math.MaxInt64/1000)) * time.Microsecond
}
