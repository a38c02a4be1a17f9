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
// the amount is the exact sum rounded down, regardless of the division of energy into intervals.
type amount struct {
	whole int64
	rest  uint64 // the remainder, in µg / microjoulesPerKWh
}

// add adds energy in µJ times a rate. The sum saturates at math.MaxInt64.
func (a *amount) add(energy uint64, rate signal.Rate) {
	high, low := bits.Mul64(energy, uint64(rate)) // below 2^63 * 2^35: the quotient fits
	whole, rest := bits.Div64(high, low, microjoulesPerKWh)
	if a.rest += rest; a.rest >= microjoulesPerKWh {
		a.rest -= microjoulesPerKWh
		whole++
	}
	a.whole += int64(min(whole, uint64(math.MaxInt64-a.whole)))
}
