// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type part struct {
	name  string
	small uint8
}

type whole struct {
	parts     []part
	one       *part
	none      *part
	at, never time.Time
	size      uint64
	change    int64
	yes, no   bool
	numbers   []float64
}

func packPart(p *Packer, v *part) {
	String(p, &v.name)
	Uint(p, &v.small)
}

func packWhole(p *Packer, v *whole) {
	Slice(p, &v.parts, packPart)
	Pointer(p, &v.one, packPart)
	Pointer(p, &v.none, packPart)
	p.Time(&v.at)
	p.Time(&v.never)
	Uint(p, &v.size)
	Int(p, &v.change)
	p.Bools(&v.yes, &v.no)
	Slice(p, &v.numbers, (*Packer).Float)
}

var example = whole{
	parts: []part{{"a", 1}, {"", 255}, {"\x00\xff", 0}}, one: &part{"one", 1},
	at: time.Unix(1_700_000_000, 5).UTC(), size: math.MaxUint64, change: math.MinInt64, yes: true,
	numbers: []float64{0, 1, -math.Pi, math.Inf(1), math.MaxFloat64, math.SmallestNonzeroFloat64},
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	w := NewWriter([]byte("before"))
	packWhole(w, &example)
	r := NewReader(w.Bytes()[len("before"):])
	var read whole
	packWhole(r, &read)
	require.NoError(t, r.End())
	assert.Equal(t, example, read)
}

func TestMapsAreWrittenInTheOrderOfTheirKeys(t *testing.T) {
	written := map[string]part{}
	for i := range uint8(100) {
		written[string('a'+rune(i))] = part{"name", i}
	}
	w, again := NewWriter(nil), NewWriter(nil)
	Map(w, &written, packPart)
	Map(again, &written, packPart)
	assert.Equal(t, w.Bytes(), again.Bytes())
	read := map[string]part{"replaced": {}}
	r := NewReader(w.Bytes())
	Map(r, &read, packPart)
	require.NoError(t, r.End())
	assert.Equal(t, written, read)

	var none map[string]part
	w = NewWriter(nil)
	Map(w, &none, packPart)
	Map(NewReader(w.Bytes()), &read, packPart)
	assert.Nil(t, read)
}

func TestAFloatOf0TakesOneByte(t *testing.T) {
	w := NewWriter(nil)
	w.Float(new(float64))
	assert.Len(t, w.Bytes(), 1)
}

func TestWhatWasCutOffIsMalformed(t *testing.T) {
	w := NewWriter(nil)
	packWhole(w, &example)
	for n := range w.Bytes() {
		r := NewReader(w.Bytes()[:n])
		var read whole
		packWhole(r, &read)
		require.ErrorIs(t, r.End(), ErrMalformed, "%d bytes", n)
	}
	r := NewReader(append(w.Bytes(), 0))
	packWhole(r, new(whole))
	require.NoError(t, r.Err())
	require.ErrorIs(t, r.End(), ErrMalformed, "something is left")
}

func TestNumbersThatDoNotFitAreMalformed(t *testing.T) {
	w := NewWriter(nil)
	large, negative := uint64(256), int64(math.MinInt64)
	Uint(w, &large)
	Int(w, &negative)
	var small uint8
	r := NewReader(w.Bytes())
	Uint(r, &small)
	require.ErrorIs(t, r.Err(), ErrMalformed)
	var narrow int32
	r = NewReader(w.Bytes()[2:])
	Int(r, &narrow)
	require.ErrorIs(t, r.Err(), ErrMalformed)
}

func TestWritingAllocatesThePackerOnly(t *testing.T) {
	b := make([]byte, 0, 4096)
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { packWhole(NewWriter(b), &example) }), 1.0, "the Packer")
}

func FuzzReading(f *testing.F) {
	w := NewWriter(nil)
	packWhole(w, &example)
	f.Add(w.Bytes())
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(b)
		var read whole
		packWhole(r, &read)
		assert.LessOrEqual(t, len(read.parts), len(b))
	})
}
