// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/receiver/test/table"
)

func TestKeplersSeriesBelongToTheWorkloadsOfTheMachine(t *testing.T) {
	tr := &trial{simulator: simulator{tb: t, root: t.TempDir(), series: map[simSeries]float64{}}}
	steadyMix(&tr.simulator)
	web := tr.workloads[2].containers[0]
	tr.readKepler(`# HELP kepler_process_cpu_joules_total Energy
kepler_node_cpu_active_joules_total{node_name="",path="/a",zone="package"} 100
kepler_node_cpu_joules_total{node_name="",path="/a",zone="package"} 1000
kepler_process_cpu_joules_total{comm="batch",container_id="",pid="2",state="running",type="regular",zone="package"} 30
kepler_process_cpu_joules_total{comm="batch",container_id="",pid="2",state="running",type="regular",zone="core"} 29
kepler_process_cpu_joules_total{comm="web",container_id="` + web + `",pid="4",state="running",type="container",zone="package"} 50
kepler_container_cpu_joules_total{container_id="` + web + `",state="running",zone="package"} 50
`)
	tr.readKepler(`kepler_process_cpu_joules_total{comm="batch",container_id="",pid="2",state="terminated",type="regular",zone="package"} 4e+01
`)
	total := tr.totals()
	assert.Equal(t, joules{Package: 100}, total.reported[nodeEnergy])
	assert.Equal(t, joules{Package: 40}, total.reported["batch"], "a series continues after the exit")
	assert.Equal(t, joules{Package: 50}, total.reported["web"], "processes are not added to their container")
	assert.Zero(t, total.reported["db"])
}

func TestKeplersRuleAgreesWithKeplersBinary(t *testing.T) {
	programs, err := table.Read(filepath.Join(results, "programs.csv"))
	require.NoError(t, err)
	byRules, err := table.Read(filepath.Join(results, "rules.csv"))
	require.NoError(t, err)
	percent := func(text string) float64 {
		value, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err)
		return value
	}
	for _, sc := range simScenarios {
		binary, rule := programs.Find(sc.name, "Kepler"), byRules.Find(sc.name, "Kepler from 0.10")
		require.True(t, binary >= 0 && rule >= 0, sc.name)
		assert.InDelta(t, percent(byRules.Rows[rule][2]), percent(programs.Rows[binary][2]), 100*judgeTolerance, sc.name)
	}
}
