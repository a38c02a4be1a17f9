// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

func TestImplausibleIntensities(t *testing.T) {
	for rate, want := range map[signal.Rate]string{
		0: "", 400_000: "kg/kWh", 1_306_000: "kg/kWh", 2_000_000: "", 400_000_000: "", 1_500_000_000: "", 1_800_000_000: "lb/MWh",
	} {
		if want == "" {
			assert.Empty(t, implausible(rate), rate)
		} else {
			assert.Contains(t, implausible(rate), want, rate)
		}
	}
}

func TestANumberInKilogramsIsAWarningAtStart(t *testing.T) {
	_, logs := opened(t, "intensity: 0.4")
	warnings := logs.FilterMessage("Carbon intensity is implausible").All()
	require.Len(t, warnings, 1)
	assert.Equal(t, map[string]any{"g_per_kWh": 0.4, "reason": "the unit is g/kWh, and the value is probably in kg/kWh"}, warnings[0].ContextMap())
	_, logs = opened(t, "intensity: {value: 0, accounting: market}")
	assert.Zero(t, logs.FilterMessage("Carbon intensity is implausible").Len())
}

func TestAProviderInKilogramsIsOneWarning(t *testing.T) {
	p := newTestProcessor(t)
	warnings := func() int { return p.logs.FilterMessage("Carbon intensity is implausible").Len() }
	p.pass(energy(seconds(10), 1000))
	assert.Zero(t, warnings())
	for i := range 3 {
		p.intensity.mean.Rate = signal.Rate(300_000 + i)
		p.pass(energy(seconds(20+10*i), 2000+float64(i)*1000))
	}
	assert.Equal(t, 1, warnings())
	p.intensity.mean.Rate = 300_000_000
	p.pass(energy(seconds(60), 9000))
	p.intensity.mean.Rate = 300_000
	p.pass(energy(seconds(70), 10_000))
	assert.Equal(t, 2, warnings())
}
