// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func gpuScenarioOf(t *testing.T, name string) simScenario {
	i := slices.IndexFunc(gpuScenarios, func(sc simScenario) bool { return sc.name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return gpuScenarios[i]
}

func gpuSettingOf(t *testing.T, name string) simSetting {
	i := slices.IndexFunc(gpuSettings, func(s simSetting) bool { return s.name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return gpuSettings[i]
}

func TestSteadyUsersOfAGPUAreToldApart(t *testing.T) {
	for _, setting := range gpuSettings {
		if sc := gpuScenarioOf(t, "Two processes, steady"); cheap(&sc, &setting) {
			a := measure(t, sc, setting, gpuShort)
			ratio := a.reported["train"].sum() / a.reported["serve"].sum()
			assert.InEpsilon(t, 3, ratio, 0.02, setting.name)
			assert.Zero(t, a.reported["other"].sum(), setting.name)
		}
	}
}

func TestBurstsOnAGPUAreMisattributedLittleInWindowsOfASecond(t *testing.T) {
	bursts := gpuScenarioOf(t, "Bursts on a card")
	for _, driver := range []string{"xe", "amdgpu", "nvidia"} {
		a := measure(t, bursts, onCards("", driver, config.StaticFixed, time.Second), gpuHorizon)
		assert.Less(t, a.misattributed, 0.05, driver)
		long := measure(t, bursts, onCards("", driver, config.StaticFixed, 0), gpuHorizon)
		assert.Greater(t, long.misattributed, 2*a.misattributed, driver)
	}
}

func TestGPUEnergyIsThatOfWhoUsedTheGPU(t *testing.T) {
	for _, setting := range gpuSettings {
		sc := gpuScenarioOf(t, "A card's user without CPU time")
		if !cheap(&sc, &setting) || setting.kepler > 0 {
			continue
		}
		a := measure(t, sc, setting, gpuShort)
		assert.Zero(t, a.reported["web"].sum(), "%s: it has no card open", setting.name)
		assert.InEpsilon(t, 14, a.reported["kernel"].sum()/a.reported["serve"].sum(), 0.02, setting.name)
		a = measure(t, gpuScenarioOf(t, "Memory only"), setting, gpuShort)
		assert.Zero(t, a.reported["holder"].sum(), "%s: it does nothing", setting.name)
	}
}

// The mean of ten seconds stands for each interval, so it is right for what repeats, and wrong for what comes and goes.
func TestKeplersRuleForGPUsMisattributesJobs(t *testing.T) {
	mean, peak := gpuSettingOf(t, "Kepler's rule, 5 s"), gpuSettingOf(t, "Kepler's rule, maximum of samples, 5 s")
	assert.Less(t, measure(t, gpuScenarioOf(t, "Two processes, steady"), mean, gpuHorizon).misattributed, 0.01)
	assert.Greater(t, measure(t, gpuScenarioOf(t, "Jobs on a card"), mean, gpuHorizon).misattributed, 0.2)
	assert.Greater(t, measure(t, gpuScenarioOf(t, "Bursts on a card"), peak, gpuHorizon).misattributed, 0.1)
	assert.Greater(t, measure(t, gpuScenarioOf(t, "Slices of a card"), mean, gpuHorizon).misattributed, 0.05, "their size is not counted")
}
