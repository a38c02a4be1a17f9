// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// divide returns the parts of an amount by phase, which must add up to it.
func divide(t *testing.T, s *Share, amount uint64) map[string]uint64 {
	t.Helper()
	parts, sum := map[string]uint64{}, uint64(0)
	s.Divide(amount, func(phase string, part uint64) {
		require.NotContains(t, parts, phase)
		require.NotZero(t, part)
		parts[phase] = part
		sum += part
	})
	require.Equal(t, amount, sum)
	return parts
}

func TestAnAmountIsDividedByUse(t *testing.T) {
	var s Share
	s.Use("a", 1)
	s.Use("b", 5)
	s.Use("a", 1)
	s.Use("none", 0)
	assert.Equal(t, map[string]uint64{"a": 2, "b": 5}, divide(t, &s, 7))
	assert.Equal(t, map[string]uint64{"none": 7}, divide(t, &s, 7), "what was used before counts no longer")
}

func TestWhereNothingWasUsedTheCurrentPhaseHasTheAmount(t *testing.T) {
	var s Share
	assert.Equal(t, map[string]uint64{None: 3}, divide(t, &s, 3))
	s.Use("a", 0)
	assert.Equal(t, map[string]uint64{"a": 3}, divide(t, &s, 3))
	s.Use("a", 9)
	s.Use("b", 0)
	s.Forget()
	assert.Equal(t, map[string]uint64{"b": 3}, divide(t, &s, 3))
}

func TestUseWaitsForAnAmount(t *testing.T) {
	var s Share
	s.Use("a", 3)
	assert.Empty(t, divide(t, &s, 0))
	s.Use("b", 1)
	assert.Equal(t, map[string]uint64{"a": 6, "b": 2}, divide(t, &s, 8))
}

func TestPartsOfAnyAmountAddUpToItAndAreOffByLessThanAUnit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	number := func() uint64 { return r.Uint64() >> r.UintN(65) }
	for range 20_000 {
		var s Share
		used, total := map[string]*big.Int{}, new(big.Int)
		for range r.IntN(12) {
			name, n := string(rune('a'+r.IntN(4))), number()>>4 // so that they do not reach the largest value
			s.Use(name, n)
			if used[name] == nil {
				used[name] = new(big.Int)
			}
			used[name].Add(used[name], new(big.Int).SetUint64(n))
			total.Add(total, new(big.Int).SetUint64(n))
		}
		amount, last := number(), s.Current()
		parts := divide(t, &s, amount)
		if total.Sign() == 0 {
			assert.Equal(t, amount, parts[last])
			continue
		}
		for name, n := range used {
			exact := new(big.Int).Mul(n, new(big.Int).SetUint64(amount))
			exact.Div(exact, total)
			off := new(big.Int).Sub(exact, new(big.Int).SetUint64(parts[name]))
			require.LessOrEqual(t, off.CmpAbs(big.NewInt(1)), 0, "%s of %d: %d", name, amount, parts[name])
		}
	}
}

func TestMoreUseThanCanBeCountedIsStillDivided(t *testing.T) {
	var s Share
	s.Use("a", math.MaxUint64)
	s.Use("a", 1)
	s.Use("b", math.MaxUint64)
	divide(t, &s, math.MaxUint64)
}

func TestAShareTakesMemoryForPhasesAndNotForMarks(t *testing.T) {
	var s Share
	names := strings.Split("abcdefghij", "")
	use := func() {
		for i := range 10_000 {
			s.Use(names[i%10], 1)
		}
		s.Divide(1, func(string, uint64) {})
	}
	use()
	assert.Zero(t, testing.AllocsPerRun(10, use))
	assert.Equal(t, 16, cap(s.used))
}
