// SPDX-License-Identifier: Apache-2.0

package signal

import "math/bits"

// weighted is a sum of rates, each times a length in nanoseconds, in two's complement of 128 bits. The lengths add up to less than
// 2^63.
type weighted struct {
	hi, lo uint64
	length uint64
}

func (w *weighted) add(r Rate, length int64) {
	hi, lo := bits.Mul64(magnitude(int64(r)), uint64(length))
	if r < 0 {
		hi, lo = negate(hi, lo)
	}
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, lo, 0)
	w.hi, _ = bits.Add64(w.hi, hi, carry)
	w.length += uint64(length)
}

// mean returns the sum over the length, rounded to the nearest, half away from 0. The length must not be 0.
func (w *weighted) mean() Rate {
	hi, lo := w.hi, w.lo
	negative := int64(hi) < 0
	if negative {
		hi, lo = negate(hi, lo)
	}
	lo, carry := bits.Add64(lo, w.length/2, 0)
	quotient, _ := bits.Div64(hi+carry, lo, w.length) // below 2^63, as each rate is
	if negative {
		return -Rate(quotient)
	}
	return Rate(quotient)
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

func negate(hi, lo uint64) (uint64, uint64) {
	lo, borrow := bits.Sub64(0, lo, 0)
	hi, _ = bits.Sub64(0, hi, borrow)
	return hi, lo
}
