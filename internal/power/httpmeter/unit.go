// SPDX-License-Identifier: Apache-2.0

package httpmeter

import (
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
)

// Unit is a unit of power or of energy.
type Unit struct {
	Name    string
	IsPower bool
	micro   int64 // how many microwatts or microjoules it is
}

var unitTable = []Unit{
	{"mW", true, 1_000}, {"W", true, 1_000_000}, {"kW", true, 1_000_000_000},
	{"mJ", false, 1_000}, {"J", false, 1_000_000}, {"kJ", false, 1_000_000_000}, {"MJ", false, 1_000_000_000_000},
	{"Wmin", false, 60_000_000},
	{"mWh", false, 3_600_000}, {"Wh", false, 3_600_000_000}, {"kWh", false, 3_600_000_000_000}, {"MWh", false, 3_600_000_000_000_000},
}

// Units lists the names of all units.
func Units() []string {
	names := make([]string, len(unitTable))
	for i := range unitTable {
		names[i] = unitTable[i].Name
	}
	return names
}

// LookupUnit returns the unit of a name, and reports whether there is one.
func LookupUnit(name string) (Unit, bool) {
	i := slices.IndexFunc(unitTable, func(u Unit) bool { return u.Name == name })
	if i < 0 {
		return Unit{}, false
	}
	return unitTable[i], true
}

var (
	errNegative = errors.New("the number is negative")
	errTooLarge = errors.New("the number is impossibly large")
)

// Micro returns a JSON number, or one in a string as Prometheus writes it, in microwatts or
// microjoules, rounded down. It is computed without floating point. Numbers below 0 and from 2^63
// microjoules on are errors.
func (u Unit) Micro(value json.RawMessage) (uint64, error) {
	text, err := fetch.NumberText(value)
	if err != nil {
		return 0, err
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if len(mantissa) > maxMantissa || len(exponent) > maxExponent {
		return 0, fetch.ErrNotNumber
	}
	number, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0, fetch.ErrNotNumber
	}
	return u.MicroOf(number)
}

// MicroOf is like Micro, for a number. It changes the number.
func (u Unit) MicroOf(number *big.Rat) (uint64, error) {
	if number.Sign() < 0 {
		return 0, errNegative
	}
	number.Mul(number, new(big.Rat).SetInt64(u.micro))
	whole := new(big.Int).Quo(number.Num(), number.Denom())
	if !whole.IsInt64() {
		return 0, errTooLarge
	}
	return whole.Uint64(), nil
}

// The most characters of a number: more take long to compute with, and no meter has them.
const (
	maxMantissa = 100
	maxExponent = 4
)
