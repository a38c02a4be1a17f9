// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// scale is the energy of one count of an event: exactly num/den microjoules, in lowest terms.
type scale struct{ num, den uint64 }

var errScale = errors.New("not a positive number of joules that can be computed exactly")

// parseScale reads the scale of an event in joules, a decimal number. The kernel's scale is
// 2.3283064365386962890625e-10, which is 2^-32 (arch/x86/events/rapl.c).
func parseScale(text string) (scale, error) {
	text = strings.TrimSpace(text)
	if strings.Trim(text, "0123456789.eE+-") != "" { // big.Rat also reads fractions and other bases
		return scale{}, fmt.Errorf("scale %q: %w", text, errScale)
	}
	joules, ok := new(big.Rat).SetString(text)
	if !ok {
		return scale{}, fmt.Errorf("scale %q: %w", text, errScale)
	}
	micro := joules.Mul(joules, big.NewRat(1_000_000, 1))
	if micro.Sign() <= 0 || !micro.Num().IsUint64() || !micro.Denom().IsUint64() {
		return scale{}, fmt.Errorf("scale %q: %w", text, errScale)
	}
	return scale{micro.Num().Uint64(), micro.Denom().Uint64()}, nil
}

// microjoules returns the energy of the counts and of rest in whole microjoules. It sets rest to
// the remaining fraction, in units of 1/den µJ. It saturates at 2^64-1 µJ.
func (s scale) microjoules(counts uint64, rest *uint64) units.Energy {
	hi, lo := bits.Mul64(counts, s.num)
	lo, carry := bits.Add64(lo, *rest, 0)
	hi += carry
	if hi >= s.den {
		*rest = 0
		return ^units.Energy(0)
	}
	energy, left := bits.Div64(hi, lo, s.den)
	*rest = left
	return units.Energy(energy)
}
