// SPDX-License-Identifier: Apache-2.0

// Package pack writes values in a compact binary form, and reads them back. One function describes
// a type for both directions: it passes pointers to the fields of the type to a Packer, in the
// order of the binary form. The binary form does not describe its values, so a change of such a
// function requires a new version number.
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
	b       []byte // when writing, the output; when reading, the rest of the input
	reading bool
	err     error
}

// NewWriter returns a Packer that writes, and appends to b.
func NewWriter(b []byte) *Packer { return &Packer{b: b} }

// NewReader returns a Packer that reads b.
func NewReader(b []byte) *Packer { return &Packer{b: b, reading: true} }

// Bytes returns the slice of NewWriter with the written values appended.
func (p *Packer) Bytes() []byte { return p.b }

// Reading reports whether values are read.
func (p *Packer) Reading() bool { return p.reading }

// ErrMalformed reports that the input does not have the form that the reader expects.
var ErrMalformed = errors.New("it is malformed")

// Err returns the error of the first value that could not be read, or nil. Values that could not be
// read are 0.
func (p *Packer) Err() error { return p.err }

// End returns Err, or ErrMalformed if unread bytes are left.
func (p *Packer) End() error {
	if p.err == nil && p.reading && len(p.b) > 0 {
		p.err = ErrMalformed
	}
	return p.err
}

// Fail marks the input as malformed. It has no effect on a writer.
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

// Time packs a wall clock time. The time that is read is in UTC and has no monotonic clock reading.
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

// Slice packs each element of a slice. A reader reuses the memory of the slice.
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

// Map packs the sorted keys of a map, and then the elements in the same order. An empty map is read
// as nil.
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

// Pointer packs the value that v points to, or a mark for nil.
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
