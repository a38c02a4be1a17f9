// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// Unit is what a number is in: Num/Den millionths per kWh.
type Unit struct{ Num, Den int64 }

// Units of carbon intensities and of prices.
var (
	PerKWh = Unit{1_000_000, 1} // g, or a unit of a currency, per kWh
	PerMWh = Unit{1_000, 1}
	// PoundsPerMWh has the international pound of 453.59237 g.
	PoundsPerMWh = Unit{45_359_237, 100}
)

// Range is the rates that are possible.
type Range struct{ Min, Max Rate }

var (
	// Intensities are up to 3000 g/kWh. Lignite emits 364 g per kWh of heat (IPCC 2006, volume 2, table 2.2: 101 t/TJ), so that a
	// plant of an efficiency of 12 % would emit as much, less than half of that of any in use. The highest yearly mean of a country
	// is 1306 g/kWh.
	Intensities = Range{0, 3000 * 1_000_000}
	// Prices are up to a billion units per kWh, in either direction, so that no currency is too small.
	Prices = Range{-1e15, 1e15}
)

// The errors of Parse.
var (
	ErrNotNumber = errors.New("the value is not a number")
	ErrNegative  = errors.New("the value is negative")
)

// The most characters of a number: more take long to compute with, and nobody sends them.
const (
	maxMantissa = 40
	maxExponent = 3
)

// Parse returns the rate that a decimal number in a unit is, rounded to the nearest millionth, half away from 0. It is computed
// without floating point. The error is ErrNotNumber, ErrNegative where the range has no negative rates, or one that tells the range.
func (r Range) Parse(text string, u Unit) (Rate, error) {
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
	case number.Sign() < 0 && r.Min == 0:
		return 0, ErrNegative
	case !rounded.IsInt64() || Rate(rounded.Int64()) < r.Min || Rate(rounded.Int64()) > r.Max:
		return 0, fmt.Errorf("the value is impossible: it must be from %d to %d per kWh", r.Min/1_000_000, r.Max/1_000_000)
	}
	return Rate(rounded.Int64()), nil
}
