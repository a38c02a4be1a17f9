// SPDX-License-Identifier: Apache-2.0

// Package pack writes values in a compact binary form, and reads them back. One function describes
// a type for both directions: it passes pointers to its fields to a Packer, in the order in which
// they are written. Nothing in the form says what a value is, so a change of such a function needs
// another version of the form.
package pack

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"
)

// Packer writes values, or reads them. The zero Packer is not usable; call NewWriter or NewReader.
type Packer struct {
	b       []byte // what was written, or what remains to be read
	reading bool
	err     error
}

// NewWriter returns a Packer that appends what it writes to b.
func NewWriter(b []byte) *Packer { return &Packer{b: b} }

// NewReader returns a Packer that reads b.
func NewReader(b []byte) *Packer { return &Packer{b: b, reading: true} }

// Bytes returns b with what was written.
func (p *Packer) Bytes() []byte { return p.b }

// Reading reports whether values are read.
func (p *Packer) Reading() bool { return p.reading }

// ErrMalformed reports that something else was written than what was to be read.
var ErrMalformed = errors.New("it is malformed")

// Err returns why values could not be read, nil if they could. Those that could not are 0.
func (p *Packer) Err() error { return p.err }

// End returns why not all values could be read, or ErrMalformed if something is left.
func (p *Packer) End() error {
	if p.err == nil && p.reading && len(p.b) > 0 {
		p.err = ErrMalformed
	}
	return p.err
}

// Fail notes that what was read cannot be what was written.
func (p *Packer) Fail() {
	if p.reading {
		p.err, p.b = ErrMalformed, nil
	}
}

// Uint packs a number that is not negative.
func Uint[T ~uint8 | ~uint32 | ~uint64](p *Packer, v *T) {
	if !p.reading {
		p.b = binary.AppendUvarint(p.b, uint64(*v))
		return
	}
	u, n := binary.Uvarint(p.b)
	if n <= 0 || u > uint64(^T(0)) {
		p.Fail()
		return
	}
	*v, p.b = T(u), p.b[n:]
}

// Int packs a number that may be negative.
func Int[T ~int | ~int32 | ~int64](p *Packer, v *T) {
	if !p.reading {
		p.b = binary.AppendVarint(p.b, int64(*v))
		return
	}
	i, n := binary.Varint(p.b)
	if n <= 0 || int64(T(i)) != i {
		p.Fail()
		return
	}
	*v, p.b = T(i), p.b[n:]
}

// Bools packs up to eight conditions as one byte.
func (p *Packer) Bools(conditions ...*bool) {
	var set uint8
	for i, c := range conditions {
		if *c {
			set |= 1 << i
		}
	}
	Uint(p, &set)
	for i, c := range conditions {
		*c = set&(1<<i) != 0
	}
}

// String packs a string.
func String[T ~string](p *Packer, v *T) {
	n := uint64(len(*v))
	Uint(p, &n)
	switch {
	case !p.reading:
		p.b = append(p.b, *v...)
	case n > uint64(len(p.b)):
		p.Fail()
	default:
		*v, p.b = T(p.b[:n]), p.b[n:]
	}
}

// Float packs a floating-point number. A number with few digits takes few bytes, and 0 takes one.
func (p *Packer) Float(v *float64) {
	reversed := bits.ReverseBytes64(math.Float64bits(*v))
	if Uint(p, &reversed); p.reading {
		*v = math.Float64frombits(bits.ReverseBytes64(reversed))
	}
}

// Time packs a moment of the wall clock. It comes back in UTC and without its monotonic part.
func (p *Packer) Time(v *time.Time) {
	nanoseconds := int64(math.MinInt64) // of the zero time
	if !p.reading && !v.IsZero() {
		nanoseconds = v.UnixNano()
	}
	if Int(p, &nanoseconds); p.reading {
		if *v = (time.Time{}); nanoseconds != math.MinInt64 && p.err == nil {
			*v = time.Unix(0, nanoseconds).UTC()
		}
	}
}

// Slice packs each element of a slice. Elements are read into the memory that the slice has.
func Slice[T any](p *Packer, v *[]T, element func(*Packer, *T)) {
	n := uint64(len(*v))
	if Uint(p, &n); !p.reading {
		for i := range *v {
			element(p, &(*v)[i])
		}
		return
	}
	*v = (*v)[:0]
	for ; n > 0 && p.err == nil; n-- {
		if len(p.b) == 0 {
			p.Fail()
			return
		}
		var zero T
		*v = append(*v, zero)
		element(p, &(*v)[len(*v)-1])
	}
}

// Map packs the keys of a map in their order, and then each element. An empty map is read as nil.
func Map[T any](p *Packer, v *map[string]T, element func(*Packer, *T)) {
	keys := slices.Sorted(maps.Keys(*v))
	Slice(p, &keys, String)
	if p.reading {
		*v = nil
	}
	for _, key := range keys {
		value := (*v)[key]
		if element(p, &value); *v == nil {
			*v = make(map[string]T, len(keys))
		}
		(*v)[key] = value
	}
}

// Pointer packs what v points to, or that it is nil.
func Pointer[T any](p *Packer, v **T, value func(*Packer, *T)) {
	is := *v != nil
	if p.Bools(&is); !is {
		*v = nil
		return
	}
	if p.reading {
		*v = new(T)
	}
	value(p, *v)
}
