// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBurstsOnAGPUAreMisattributedLittleInWindowsOfASecond(t *testing.T) {
	bursts := simScenarioOf(t, "Bursts on a card")
	for _, cards := range []string{"fdinfo (xe)", "fdinfo (amdgpu)", "library"} {
		a := measure(t, bursts, named("fixed, "+cards+", 1 s"), gpuHorizon)
		assert.Less(t, a.misattributed, 0.05, cards)
		long := measure(t, bursts, named("fixed, "+cards+", 10 s"), gpuHorizon)
		assert.Greater(t, long.misattributed, 2*a.misattributed, cards)
	}
}

func TestGPUEnergyIsAttributedToUsersOfTheGPU(t *testing.T) {
	for _, setting := range gpuSettings {
		sc := simScenarioOf(t, "A card's user without CPU time")
		if !cheap(&sc, &setting) || setting.by != nil {
			continue
		}
		a := measure(t, sc, setting, gpuShort)
		assert.Zero(t, a.reported["web"].Sum(), "%s: no card open", setting.name)
		assert.InEpsilon(t, 14, a.reported["kernel"].Sum()/a.reported["serve"].Sum(), 0.02, setting.name)
		a = measure(t, simScenarioOf(t, "Memory only"), setting, gpuShort)
		assert.Zero(t, a.reported["holder"].Sum(), "%s: idle context", setting.name)
	}
}
