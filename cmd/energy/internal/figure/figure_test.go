// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestFiguresHaveThreeDigitsAndAPrefix(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0 W", 4e-9: "< 0.01 µW", 1e-6: "1.00 µW", 0.0123456: "12.3 mW", 0.5: "500 mW", 0.9994: "999 mW", 0.9996: "1.00 W", -0.5: "-500 mW", 9.994: "9.99 W",
		9.996: "10.0 W", 99.96: "100 W", 500: "500 W", 12_345: "12.3 kW", 1e6: "1.00 MW", 12_345e6: "12345 MW",
	} {
		assert.Equal(t, want, Watts(v))
	}
	assert.Equal(t, []string{"3.60 kJ", "1.00 Wh", "1.50 mg"}, []string{Joules(3600e6), WattHours(3600e6), Grams(1.5e-3)})
	assert.Equal(t, []string{"+1.00 J", "-1.00 J", "+0 J"}, []string{Change(0, 1e6), Change(1e6, 0), Change(5, 5)})
}

func TestACommandIsWrittenAsAShellReadsIt(t *testing.T) {
	for want, args := range map[string][]string{
		"make -j8 CC=gcc /tmp/a.b":   {"make", "-j8", "CC=gcc", "/tmp/a.b"},
		"sh -c 'exit 3'":             {"sh", "-c", "exit 3"},
		"echo '' 'it'\\''s' '$HOME'": {"echo", "", "it's", "$HOME"},
		"sh -c ' make; make test'":   {"sh", "-c", "\n\tmake;\n\tmake test"},
		"printf '?[2J !'":            {"printf", "\x1b[2J !"},
	} {
		assert.Equal(t, want, Command(args))
	}
}

func TestSeveralLinesBecomeOne(t *testing.T) {
	assert.Equal(t, "decoding failed: ?[2J key", Line("decoding failed:\n\n\x1b[2J\t key"))
}

func TestSharesAndTimes(t *testing.T) {
	assert.Equal(t, "33.3%", Share(1, 3))
	assert.Equal(t, "-", Share(1, 0))
	assert.Equal(t, []string{"0.000 s", "12.3 ms"}, []string{Seconds(0), Seconds(12_345 * time.Microsecond)})
	assert.Equal(t, "1.500 s", Seconds(1500*time.Millisecond))
	assert.Equal(t, "90.0 s", Seconds(90*time.Second))
	assert.Equal(t, "3600 s", Seconds(time.Hour))
}
