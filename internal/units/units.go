// SPDX-License-Identifier: Apache-2.0

package units

import (
	"math"
	"math/bits"
	"time"
)

// Energy is an amount of energy in microjoules, the unit of the kernel's powercap interface
// (Documentation/power/powercap/powercap.rst). 2^64 µJ is 5 TWh: a node's ledger does not overflow.
type Energy uint64

// Joule is one joule in microjoules.
const Joule Energy = 1_000_000

// Joules returns e in joules. Values above 2^53 µJ (9 GJ) are rounded to the nearest double.
func (e Energy) Joules() float64 { return float64(e) / float64(Joule) }

// CPUTime is an amount of CPU time in nanoseconds, summed over CPUs.
type CPUTime uint64

// Second is one second of CPU time.
const Second CPUTime = 1_000_000_000

// Tick is the resolution of the CPU times in /proc. USER_HZ is 100 on every architecture that Go
// runs on (proc_pid_stat(5), include/asm-generic/param.h).
const Tick = Second / 100

// Seconds returns t in seconds.
func (t CPUTime) Seconds() float64 { return float64(t) / float64(Second) }

// Watts returns the average power of e over d in watts, or 0 if d is not positive.
func Watts(e Energy, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return e.Joules() / d.Seconds()
}

// Advance returns the increase of a monotonic counter from previous to current, or 0 if the counter
// decreased.
func Advance[T ~uint64](previous, current T) T {
	if current < previous {
		return 0
	}
	return current - previous
}

// MulDiv returns a*b/c rounded down, with a 128-bit product. It returns 0 if c is 0, and the
// maximum uint64 if the quotient overflows. The quotient cannot overflow if a or b is at most c.
func MulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	switch {
	case c == 0:
		return 0
	case hi >= c:
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, c)
	return q
}

// MulSaturating returns a*b, or the maximum uint64 if the product overflows.
func MulSaturating(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi > 0 {
		return math.MaxUint64
	}
	return lo
}

// AddSaturating returns a+b, or the maximum value if the sum overflows.
func AddSaturating[T ~uint64](a, b T) T {
	if b > math.MaxUint64-a {
		return math.MaxUint64
	}
	return a + b
}
