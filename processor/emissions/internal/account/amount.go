// SPDX-License-Identifier: Apache-2.0

package account

import (
	"math"
	"math/bits"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// microjoulesPerKWh is the divisor of energy in µJ times a rate in millionths for each kWh.
const microjoulesPerKWh = 3_600_000_000_000

// amount is a sum of energies, each multiplied by a rate, in whole millionths. What is left of a millionth is carried, so that the
// whole is the exact sum rounded down, however it was divided into intervals. The zero amount is 0.
type amount struct {
	whole int64
	rest  uint64 // of whole+1, in parts of microjoulesPerKWh
}

// add adds energy in µJ times a rate. A sum that does not fit stays at the largest or the smallest one.
func (a *amount) add(energy uint64, rate signal.Rate) {
	high, low := bits.Mul64(energy, magnitude(rate))
	if high >= microjoulesPerKWh {
		high, low = microjoulesPerKWh-1, math.MaxUint64 // the quotient does not fit: neither will the sum
	}
	whole, rest := bits.Div64(high, low, microjoulesPerKWh)
	if rate < 0 {
		if rest > a.rest {
			a.rest += microjoulesPerKWh
			whole = addOne(whole)
		}
		a.rest -= rest
		a.whole = minus(a.whole, whole)
		return
	}
	if a.rest += rest; a.rest >= microjoulesPerKWh {
		a.rest -= microjoulesPerKWh
		whole = addOne(whole)
	}
	a.whole = plus(a.whole, whole)
}

// magnitude returns a rate without its sign.
func magnitude(r signal.Rate) uint64 {
	if r < 0 {
		return -uint64(r) // also of the smallest rate, whose negative is no Rate
	}
	return uint64(r)
}

func addOne(x uint64) uint64 { return min(x, math.MaxUint64-1) + 1 }

// plus returns a + b, at most the largest int64.
func plus(a int64, b uint64) int64 {
	if room := uint64(math.MaxInt64) - uint64(a); b > room { // exact for a < 0 too, by two's complement
		return math.MaxInt64
	}
	return int64(uint64(a) + b)
}

// minus returns a - b, at least the smallest int64.
func minus(a int64, b uint64) int64 {
	if room := uint64(a) - uint64(1<<63); b > room {
		return math.MinInt64
	}
	return int64(uint64(a) - b)
}

// scale returns a rate times a factor in millionths, rounded to the nearest. One that does not fit is the largest or smallest.
func scale(r signal.Rate, factor uint64) signal.Rate {
	high, low := bits.Mul64(magnitude(r), factor)
	low, carry := bits.Add64(low, 500_000, 0)
	if high += carry; high >= 1_000_000 {
		high, low = 999_999, math.MaxUint64
	}
	scaled, _ := bits.Div64(high, low, 1_000_000)
	if scaled > math.MaxInt64 {
		scaled = math.MaxInt64
	}
	if r < 0 {
		return -signal.Rate(scaled)
	}
	return signal.Rate(scaled)
}
