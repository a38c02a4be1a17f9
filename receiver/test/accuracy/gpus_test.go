// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func gpuScenarioOf(t *testing.T, name string) simScenario {
	i := slices.IndexFunc(gpuScenarios, func(sc simScenario) bool { return sc.name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return gpuScenarios[i]
}

func TestBurstsOnAGPUAreMisattributedLittleInWindowsOfASecond(t *testing.T) {
	bursts := gpuScenarioOf(t, "Bursts on a card")
	for _, cards := range []string{"fdinfo (xe)", "fdinfo (amdgpu)", "library"} {
		a := measure(t, bursts, named("fixed, "+cards+", 1 s"), gpuHorizon)
		assert.Less(t, a.misattributed, 0.05, cards)
		long := measure(t, bursts, named("fixed, "+cards+", 10 s"), gpuHorizon)
		assert.Greater(t, long.misattributed, 2*a.misattributed, cards)
	}
}

func TestGPUEnergyIsThatOfWhoUsedTheGPU(t *testing.T) {
	for _, setting := range gpuSettings {
		sc := gpuScenarioOf(t, "A card's user without CPU time")
		if !cheap(&sc, &setting) || setting.kepler > 0 {
			continue
		}
		a := measure(t, sc, setting, gpuShort)
		assert.Zero(t, a.reported["web"].Sum(), "%s: it has no card open", setting.name)
		assert.InEpsilon(t, 14, a.reported["kernel"].Sum()/a.reported["serve"].Sum(), 0.02, setting.name)
		a = measure(t, gpuScenarioOf(t, "Memory only"), setting, gpuShort)
		assert.Zero(t, a.reported["holder"].Sum(), "%s: it does nothing", setting.name)
	}
}
