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
	a := amount{whole: math.MaxInt64 - 1, rest: microjoulesPerKWh - 1}
	a.add(1, 1)
	assert.Equal(t, amount{whole: math.MaxInt64}, a)
	a.add(math.MaxInt64, signal.MaxRate)
	assert.Equal(t, int64(math.MaxInt64), a.whole)
}

func TestARateIsMultipliedByThePUE(t *testing.T) {
	for _, c := range []struct {
		rate signal.Rate
		pue  float64
		want signal.Rate
	}{
		{230_000_000, 1, 230_000_000},
		{230_000_000, 1.25, 287_500_000},
		{1, 1.5, 2}, // to the nearest, halves up
		{1, 1.499999, 1},
		{signal.MaxRate, 10, 10 * signal.MaxRate},
		{0, 1.25, 0},
	} {
		assert.Equal(t, c.want, New(Options{Signal: signal.Constant(c.rate), PUE: c.pue}).spell(0, 1).rate, "%d * %v", c.rate, c.pue)
	}
}
