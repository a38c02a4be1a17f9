// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// A reading that adds 1 count, some 0.00023 µJ, is not rounded away.
func TestSmallReadingsAddUpWithoutDrift(t *testing.T) {
	s, err := parseScale("2.3283064365386962890625e-10")
	require.NoError(t, err)
	var sum units.Energy
	var rest uint64
	const counts, steps = 12_345, 1_000_000
	for range steps {
		sum += s.microjoules(counts, &rest)
	}
	exact := new(big.Int).Mul(big.NewInt(counts*steps), big.NewInt(1_000_000))
	exact.Rsh(exact, 32)
	assert.Equal(t, exact.Uint64(), uint64(sum))
}

func TestScalesAreExactOrRefused(t *testing.T) {
	for text, want := range map[string]scale{
		"2.3283064365386962890625e-10\n": {15625, 1 << 26}, // the kernel's: 10^6 / 2^32
		"1e-6":                           {1, 1}, "1": {1_000_000, 1}, "0.5": {500_000, 1}, "6.103515625e-05": {15625, 256}, "1e-9": {1, 1000},
	} {
		s, err := parseScale(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, s, text)
	}
	for _, text := range []string{"", "x", "0", "-1", "1/3", "0x1p-32", "inf", "nan", "1e-40", "1e30", "1e999999999", "3.1415926535897932384626433e-10"} {
		_, err := parseScale(text)
		require.ErrorIs(t, err, errScale, text)
	}
}

func TestAnAbsurdCountSaturates(t *testing.T) {
	var rest uint64
	assert.Equal(t, ^units.Energy(0), scale{1_000_000, 1}.microjoules(1<<62, &rest))
}

func FuzzParseScale(f *testing.F) {
	f.Add("2.3283064365386962890625e-10\n")
	f.Add("1e-6")
	f.Add("1e-1000000")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := parseScale(text); err == nil && (s.num == 0 || s.den == 0) {
			t.Fatalf("%q is %v", text, s)
		}
	})
}
