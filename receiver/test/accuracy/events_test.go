// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// countedNode is memoryAndCompute with containers whose load varies, and one more of the usual intensity.
func countedNode(frequency func(float64) float64) func(*simulator) func(time.Duration) {
	return func(l *simulator) func(time.Duration) {
		s := straight(4, 20, 100)
		s.DRAMIdle, s.Frequency = 3, frequency
		l.on(s)
		compute := l.container("compute", 0, 0).weighs(1.3, 0.5)
		memory := l.container("memory", 0, 0).weighs(0.7, 6)
		web := l.container("web", 0, 0).weighs(1, 2)
		return func(at time.Duration) {
			second := int(at / time.Second)
			compute.tasks[0].Demand = 0.3 + 0.2*float64(second%7)
			memory.tasks[0].Demand = 0.3 + 0.2*float64(second/2%5)
			web.tasks[0].Demand = 0.1 + 0.1*float64(second/3%4)
		}
	}
}

// All have the true static power. At each clock rate, the simulated power is linear in the simulated events.
func TestTheModelOfSmartWattsFindsWhatInstructionsAndCacheMissesCost(t *testing.T) {
	for name, c := range map[string]struct {
		frequency     func(float64) float64
		counted       bool
		least, most   float64 // misplaced energy of the package
		leastM, mostM float64 // of memory
	}{
		"not counted": {nil, false, 0.1, 0.13, 0.35, 0.45},
		"counted":     {nil, true, 0, 0.02, 0, 0.03},
		"not counted, clock rate follows the load":  {schedutil, false, 0.1, 0.13, 0.35, 0.45},
		"counted, clock rate that follows the load": {schedutil, true, 0, 0.05, 0, 0.1},
	} {
		a := measure(t, simScenario{name: "counted", build: countedNode(c.frequency)}, simSetting{
			source: cpu.KindBPF, counts: c.counted, configure: func(c *config.Config) {
				c.Attribution.Preset, c.Attribution.StaticPower = config.PresetSmartWatts, allStatic(config.StaticFixed)
			},
		}, 5*time.Minute)
		t.Logf("%s: misplaced %.1f %% of the package's energy and %.1f %% of memory's", name, 100*a.misplacedPackage, 100*a.misplacedDRAM)
		assert.InDelta(t, a.node.sum(), a.parts.sum(), 1e-6, name)
		assert.GreaterOrEqual(t, a.misplacedPackage, c.least, name)
		assert.LessOrEqual(t, a.misplacedPackage, c.most, name)
		assert.GreaterOrEqual(t, a.misplacedDRAM, c.leastM, name)
		assert.LessOrEqual(t, a.misplacedDRAM, c.mostM, name)
	}
}
