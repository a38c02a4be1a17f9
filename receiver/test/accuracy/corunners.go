// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"testing"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/test/judge"
)

// corun is the energy and CPU time of two programs in a measurement without a receiver.
type corun struct {
	used   joules // by the machine, above the energy at rest
	caused [2]joules
	ran    [2]time.Duration
}

// both runs both programs.
const both = -1

// runPrograms runs a machine of two programs without a receiver. Only the program with the index alone runs, or both.
func runPrograms(tb testing.TB, sc simScenario, alone int) corun {
	l := build(tb, treeDir(tb), sc, "")
	drive := l.drive
	l.drive = func(at time.Duration) {
		drive(at)
		for i, w := range l.workloads {
			if alone != both && alone != i {
				w.demand(0)
			}
		}
	}
	read := func() (c corun) {
		all, idled := l.energy()
		c.used = all.less(idled)
		for i, w := range l.workloads {
			c.caused[i], c.ran[i] = l.truth(w), w.tasks[0].Used
		}
		return c
	}
	l.run(eventsWarm, nil)
	before := read()
	l.run(eventsHorizon, nil)
	c := read()
	c.used = c.used.less(before.used)
	for i := range c.ran {
		c.caused[i], c.ran[i] = c.caused[i].less(before.caused[i]), c.ran[i]-before.ran[i]
	}
	return c
}

// byMemoryCPUTime is a rule for DRAM. Its package weight is the default one.
const byMemoryCPUTime = "`memory_cpu_time`"

// corunnerSettings are the rules of the table of two programs, with the true static power.
var corunnerSettings = []simSetting{
	corunner("default", nil),
	corunner(byMemoryCPUTime, map[power.Kind]config.Weight{power.DRAM: config.WeightMemoryCPUTime}),
	corunner("`power_model`", map[power.Kind]config.Weight{config.AllZones: config.WeightPowerModel}),
}

func corunner(name string, weights map[power.Kind]config.Weight) simSetting {
	return simSetting{name: name, source: cpu.KindBPF, counts: true, warm: eventsWarm, configure: func(c *config.Config) {
		c.Attribution.Preset, c.Attribution.StaticPower, c.Attribution.Weight = "", allStatic(config.StaticFixed), weights
	}}
}

// zonesOf splits energy by zone kind.
func zonesOf(j joules) map[string]float64 {
	return map[string]float64{"package": j.pkg, "dram": j.dram}
}

// corunnerRows returns the errors of rules for two programs that run at once, on this many machines.
func corunnerRows(t *testing.T, machines int) (rows []*judge.Row) {
	names := []string{"CPU time"}
	for _, s := range corunnerSettings {
		names = append(names, s.name)
	}
	names = append(names, "energy caused")
	row := map[string]*judge.Row{}
	for _, zone := range []string{"package", "dram"} {
		for _, name := range names {
			r := &judge.Row{Zone: zone, Rule: name}
			if row[zone+name] = r; zone != "package" || name != byMemoryCPUTime {
				rows = append(rows, r)
			}
		}
	}
	for n := range machines {
		sc := machineOf(0, uint64(n)+1)
		first, second, at := runPrograms(t, sc, 0), runPrograms(t, sc, 1), runPrograms(t, sc, both)
		shares := map[string][2]joules{"energy caused": at.caused}
		seconds := func(i int) joules { return joules{at.ran[i].Seconds(), at.ran[i].Seconds()} }
		shares["CPU time"] = [2]joules{seconds(0), seconds(1)}
		for _, s := range corunnerSettings {
			a := measure(t, sc, s, eventsHorizon)
			shares[s.name] = [2]joules{a.reported["program-0"], a.reported["program-1"]}
		}
		for zone, joint := range zonesOf(at.used) {
			g := judge.Game{First: zonesOf(first.used)[zone], Second: zonesOf(second.used)[zone], Both: joint}
			for _, name := range names {
				a, b := zonesOf(shares[name][0])[zone], zonesOf(shares[name][1])[zone]
				row[zone+name].Add(g, a/(a+b))
			}
		}
	}
	return rows
}
