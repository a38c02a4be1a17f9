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
		units.Joule / 1000:       "0.00028 mWh",
		3600 * units.Joule:       "1.00 Wh",
		35_999 * units.Joule:     "10.0 Wh",
		3_599_000 * units.Joule:  "1000 Wh",
		36_000_000 * units.Joule: "10.0 kWh",
	} {
		assert.Equal(t, want, WattHours(e))
	}
}

func TestSharesAndTimes(t *testing.T) {
	assert.Equal(t, "33.3%", Share(1, 3))
	assert.Equal(t, "-", Share(1, 0))
	assert.Equal(t, "1.500 s", Seconds(1500*time.Millisecond))
	assert.Equal(t, "90.0 s", Seconds(90*time.Second))
	assert.Equal(t, "3600 s", Seconds(time.Hour))
}
