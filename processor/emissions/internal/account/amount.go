// SPDX-License-Identifier: Apache-2.0

package account

import (
	"math"
	"math/bits"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// microjoulesPerKWh is the divisor of energy in µJ times a rate in µg per kWh.
const microjoulesPerKWh = 3_600_000_000_000

// amount is a sum of energies, each multiplied by a rate, in whole µg. The remainder is carried, so
// the amount is the exact sum rounded down, however the energy was divided into intervals. The zero
// amount is 0.
type amount struct {
	whole int64
	rest  uint64 // of whole+1, in parts of microjoulesPerKWh
}

// add adds energy in µJ times a rate. A sum that does not fit stays at the largest int64.
func (a *amount) add(energy uint64, rate signal.Rate) {
	high, low := bits.Mul64(energy, uint64(rate))
	if high >= microjoulesPerKWh {
		high, low = microjoulesPerKWh-1, math.MaxUint64 // the quotient does not fit: neither does the sum
	}
	whole, rest := bits.Div64(high, low, microjoulesPerKWh)
	if a.rest += rest; a.rest >= microjoulesPerKWh {
		a.rest -= microjoulesPerKWh
		whole = min(whole, math.MaxUint64-1) + 1
	}
	a.whole += int64(min(whole, uint64(math.MaxInt64-a.whole)))
}

// scale returns a rate times a factor in millionths, rounded to the nearest. A result that does not
// fit is the largest rate.
func scale(r signal.Rate, factor uint64) signal.Rate {
	high, low := bits.Mul64(uint64(r), factor)
	low, carry := bits.Add64(low, 500_000, 0)
	if high += carry; high >= 1_000_000 {
		return math.MaxInt64
	}
	scaled, _ := bits.Div64(high, low, 1_000_000)
	return signal.Rate(min(scaled, math.MaxInt64))
}
