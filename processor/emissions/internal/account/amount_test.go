// SPDX-License-Identifier: Apache-2.0

package account

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

func TestAnAmountIsTheExactSumRoundedDown(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var a amount
		exact, floor := new(big.Int), new(big.Int)
		for range 200 {
			energy := random.Uint64N(1 << (1 + random.UintN(50)))
			rate := signal.Rate(random.Int64N(1 << (1 + random.UintN(34))))
			a.add(energy, rate)
			exact.Add(exact, new(big.Int).Mul(new(big.Int).SetUint64(energy), big.NewInt(int64(rate))))
			floor.Div(exact, big.NewInt(microjoulesPerKWh))
			if floor.Int64() != a.whole {
				t.Fatalf("%v, want %v", a.whole, floor)
			}
		}
	}
}

func TestAnAmountThatDoesNotFitStaysAtItsBound(t *testing.T) {
	var a amount
	for range 3 {
		a.add(math.MaxUint64, math.MaxInt64)
		assert.Equal(t, int64(math.MaxInt64), a.whole)
	}
	a = amount{whole: math.MaxInt64 - 1, rest: microjoulesPerKWh - 1}
	a.add(1, 1)
	assert.Equal(t, amount{whole: math.MaxInt64}, a)
}

func TestARateIsMultipliedByThePUE(t *testing.T) {
	for _, c := range []struct {
		rate   signal.Rate
		factor uint64
		want   signal.Rate
	}{
		{230_000_000, 1_000_000, 230_000_000},
		{230_000_000, 1_250_000, 287_500_000},
		{1, 1_500_000, 2}, // to the nearest, halves up
		{1, 1_499_999, 1},
		{math.MaxInt64, 10_000_000, math.MaxInt64},
		{0, 1_250_000, 0},
	} {
		assert.Equal(t, c.want, scale(c.rate, c.factor), "%d * %d", c.rate, c.factor)
	}
}
