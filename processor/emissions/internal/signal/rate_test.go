// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNumbersAreExact(t *testing.T) {
	for text, want := range map[string]Rate{
		"56": 56_000_000, "0": 0, "-0": 0, "56.123456": 56_123_456, "0.0000004": 0, "0.0000005": 1, "5.6e1": 56_000_000, "3000": 3_000_000_000,
		"+7": 7_000_000, "1E3": 1_000_000_000,
	} {
		got, err := Parse(text, GramsPerKWh)
		assert.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	got, err := Parse("1000", PoundsPerMWh)
	assert.NoError(t, err)
	assert.Equal(t, Rate(453_592_370), got)
}

func TestImpossibleNumbersAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		"": "the value is not a number", "NaN": "the value is not a number", "Inf": "the value is not a number", "0x10": "the value is not a number",
		"1/3": "the value is not a number", "1e999999999": "the value is not a number", "1_000": "the value is not a number",
		"-1": "the value is negative", "-0.0000001": "the value is negative", "3000.1": "the value is impossible: it must be from 0 to 3000 g/kWh",
		"1e99": "the value is impossible: it must be from 0 to 3000 g/kWh",
	} {
		_, err := Parse(text, GramsPerKWh)
		assert.EqualError(t, err, want, text)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"56", "-0.5", "1e3", "0x1p-2", "1/3", "٣", "1e-9", " 5", "Infinity"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rate, err := Parse(text, GramsPerKWh)
		if err != nil {
			return
		}
		want, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("%q is a rate of %d", text, rate)
		}
		want.Mul(want, big.NewRat(1_000_000, 1))
		if off := want.Sub(want, big.NewRat(int64(rate), 1)); off.Abs(off).Cmp(big.NewRat(1, 2)) > 0 || rate < 0 || rate > MaxRate {
			t.Fatalf("%q is told as %d", text, rate)
		}
	})
}

func TestWeightedMeansAreExact(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var w weighted
		sum, length := new(big.Int), int64(0)
		for range 1 + random.IntN(5) {
			r, l := random.Int64()>>random.IntN(62), 1+random.Int64N(math.MaxInt64/8)>>random.IntN(62)
			w.add(Rate(r), l)
			length += l
			sum.Add(sum, new(big.Int).Mul(big.NewInt(r), big.NewInt(l)))
		}
		off := new(big.Rat).SetFrac(sum, big.NewInt(length))
		off.Sub(off, new(big.Rat).SetInt64(int64(w.mean())))
		if off.Abs(off).Cmp(big.NewRat(1, 2)) > 0 {
			t.Fatalf("%v over %d is told as %d", sum, length, w.mean())
		}
	}
}
