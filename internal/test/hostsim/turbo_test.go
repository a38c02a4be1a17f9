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

func TestTurboCountsCoresNotThreads(t *testing.T) {
	for name, test := range map[string]struct {
		threads int
		cpus    map[int]float64 // demand by CPU
		irq     float64
		rate    float64
	}{
		"at rest":                        {2, nil, 0, 1.4},
		"a thread":                       {2, map[int]float64{0: 1}, 0, 1.4},
		"both threads of a core":         {2, map[int]float64{0: 1, 4: 1}, 0, 1.4},
		"a thread of two cores":          {2, map[int]float64{0: 1, 1: 1}, 0, 1.3},
		"a thread of each core":          {2, map[int]float64{0: 1, 1: 1, 2: 1, 3: 1}, 0, 1.1},
		"a core, and one for 3/4":        {2, map[int]float64{0: 1, 1: 0.5, 5: 0.5}, 0, 1.325},
		"a core, and interrupts":         {2, map[int]float64{0: 0.5, 4: 0.5}, 0.5, 1.4 - 0.1*(1+3*0.75-1)},
		"cores with one thread":          {1, map[int]float64{0: 1, 4: 1}, 0, 1.4 - 0.3/7},
		"interrupts on single threads":   {1, map[int]float64{0: 0.5}, 0.5, 1.4 - 0.3*(1+7*0.5-1)/7},
		"a thread of each, and siblings": {2, map[int]float64{0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 6: 0.5}, 0, 1.1},
	} {
		m := machineOf(t, &Socket{
			CPUs: 8, Threads: test.threads, Siblings: 1.2,
			Turbo: &Turbo{One: 1.4, All: 1.1, Limit: 1000, Window: time.Second},
		})
		m.IRQ = test.irq
		for cpu, demand := range test.cpus {
			pinned(m, 0, cpu, demand)
		}
		m.Step(time.Second)
		assert.InDelta(t, test.rate, m.Sockets[0].Clock(), 1e-9, name)
	}
}
