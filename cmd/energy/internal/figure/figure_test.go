// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

func TestEnergyInWattHours(t *testing.T) {
	for e, want := range map[units.Energy]string{
		0:                        "0 Wh",
		1:                        "0.0 µWh",
		units.Joule / 1000:       "0.3 µWh",
		359 * units.Joule / 1000: "99.7 µWh",
		37 * units.Joule / 100:   "0.10 mWh",
		3600 * units.Joule:       "1.00 Wh",
		35_999 * units.Joule:     "10.0 Wh",
		3_599_000 * units.Joule:  "1000 Wh",
		36_000_000 * units.Joule: "10.0 kWh",
	} {
		assert.Equal(t, want, WattHours(e))
	}
}

func TestSmallEnergiesKeepADigit(t *testing.T) {
	for e, want := range map[units.Energy]string{0: "0.00 J", 1: "1 µJ", 9: "9 µJ", 10: "0.01 mJ", 12_345: "12 mJ"} {
		assert.Equal(t, want, Joules(e))
	}
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
	assert.Equal(t, "1.500 s", Seconds(1500*time.Millisecond))
	assert.Equal(t, "90.0 s", Seconds(90*time.Second))
	assert.Equal(t, "3600 s", Seconds(time.Hour))
}
