// SPDX-License-Identifier: Apache-2.0

package signal

import "math/bits"

// weighted is a sum of rates in 128 bits, each rate multiplied by a length in nanoseconds. The
// lengths add up to less than 2^63.
type weighted struct {
	hi, lo uint64
	length uint64
}

func (w *weighted) add(r Rate, length int64) {
	hi, lo := bits.Mul64(uint64(r), uint64(length))
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, lo, 0)
	w.hi, _ = bits.Add64(w.hi, hi, carry)
	w.length += uint64(length)
}

// mean returns the sum divided by the length, rounded to the nearest, half up. The length must not be 0.
func (w *weighted) mean() Rate {
	lo, carry := bits.Add64(w.lo, w.length/2, 0)
	quotient, _ := bits.Div64(w.hi+carry, lo, w.length) // below 2^63, as each rate is
	return Rate(quotient)
}
