// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTurboFallsWithBusyCoresAndToThePowerLimit(t *testing.T) {
	s := rising() // 20 W, and 20 W for each CPU at the nominal rate
	s.Turbo = &Turbo{One: 1.4, All: 1.1, Limit: 90, Window: 2 * time.Second}
	m := machineOf(t, s)
	a := task(m, 0, 1)
	second := func() (watts float64) {
		before := s.Energy.Package
		for range 1000 {
			m.Step(time.Millisecond)
		}
		return (s.Energy.Package - before) / 1e6
	}
	assert.InDelta(t, 20+20*1.4*1.4*1.4, second(), 1e-6)
	b := task(m, 0, 1)
	assert.InDelta(t, 20+40*1.3*1.3*1.3, second(), 1e-6)
	b.Demand = 3
	m.Show()
	assert.EqualValues(t, 3_900_000, m.Host.Clocks[2])
	full := 20 + 80*1.1*1.1*1.1
	assert.Greater(t, full, 120.)
	assert.InDelta(t, full, second(), 1e-6, "the average is below the limit yet")
	for range 10 {
		second()
	}
	assert.InDelta(t, 90, second(), 0.1)
	m.Show()
	assert.InDelta(t, 3e6*math.Cbrt(70./80), float64(m.Host.Clocks[0]), 1e3)
	b.Demand = 0
	assert.InDelta(t, 20+20*1.4*1.4*1.4, second(), 1e-6, "less than the limit")
	a.Demand = 0
	for range 10 {
		second()
	}
	a.Demand, b.Demand = 1, 3
	assert.InDelta(t, full, second(), 1e-6, "it has cooled")
	assert.InDelta(t, s.Energy.Package, s.Idled.Package+a.Energy.Package+b.Energy.Package, 1)
	assert.InDelta(t, s.Energy.Package, float64(s.Package.Counted), 2)
}
