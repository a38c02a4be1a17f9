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

func gpuScenarioOf(t *testing.T, name string) gpuScenario {
	i := slices.IndexFunc(gpuScenarios, func(sc gpuScenario) bool { return sc.name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return gpuScenarios[i]
}

func gpuSettingOf(t *testing.T, name string) gpuSetting {
	i := slices.IndexFunc(gpuSettings, func(s gpuSetting) bool { return s.name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return gpuSettings[i]
}

// checked are the settings that a test run compares with the page. It leaves out those that learn, and long intervals.
func (s *gpuSetting) checked() bool { return s.learns == 0 && (s.window > 0 || s.kepler > 0) }

func TestSteadyUsersOfAGPUAreToldApart(t *testing.T) {
	for _, setting := range gpuSettings {
		if setting.checked() {
			a := measureGPUs(t, gpuScenarioOf(t, "Two processes, steady"), setting, gpuShort)
			ratio := a.reported["train"].sum() / a.reported["serve"].sum()
			assert.InEpsilon(t, 3, ratio, 0.02, setting.name)
			assert.Zero(t, a.reported["other"].sum(), setting.name)
		}
	}
}

func TestBurstsOnAGPUAreMisattributedLittleInWindowsOfASecond(t *testing.T) {
	bursts := gpuScenarioOf(t, "Bursts on a card")
	for _, driver := range []string{"xe", "amdgpu", "nvidia"} {
		a := measureGPUs(t, bursts, gpuSetting{driver: driver, static: config.StaticFixed, window: time.Second}, gpuHorizon)
		assert.Less(t, a.misattributed, 0.05, driver)
		long := measureGPUs(t, bursts, gpuSetting{driver: driver, static: config.StaticFixed}, gpuHorizon)
		assert.Greater(t, long.misattributed, 2*a.misattributed, driver)
	}
}

func TestGPUEnergyIsThatOfWhoUsedTheGPU(t *testing.T) {
	for _, setting := range gpuSettings {
		if !setting.checked() || setting.kepler > 0 {
			continue
		}
		a := measureGPUs(t, gpuScenarioOf(t, "A card's user without CPU time"), setting, gpuShort)
		assert.Zero(t, a.reported["web"].sum(), "%s: it has no card open", setting.name)
		assert.InEpsilon(t, 14, a.reported["kernel"].sum()/a.reported["serve"].sum(), 0.02, setting.name)
		a = measureGPUs(t, gpuScenarioOf(t, "Memory only"), setting, gpuShort)
		assert.Zero(t, a.reported["holder"].sum(), "%s: it does nothing", setting.name)
	}
}

// The mean of ten seconds stands for each interval, so it is right for what repeats, and wrong for what comes and goes.
func TestKeplersRuleForGPUsMisattributesJobs(t *testing.T) {
	mean, peak := gpuSettingOf(t, "Kepler's rule, 5 s"), gpuSettingOf(t, "Kepler's rule, maximum of samples, 5 s")
	assert.Less(t, measureGPUs(t, gpuScenarioOf(t, "Two processes, steady"), mean, gpuHorizon).misattributed, 0.01)
	assert.Greater(t, measureGPUs(t, gpuScenarioOf(t, "Jobs on a card"), mean, gpuHorizon).misattributed, 0.2)
	assert.Greater(t, measureGPUs(t, gpuScenarioOf(t, "Bursts on a card"), peak, gpuHorizon).misattributed, 0.1)
	assert.Greater(t, measureGPUs(t, gpuScenarioOf(t, "Slices of a card"), mean, gpuHorizon).misattributed, 0.05, "their size is not counted")
}
