// SPDX-License-Identifier: Apache-2.0

package units

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// exactMulDiv computes MulDiv with big integers.
func exactMulDiv(a, b, c uint64) uint64 {
	if c == 0 {
		return 0
	}
	q := new(big.Int).SetUint64(a)
	q.Mul(q, new(big.Int).SetUint64(b))
	q.Quo(q, new(big.Int).SetUint64(c))
	if !q.IsUint64() {
		return math.MaxUint64
	}
	return q.Uint64()
}

func TestMulDivKnownValues(t *testing.T) {
	const most = math.MaxUint64
	for name, c := range map[string]struct{ a, b, c, want uint64 }{
		"exact":                        {6, 7, 2, 21},
		"rounds down":                  {10, 1, 3, 3},
		"nothing of something":         {0, 5, 9, 0},
		"divisor 0":                    {1, 1, 0, 0},
		"divisor 0 and nothing":        {0, 0, 0, 0},
		"product of 128 bits":          {most, most, most, most},
		"product of 128 bits, smaller": {most, most - 1, most, most - 1},
		"largest quotient that fits":   {1 << 63, 1, 1, 1 << 63},
		"quotient one bit too long":    {1 << 63, 2, 1, most},
		"quotient far too long":        {most, most, 1, most},
	} {
		assert.Equal(t, c.want, MulDiv(c.a, c.b, c.c), name)
	}
}

func TestMulSaturatingIsMulDivByOne(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 1000 {
		a, b := r.Uint64()>>r.IntN(64), r.Uint64()>>r.IntN(64)
		assert.Equal(t, exactMulDiv(a, b, 1), MulSaturating(a, b), "%d * %d", a, b)
	}
}

func TestMulDivEqualsExactArithmetic(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	// Random lengths: uniformly random numbers would nearly all have 63 or 64 bits.
	number := func() uint64 { return r.Uint64() >> r.IntN(64) }
	saturated := 0
	for range 100_000 {
		a, b, c := number(), number(), number()
		want := exactMulDiv(a, b, c)
		if got := MulDiv(a, b, c); got != want {
			t.Fatalf("MulDiv(%d, %d, %d) = %d, not %d", a, b, c, got, want)
		}
		if want == math.MaxUint64 {
			saturated++
		}
	}
	assert.Greater(t, saturated, 1000, "quotients that do not fit")
	assert.Less(t, saturated, 99_000, "quotients that do not fit")
}

func TestMulDivOfPartsAddsUpToTheWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		amount, whole, sum, prefix, before := r.Uint64(), uint64(0), uint64(0), uint64(0), uint64(0)
		parts := make([]uint64, 1+r.IntN(20))
		for i := range parts {
			parts[i] = r.Uint64() >> (5 + r.IntN(59))
			whole += parts[i]
		}
		if whole == 0 {
			continue
		}
		for _, p := range parts {
			prefix += p
			upTo := MulDiv(amount, prefix, whole)
			sum += upTo - before
			before = upTo
		}
		if sum != amount {
			t.Fatalf("the shares %v of %d add up to %d", parts, amount, sum)
		}
	}
}

func FuzzMulDiv(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint64(3))
	f.Add(uint64(math.MaxUint64), uint64(math.MaxUint64), uint64(1))
	f.Add(uint64(math.MaxUint64), uint64(5), uint64(0))
	f.Fuzz(func(t *testing.T, a, b, c uint64) {
		assert.Equal(t, exactMulDiv(a, b, c), MulDiv(a, b, c))
	})
}

func TestAdvanceNeverGoesBack(t *testing.T) {
	for name, c := range map[string]struct{ previous, current, want CPUTime }{
		"forward":         {3, 10, 7},
		"standing still":  {10, 10, 0},
		"back":            {10, 9, 0},
		"back to 0":       {math.MaxUint64, 0, 0},
		"the longest way": {0, math.MaxUint64, math.MaxUint64},
	} {
		assert.Equal(t, c.want, Advance(c.previous, c.current), name)
	}
}

func TestWatts(t *testing.T) {
	assert.InDelta(t, 40, Watts(400*Joule, 10*time.Second), 0)
	assert.InDelta(t, 0.5, Watts(Joule/2, time.Second), 0)
	assert.Zero(t, Watts(Joule, 0), "no time")
	assert.Zero(t, Watts(Joule, -time.Second), "a clock that went back")
	assert.Zero(t, Watts(0, time.Second))
}

func TestJoulesAndSeconds(t *testing.T) {
	assert.InDelta(t, 1.5, (1_500_000 * Energy(1)).Joules(), 0)
	assert.InDelta(t, 0.000001, Energy(1).Joules(), 0)
	assert.InDelta(t, 18446744073709.55, Energy(math.MaxUint64).Joules(), 0.01, "the largest")
	assert.InDelta(t, 2.5, CPUTime(2500*time.Millisecond).Seconds(), 0)
}
