// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// Unit is the unit of a number: Num/Den µg per kWh.
type Unit struct{ Num, Den int64 }

// Units of carbon intensity.
var (
	GramsPerKWh = Unit{1_000_000, 1}
	// PoundsPerMWh uses the international pound of 453.59237 g.
	PoundsPerMWh = Unit{45_359_237, 100}
)

// MaxRate is the highest carbon intensity that Parse accepts, 3000 g/kWh. Lignite emits 364 g per
// kWh of heat (IPCC 2006, volume 2, table 2.2: 101 t/TJ), so a plant with an efficiency of 12 %,
// less than half the efficiency of any plant in use, would emit as much. The highest yearly mean of
// a country is 1306 g/kWh.
const MaxRate Rate = 3000 * 1_000_000

// The errors of Parse.
var (
	ErrNotNumber = errors.New("the value is not a number")
	ErrNegative  = errors.New("the value is negative")
)

// The maximum numbers of characters of a number: computing with longer numbers takes long, and real
// numbers are shorter.
const (
	maxMantissa = 40
	maxExponent = 3
)

// Parse returns the carbon intensity of a decimal number in a unit, rounded to the nearest µg, half
// up, without floating point. The error is ErrNotNumber, ErrNegative, or an error that names the
// range.
func Parse(text string, u Unit) (Rate, error) {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if len(mantissa) > maxMantissa || len(exponent) > maxExponent || strings.Trim(mantissa, "+-.0123456789") != "" {
		return 0, ErrNotNumber
	}
	number, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0, ErrNotNumber
	}
	number.Mul(number, big.NewRat(u.Num, u.Den))
	rounded, ok := new(big.Int).SetString(number.FloatString(0), 10)
	switch {
	case !ok:
		return 0, ErrNotNumber
	case number.Sign() < 0:
		return 0, ErrNegative
	case !rounded.IsInt64() || Rate(rounded.Int64()) > MaxRate:
		return 0, fmt.Errorf("the value is impossible: it must be from 0 to %d g/kWh", MaxRate/1_000_000)
	}
	return Rate(rounded.Int64()), nil
}
