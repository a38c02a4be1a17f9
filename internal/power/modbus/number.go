// SPDX-License-Identifier: Apache-2.0

package modbus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"

	"github.com/energyreceiver/energyreceiver/internal/power/httpmeter"
)

// Number is the format of a number in 16-bit registers.
type Number struct {
	Type Type
	// LowWordFirst reports whether the first register has the least significant bits.
	LowWordFirst bool
	// Scale multiplies the number. It is 0.1 if the registers count tenths. It must be positive and
	// finite.
	Scale float64
}

// Type is the data type of a number, such as uint32 or float32.
type Type struct {
	Name   string
	size   int                                 // in bytes
	decode func(r *big.Rat, b []byte) *big.Rat // sets and returns r, or returns nil if the number is not finite
}

var types = []Type{
	{"uint16", 2, func(r *big.Rat, b []byte) *big.Rat { return r.SetUint64(uint64(binary.BigEndian.Uint16(b))) }},
	{"int16", 2, func(r *big.Rat, b []byte) *big.Rat { return r.SetInt64(int64(int16(binary.BigEndian.Uint16(b)))) }},
	{"uint32", 4, func(r *big.Rat, b []byte) *big.Rat { return r.SetUint64(uint64(binary.BigEndian.Uint32(b))) }},
	{"int32", 4, func(r *big.Rat, b []byte) *big.Rat { return r.SetInt64(int64(int32(binary.BigEndian.Uint32(b)))) }},
	{"uint64", 8, func(r *big.Rat, b []byte) *big.Rat { return r.SetUint64(binary.BigEndian.Uint64(b)) }},
	{"int64", 8, func(r *big.Rat, b []byte) *big.Rat { return r.SetInt64(int64(binary.BigEndian.Uint64(b))) }},
	{"float32", 4, func(r *big.Rat, b []byte) *big.Rat {
		return r.SetFloat64(float64(math.Float32frombits(binary.BigEndian.Uint32(b))))
	}},
	{"float64", 8, func(r *big.Rat, b []byte) *big.Rat {
		return r.SetFloat64(math.Float64frombits(binary.BigEndian.Uint64(b)))
	}},
}

// Registers returns the number of registers of a number, or 0 for the zero Type.
func (t Type) Registers() int { return t.size / 2 }

// Types returns the names of all types.
func Types() []string {
	names := make([]string, len(types))
	for i := range types {
		names[i] = types[i].Name
	}
	return names
}

// LookupType returns the type with the given name, and reports whether the type exists.
func LookupType(name string) (Type, bool) {
	i := slices.IndexFunc(types, func(t Type) bool { return t.Name == name })
	if i < 0 {
		return Type{}, false
	}
	return types[i], true
}

var errNotFinite = errors.New("the number is not finite")

// micro converts the bytes of registers, in the order of the response, to microwatts or
// microjoules.
func (n *Number) micro(registers []byte, unit httpmeter.Unit) (uint64, error) {
	if len(registers) != n.Type.size {
		return 0, fmt.Errorf("%d bytes instead of %d", len(registers), n.Type.size)
	}
	if n.LowWordFirst {
		registers = reverseWords(registers)
	}
	number := n.Type.decode(new(big.Rat), registers)
	if number == nil {
		return 0, errNotFinite
	}
	// The scale is converted through its decimal digits, because a float64 cannot represent 0.1
	// exactly.
	scale, _ := new(big.Rat).SetString(strconv.FormatFloat(n.Scale, 'g', -1, 64))
	return unit.MicroOf(number.Mul(number, scale))
}

// reverseWords returns the 16-bit words of b in reverse order.
func reverseWords(b []byte) []byte {
	reversed := make([]byte, 0, len(b))
	for i := len(b) - 2; i >= 0; i -= 2 {
		reversed = append(reversed, b[i:i+2]...)
	}
	return reversed
}
