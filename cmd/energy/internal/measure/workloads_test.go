// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

func kindsOf(zone power.Kind, used map[string]units.Energy) map[workloadKind]units.Energy {
	rows := map[workloadKind]units.Energy{}
	for name, e := range used {
		rows[workloadKind{name, power.Class{Zone: zone, Method: power.Measured}}] = e
	}
	return rows
}

func TestWorkloadsAddUpToTheEnergyOfTheNode(t *testing.T) {
	for what, c := range map[string]struct {
		node units.Energy
		used map[string]units.Energy
		want map[string]units.Energy
	}{
		"both receivers agree":   {100, map[string]units.Energy{Others: 20, Idle: 20, "db": 50, "web": 10}, map[string]units.Energy{"db": 50, Others: 20, Idle: 20, "web": 10}},
		"the other read more":    {50, map[string]units.Energy{Others: 20, Idle: 20, "db": 50, "web": 10}, map[string]units.Energy{"db": 25, Others: 10, Idle: 10, "web": 5}},
		"a remainder":            {10, map[string]units.Energy{"a": 1, "b": 1, "c": 1}, map[string]units.Energy{"a": 3, "b": 3, "c": 4}},
		"the other read nothing": {7, nil, map[string]units.Energy{Others: 7}},
	} {
		m := &wholeMachine{phases: map[string]map[workloadKind]units.Energy{"none": kindsOf(power.Package, c.used)}}
		r := &Result{Zones: []Zone{{Name: "package", Source: "measured", Active: c.node}}}
		m.result(r)
		got, sum := map[string]units.Energy{}, units.Energy(0)
		for _, w := range r.Workloads {
			got[w.Name] = w.Used[0]
			sum += w.Used[0]
		}
		assert.Equal(t, c.want, got, what)
		assert.Equal(t, c.node, sum, what)
	}
}

func TestWorkloadsOfAPhaseAddUpToTheEnergyOfTheNodeInIt(t *testing.T) {
	m := &wholeMachine{phases: map[string]map[workloadKind]units.Energy{
		"build": kindsOf(power.Package, map[string]units.Energy{"cc": 3}),
		"test":  kindsOf(power.Package, map[string]units.Energy{"go": 9}),
	}}
	r := &Result{
		Zones:  []Zone{{Name: "package", Source: "measured", Active: 15}},
		Phases: []Phase{{Name: "build", NodeUsed: []units.Energy{5}}, {Name: "test", NodeUsed: []units.Energy{10}}},
	}
	m.result(r)
	assert.Equal(t, []Workload{{"cc", "build", []units.Energy{5}}, {"go", "test", []units.Energy{10}}}, r.Workloads)
	t.Attr("phases", fmt.Sprintf("build %d, test %d of %d µJ", r.Workloads[0].Used[0], r.Workloads[1].Used[0], r.Zones[0].Active))
}

// series adds a workload of one zone to a snapshot.
func series(s *snapshot.Snapshot, kind snapshot.Kind, used units.Energy, identity snapshot.Identity) {
	s.Rows = append(s.Rows, snapshot.Row{Kind: kind, Identity: identity, Energy: []units.Energy{used}})
}

// snapshotAt returns a snapshot at a second, with cumulative energies of a package.
func snapshotAt(second int, active, idle units.Energy) *snapshot.Snapshot {
	at := time.Unix(int64(second), 0)
	return &snapshot.Snapshot{At: at, Zones: []snapshot.Zone{{Class: packages, Active: active, Idle: idle, At: at}}}
}

func TestWorkloadsAreTheSumsOfTheirSeries(t *testing.T) {
	m := &wholeMachine{&meter{}, ByProgram, map[string]map[workloadKind]units.Energy{}}
	for n := 1; n <= 3; n++ { // what was used before the first is in no phase
		e := units.Energy(n)
		s := snapshotAt(n, 100*e, 10*e)
		series(s, snapshot.Process, 2*e, snapshot.Identity{snapshot.Overflow: "true"})
		series(s, snapshot.Process, 30*e, snapshot.Identity{snapshot.Executable: "sh"})
		series(s, snapshot.Process, 5*e, snapshot.Identity{snapshot.Executable: "sh", snapshot.Descendants: "true"})
		m.account.Add(s)
		if n > 1 {
			m.addPeriod("none")
		}
	}
	used := map[string]units.Energy{Others: 130, Idle: 20, "sh": 70}
	assert.Equal(t, map[string]map[workloadKind]units.Energy{"none": kindsOf(power.Package, used)}, m.phases)

	m.by, m.phases = ByContainer, map[string]map[workloadKind]units.Energy{}
	m.addPeriod("none")
	used = map[string]units.Energy{Outside: 100, Idle: 10}
	assert.Equal(t, map[string]map[workloadKind]units.Energy{"none": kindsOf(power.Package, used)}, m.phases, "no process is in a container")
}

func TestProgramsAreTheSumOfTheirSeries(t *testing.T) {
	a := snapshot.Account{FromZero: true}
	for n := 1; n <= 2; n++ {
		s := snapshotAt(n, 100, 0)
		series(s, snapshot.Process, 30, snapshot.Identity{snapshot.Executable: "cc1", snapshot.Owner: "a"})
		series(s, snapshot.Process, 2, snapshot.Identity{snapshot.Overflow: "true"})
		if n == 1 {
			series(s, snapshot.Process, 20, snapshot.Identity{snapshot.Executable: "cc1", snapshot.Owner: "b"}) // it ends
			series(s, snapshot.Process, 10, snapshot.Identity{snapshot.Executable: "make"})
		}
		a.Add(s)
	}
	r := &Result{Command: []string{"/usr/bin/make", "all"}, Zones: []Zone{
		{Name: "package", Source: "measured", Used: 75}, {Name: "dram", Source: "measured", Used: 9},
	}}
	assert.Equal(t, []Program{
		{"cc1", []units.Energy{50, 0}}, {"make (descendants)", []units.Energy{15, 9}}, {"make", []units.Energy{10, 0}},
	}, programsOf(&a, r))
	assert.Empty(t, programsOf(&a, &Result{Command: []string{"make"}}), "no energy is known")
}
