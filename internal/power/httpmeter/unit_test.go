// SPDX-License-Identifier: Apache-2.0

package httpmeter

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
)

func mustLookup(t testing.TB, name string) Unit {
	t.Helper()
	u, ok := LookupUnit(name)
	require.True(t, ok, name)
	return u
}

func TestNumbersAreConvertedExactly(t *testing.T) {
	for _, c := range []struct {
		number, unit string
		want         uint64
	}{
		{"12345.678", "Wh", 44_444_440_800_000},
		{"439237", "Wmin", 26_354_220_000_000},
		{"167.743", "kWh", 603_874_800_000_000},
		{"9007199254740993", "mJ", 9_007_199_254_740_993_000}, // no double is 2^53+1
		{"1.5", "J", 1_500_000},
		{"2", "kJ", 2_000_000_000},
		{"3", "MJ", 3_000_000_000_000},
		{"4", "mWh", 14_400_000},
		{"2.5", "MWh", 9_000_000_000_000_000},
		{"106.3", "W", 106_300_000},
		{"1.063E+2", "W", 106_300_000},
		{"0.4", "kW", 400_000_000},
		{"106300", "mW", 106_300_000},
		{"1.9999999", "W", 1_999_999},
		{"-0", "W", 0},
	} {
		for _, value := range []string{c.number, `"` + c.number + `"`} {
			got, err := mustLookup(t, c.unit).Micro(json.RawMessage(value))
			require.NoError(t, err, "%s %s", value, c.unit)
			assert.Equal(t, c.want, got, "%s %s", value, c.unit)
		}
	}
}

func TestWhatIsNoEnergyIsRefused(t *testing.T) {
	unit := mustLookup(t, "Wh")
	for text, want := range map[string]error{
		`null`: fetch.ErrNoValue, `[1]`: fetch.ErrNotNumber,
		`""`: fetch.ErrNoValue, `"NaN"`: fetch.ErrNotNumber, `"-Inf"`: fetch.ErrNotNumber, `"1,5"`: fetch.ErrNotNumber, `"1.5 Wh"`: fetch.ErrNotNumber,
		`"0x10"`:      fetch.ErrNotNumber,
		`1e999999999`: fetch.ErrNotNumber, `"1e-999999999"`: fetch.ErrNotNumber,
		`-1`: errNegative, `"-0.001"`: errNegative,
		`1e99`: errTooLarge, `2562047788.1`: errTooLarge, // Wh, from 2^63 µJ on
	} {
		_, err := unit.Micro(json.RawMessage(text))
		assert.Equal(t, want, err, text)
	}
	_, err := unit.Micro(json.RawMessage("1" + strings.Repeat("0", 200)))
	assert.Equal(t, fetch.ErrNotNumber, err)
}

func TestUnitsAreOfPowerOrOfEnergy(t *testing.T) {
	for _, name := range Units() {
		assert.Equal(t, strings.HasSuffix(name, "W"), mustLookup(t, name).IsPower, name)
	}
	_, ok := LookupUnit("VA")
	assert.False(t, ok)
}

// A number is converted as arithmetic with fractions says, or refused.
func FuzzDecimal(f *testing.F) {
	for _, text := range []string{"12345.678", "-1", "1e3", `"NaN"`, `"+1.5"`, "1/2", "0x1p-2", "1e-99"} {
		f.Add(text)
	}
	unit := mustLookup(f, "Wh")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := unit.Micro(json.RawMessage(text))
		if err != nil {
			return
		}
		if quoted := ""; json.Unmarshal([]byte(text), &quoted) == nil {
			text = quoted
		}
		number, ok := new(big.Rat).SetString(strings.TrimSpace(text))
		if !ok {
			t.Fatalf("%q is no number and gave %d", text, got)
		}
		number.Mul(number, big.NewRat(3_600_000_000, 1))
		below := new(big.Rat).SetInt(new(big.Int).SetUint64(got))
		if rest := number.Sub(number, below); rest.Sign() < 0 || rest.Cmp(big.NewRat(1, 1)) >= 0 {
			t.Errorf("%q gave %d, off by %s", text, got, rest)
		}
	})
}
