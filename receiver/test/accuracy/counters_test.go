// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// eventSetting returns a column of the table of hardware events, without the time before the
// measurement.
func eventSetting(t *testing.T, name string) simSetting {
	i := slices.IndexFunc(eventSettings, func(s simSetting) bool { return s.name == name })
	assert.GreaterOrEqual(t, i, 0, name)
	return eventSettings[i]
}

func TestMissesDivideTheEnergyOfDRAMAmongTwoPrograms(t *testing.T) {
	misattributed := func(name string) (dram float64) {
		setting := eventSetting(t, name)
		setting.warm = 0
		var machines []*accuracy
		for n := range eventGroups[0].machines {
			a := measure(t, machineOf(0, uint64(n)+1), setting, 30*time.Second)
			machines = append(machines, &a)
		}
		dram = together(machines).misattributedDRAM
		t.Logf("%s: %.1f %%", name, 100*dram)
		return dram
	}
	misses := misattributed("default")
	assert.LessOrEqual(t, misses, 0.05)
	assert.Greater(t, misattributed("DRAM by cpu_time"), 3*misses)
	assert.Greater(t, misattributed("DRAM by memory_cpu_time"), 3*misses)
}

func TestHardwareEventsMakeTheDefaultWorseInNoScenario(t *testing.T) {
	for _, name := range ofMemory {
		of := func(counts bool) float64 {
			setting := named("default, fixed")
			setting.counts = counts
			return measure(t, simScenarioOf(t, name), setting, simHorizon).misattributed
		}
		uncounted, counted := of(false), of(true)
		t.Logf("%s: %.1f %%, with events %.1f %%", name, 100*uncounted, 100*counted)
		assert.LessOrEqual(t, counted, uncounted+0.01, name)
		assert.NotEqual(t, uncounted, counted, name)
	}
}

// In one group each miss counts as 100, in the other a power that no event causes rises with load.
func TestAPowerModelIsNotMuchWorseThanTheDefaultIfEventsMislead(t *testing.T) {
	for group, name := range map[int]string{2: "uncore", 3: "changed event"} {
		assert.Equal(t, name, eventGroups[group].name)
		of := func(setting string) float64 {
			return measure(t, machineOf(group, 1), eventSetting(t, setting), eventsHorizon).misattributedPackage
		}
		byDefault, byModel := of("default"), of("package by power_model")
		t.Logf("%s: %.1f %%, power_model %.1f %%", name, 100*byDefault, 100*byModel)
		assert.LessOrEqual(t, byModel, byDefault+0.02, name)
	}
}
