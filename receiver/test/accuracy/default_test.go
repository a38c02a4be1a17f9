// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// The static power is stated in place of learned, so that no scenario takes a day: what is
// misattributed hardly depends on it.
func TestTheDefaultRulesMisattributeLittleWhereCPUTimeMisattributesMuch(t *testing.T) {
	rules := func(source cpu.SourceKind) simSetting {
		return simSetting{name: "default, fixed", source: source, configure: func(c *config.Config) {
			c.Attribution.Preset, c.Attribution.StaticPower = "", allStatic(config.StaticFixed)
		}}
	}
	const much, little = 0.15, 0.07
	for _, sc := range slices.Concat(simScenarios, simHardware) {
		if sc.name == "2,000 small containers" {
			continue // takes seconds
		}
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			byCPUTime := measure(t, sc, simSettings[1], simHorizon).misattributed
			misattributed := measure(t, sc, rules(cpu.KindBPF), simHorizon).misattributed
			byClocks := measure(t, sc, rules(cpu.KindClocks), simHorizon).misattributed
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
		for _, window := range []time.Duration{100 * time.Millisecond, config.MinWindow} {
			misattributed := measure(t, sc, interruptsUnattributed(window), simHorizon).misattributed
			t.Logf("%s, windows of %v: %.2f %%", sc.name, window, 100*misattributed)
			assert.LessOrEqual(t, misattributed, 0.01, "%s, windows of %v", sc.name, window)
		}
	}
}

func TestInterruptsOfPackagesInShortWindowsAreMisattributedByLittle(t *testing.T) {
	storms := simScenario{name: "Interrupts in bursts on two sockets", build: func(l *simulator) func(time.Duration) {
		return interruptStormsOn(l, straight(4, 20, 100), straight(4, 20, 100))
	}}
	for _, window := range []time.Duration{100 * time.Millisecond, config.MinWindow} {
		setting := interruptsUnattributed(window)
		configure := setting.configure
		setting.configure = func(c *config.Config) { configure(c); c.Attribution.Scope = config.ScopeZone }
		misattributed := measure(t, storms, setting, simHorizon).misattributed
		t.Logf("windows of %v: %.2f %%", window, 100*misattributed)
		assert.LessOrEqual(t, misattributed, 0.01, window)
	}
}
