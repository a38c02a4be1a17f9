// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// The static power is fixed instead of trained, so that no scenario needs a day of training. It
// hardly affects the misattributed energy.
func TestTheDefaultRulesMisattributeLessThanCPUTime(t *testing.T) {
	rules := named("default, fixed, no events")
	onClocks := rules
	onClocks.source = cpu.KindClocks
	const much, little = 0.15, 0.07
	for _, sc := range slices.Concat(simScenarios, simHardware) {
		if sc.name == "2,000 small containers" {
			continue // takes seconds
		}
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			byCPUTime := measure(t, sc, named("CPU time, 10 s, BPF"), simHorizon).misattributed
			misattributed := measure(t, sc, rules, simHorizon).misattributed
			byClocks := measure(t, sc, onClocks, simHorizon).misattributed
			t.Logf("misattributed: CPU time %.1f %%, the default %.1f %%, with CPU clocks %.1f %%", 100*byCPUTime, 100*misattributed, 100*byClocks)
			assert.LessOrEqual(t, byClocks, misattributed+0.005)
			if byCPUTime >= much {
				assert.LessOrEqual(t, misattributed, little)
			}
		})
	}
}

func TestInterruptsInShortWindowsAreMisattributedByLittle(t *testing.T) {
	for _, sc := range slices.Concat(simScenarios, simHardware) {
		if !slices.Contains(ofInterrupts, sc.name) {
			continue
		}
		for _, window := range []string{"100 ms", "10 ms"} {
			misattributed := measure(t, sc, named("fixed, interrupts unattributed, "+window), simHorizon).misattributed
			t.Logf("%s, windows of %s: %.2f %%", sc.name, window, 100*misattributed)
			assert.LessOrEqual(t, misattributed, 0.01, "%s, windows of %s", sc.name, window)
		}
	}
}

func TestInterruptsOfPackagesInShortWindowsAreMisattributedByLittle(t *testing.T) {
	storms := simScenario{name: "Interrupts in bursts on two sockets", build: func(l *simulator) {
		interruptStorms(l, straight(4, 20, 100), straight(4, 20, 100))
	}}
	for _, window := range []string{"100 ms", "10 ms"} {
		misattributed := measure(t, storms, named("scope zone, fixed, interrupts unattributed, "+window), simHorizon).misattributed
		t.Logf("windows of %s: %.2f %%", window, 100*misattributed)
		assert.LessOrEqual(t, misattributed, 0.01, window)
	}
}
