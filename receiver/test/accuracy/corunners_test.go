// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/receiver/test/judge"
)

var corunners = flag.Int("corunners", 0, "machines of the table of two programs that run at once, see dev/other-rules.md")

// both runs both programs.
const both = -1

// runPrograms runs a machine of two programs without a receiver, and returns its true energies and
// the CPU time of the programs. alone is the index of the only program that runs, or both.
func runPrograms(tb testing.TB, sc simScenario, alone int) (t simTotals, ran [2]time.Duration) {
	l := build(tb, treeDir(tb), sc, "")
	l.each(func(time.Duration) {
		for i, w := range l.workloads {
			if alone != both && alone != i {
				w.demand(0)
			}
		}
	})
	l.run(eventsWarm, nil)
	before := l.totals()
	for i, w := range l.workloads {
		ran[i] = -w.tasks[0].Used
	}
	l.run(eventsHorizon, nil)
	for i, w := range l.workloads {
		ran[i] += w.tasks[0].Used
	}
	return l.totals().since(before), ran
}

// corunnerSettings are the rules of the table of two programs, with the true static power.
var corunnerSettings = counting("default, fixed", "default", "DRAM by memory_cpu_time", "all by power_model")

// rule returns the last word of a setting's name.
func (s *simSetting) rule() string { return s.name[strings.LastIndex(s.name, " ")+1:] }

// corunnerRows returns the errors of rules for two programs that run at once, on a number of
// machines.
func corunnerRows(t *testing.T, machines int) (rows []*judge.Row) {
	names := []string{"CPU time"}
	for _, s := range corunnerSettings {
		names = append(names, s.rule())
	}
	names = append(names, "energy caused")
	zones := map[string]func(joules) float64{"package": ofPackages, "dram": ofMemories}
	row := map[string]*judge.Row{}
	for _, zone := range []string{"package", "dram"} {
		for _, name := range names {
			r := &judge.Row{Zone: zone, Rule: name}
			if row[zone+name] = r; zone != "package" || name != "memory_cpu_time" {
				rows = append(rows, r)
			}
		}
	}
	of := func(by map[string]joules) [2]joules { return [2]joules{by["program-0"], by["program-1"]} }
	for n := range machines {
		sc := machineOf(0, uint64(n)+1)
		first, _ := runPrograms(t, sc, 0)
		second, _ := runPrograms(t, sc, 1)
		at, ran := runPrograms(t, sc, both)
		seconds := func(i int) joules { return joules{Package: ran[i].Seconds(), DRAM: ran[i].Seconds()} }
		shares := map[string][2]joules{"energy caused": of(at.truth), "CPU time": {seconds(0), seconds(1)}}
		for _, s := range corunnerSettings {
			shares[s.rule()] = of(measure(t, sc, s, eventsHorizon).reported)
		}
		for zone, in := range zones {
			g := judge.Game{First: in(first.truth[aboveIdle]), Second: in(second.truth[aboveIdle]), Both: in(at.truth[aboveIdle])}
			for _, name := range names {
				a, b := in(shares[name][0]), in(shares[name][1])
				row[zone+name].Add(g, a/(a+b))
			}
		}
	}
	return rows
}

func TestTableOfTwoProgramsAtOnce(t *testing.T) {
	if *corunners == 0 {
		t.Skip("-corunners 16 writes the table")
	}
	t.Log("\n" + judge.Table(corunnerRows(t, *corunners)).Markdown())
}

func TestAProgramAloneCausesTheEnergyOfTheMachine(t *testing.T) {
	sc := machineOf(0, 1)
	for alone, name := range []string{"program-0", "program-1"} {
		c, _ := runPrograms(t, sc, alone)
		assert.Positive(t, c.truth[aboveIdle].Package)
		assert.InDelta(t, c.truth[aboveIdle].Sum(), c.truth[name].Sum(), 1e-6)
		assert.Zero(t, c.truth[fmt.Sprintf("program-%d", 1-alone)])
	}
	c, _ := runPrograms(t, sc, both)
	assert.InDelta(t, c.truth[aboveIdle].Sum(), c.truth["program-0"].Plus(c.truth["program-1"]).Sum(), 1e-6)
}
