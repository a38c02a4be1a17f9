// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
)

// aBuild is a collector's metrics during a build: two processes with a series each, and three programs.
const aBuild = `# TYPE system_energy_joules_total counter
system_energy_joules_total{energy_state="active",energy_zone="package"} 100
# TYPE process_energy_joules_total counter
process_energy_joules_total{energy_zone="package",process_pid="7",process_creation_time="a",process_executable_name="cc1",process_executable_path="/cc1",process_owner="ann",systemd_unit_name="u"} 30
process_energy_joules_total{energy_zone="package",process_pid="8",process_creation_time="b",process_executable_name="cc1",process_executable_path="/cc1",process_owner="bob",systemd_unit_name="u"} 20
process_energy_joules_total{energy_zone="package",process_executable_name="cc1",process_owner="ann",systemd_unit_name="u"} 25
process_energy_joules_total{energy_zone="package",process_executable_name="make",process_owner="ann",systemd_unit_name="u"} 10
process_energy_joules_total{energy_zone="package",process_descendants="true",process_executable_name="make",process_owner="ann",systemd_unit_name="u"} 5
process_energy_joules_total{energy_zone="package",process_owner="ann"} 4
process_energy_joules_total{energy_zone="package",otel_metric_overflow="true"} 6
# TYPE process_power_watts gauge
process_power_watts{energy_zone="package",process_pid="7",process_creation_time="a",process_executable_name="cc1",process_executable_path="/cc1",process_owner="ann",systemd_unit_name="u"} 3
process_power_watts{energy_zone="package",process_executable_name="cc1",process_owner="ann",systemd_unit_name="u"} 2.5
`

// later is aBuild after cc1 with the PID 7 has ended and the exporter has dropped its series.
const later = `# TYPE system_energy_joules_total counter
system_energy_joules_total{energy_state="active",energy_zone="package"} 110
# TYPE process_energy_joules_total counter
process_energy_joules_total{energy_zone="package",process_pid="8",process_creation_time="b",process_executable_name="cc1",process_executable_path="/cc1",process_owner="bob",systemd_unit_name="u"} 20
process_energy_joules_total{energy_zone="package",process_executable_name="cc1",process_owner="ann",systemd_unit_name="u"} 35
process_energy_joules_total{energy_zone="package",process_executable_name="make",process_owner="ann",systemd_unit_name="u"} 10
process_energy_joules_total{energy_zone="package",process_descendants="true",process_executable_name="make",process_owner="ann",systemd_unit_name="u"} 5
process_energy_joules_total{energy_zone="package",process_owner="ann"} 4
process_energy_joules_total{energy_zone="package",otel_metric_overflow="true"} 6
`

// rowOf returns the row of a name and a user.
func rowOf(t *testing.T, rows []top.Row, name, user string) top.Row {
	t.Helper()
	for _, r := range rows {
		if r.Text[top.Name] == name && r.Text[top.User] == user {
			return r
		}
	}
	require.Fail(t, "there is no row", "%s of %s", name, user)
	return top.Row{}
}

func TestAProgramOfSeveralContainersIsNotThatOfTheHost(t *testing.T) {
	text := aBuild + `process_power_watts{energy_zone="package",process_executable_name="cc1",process_owner="ann",otel_metric_overflow="true"} 7
process_power_watts{energy_zone="package",otel_metric_overflow="true"} 1
`
	programs := framesOf(t, &framer{fresh: true}, text)[0].Tables[top.Programs]
	var powers []float64
	for _, r := range programs {
		if r.Text[top.Name] == "cc1" && r.Text[top.User] == "ann" {
			powers = append(powers, r.Power)
		}
	}
	assert.ElementsMatch(t, []float64{5.5, 7}, powers)
	assert.Equal(t, "several containers or units", runsIn(&consumer{labels: map[string]string{labelOverflow: "true", labelExecutable: "cc1"}}))
}

func TestAProgramIsTheSumOfItsProcesses(t *testing.T) {
	frames := framesOf(t, &framer{fresh: true}, aBuild, later, later)
	programs := frames[0].Tables[top.Programs]
	assert.Empty(t, frames[0].Wrong)
	cc1 := rowOf(t, programs, "cc1", "ann")
	assert.InDelta(t, 55, cc1.Energy.Joules(), 1e-9)
	assert.InDelta(t, 5.5, cc1.Power, 1e-9)
	assert.Equal(t, "u", cc1.Text[top.Unit])
	assert.InDelta(t, 20, rowOf(t, programs, "cc1", "bob").Energy.Joules(), 1e-9)
	assert.InDelta(t, 10, rowOf(t, programs, "make", "ann").Energy.Joules(), 1e-9)
	assert.InDelta(t, 5, rowOf(t, programs, "make (descendants)", "ann").Energy.Joules(), 1e-9)
	assert.InDelta(t, 4, rowOf(t, programs, "(unnamed)", "ann").Energy.Joules(), 1e-9, "nothing is nameless")

	processes := frames[0].Tables[top.Processes]
	assert.Equal(t, cc1.Key, rowOf(t, processes, "cc1", "ann").Program)
	assert.Equal(t, cc1.Key, rowOf(t, processes, "cc1 (small or exited)", "ann").Program)

	for _, f := range frames[1:] {
		cc1 = rowOf(t, f.Tables[top.Programs], "cc1", "ann")
		assert.InDelta(t, 65, cc1.Energy.Joules(), 1e-9, "the ended process counts")
		assert.InDelta(t, 65, cc1.Total.Joules(), 1e-9)
	}
	for _, f := range frames {
		for _, view := range []top.View{top.Programs, top.Processes, top.Users} {
			sum := 0.0
			for _, r := range f.Tables[view] {
				sum += r.Energy.Joules()
			}
			assert.InDelta(t, f.Node.Joules(), sum, 1e-9)
		}
	}
	users := energies(frames[1].Tables[top.Users])
	assert.Equal(t, map[string]float64{"ann": 84, "bob": 20, "(others)": 6, "unattributed": 0}, users)
}
