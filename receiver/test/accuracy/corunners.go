// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"strings"
	"testing"
	"time"

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
	l.each(func(time.Duration) {
		for i, w := range l.workloads {
			if alone != both && alone != i {
				w.demand(0)
			}
		}
	})
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

// corunnerSettings are the rules of the table of two programs, with the true static power.
var corunnerSettings = counting("default, fixed", "default", "DRAM by memory_cpu_time", "all by power_model")

// rule returns the last word of a setting's name.
func (s *simSetting) rule() string { return s.name[strings.LastIndex(s.name, " ")+1:] }

// zonesOf splits energy by zone kind.
func zonesOf(j joules) map[string]float64 {
	return map[string]float64{"package": j.pkg, "dram": j.dram}
}

// corunnerRows returns the errors of rules for two programs that run at once, on this many machines.
func corunnerRows(t *testing.T, machines int) (rows []*judge.Row) {
	names := []string{"CPU time"}
	for _, s := range corunnerSettings {
		names = append(names, s.rule())
	}
	names = append(names, "energy caused")
	row := map[string]*judge.Row{}
	for _, zone := range []string{"package", "dram"} {
		for _, name := range names {
			r := &judge.Row{Zone: zone, Rule: name}
			if row[zone+name] = r; zone != "package" || name != "memory_cpu_time" {
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
			shares[s.rule()] = [2]joules{a.reported["program-0"], a.reported["program-1"]}
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
