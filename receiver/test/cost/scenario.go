// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/test/crowd"
)

// scenario answers one question: the cost of programs on a machine.
type scenario struct {
	name    string
	machine crowd.Machine
	rows    []row
}

// row is a program and the figures that are reported for it.
type row struct {
	// program returns errMissing if the program is not installed; the row is then left out.
	program func(programs) (variant, error)
	goals   []goal
}

var errMissing = errors.New("the program is missing")

// programs are the paths of programs that scenarios run. Empty ones are missing.
type programs struct {
	collector, kepler string
	dir               string // for their files
}

// goal is a figure of a row and its bound.
type goal struct {
	figure figure
	most   float64 // 0 if there is no bound
	times  string  // the variant whose figure is the unit, if any
}

// name returns the name of the figure, with its unit.
func (g goal) name() string {
	if g.times != "" {
		return g.figure.name + ", times " + g.times
	}
	return g.figure.name
}

// bound describes the bound for a table.
func (g goal) bound() string {
	if g.most == 0 {
		return ""
	}
	return fmt.Sprintf("at most %g", g.most)
}

// reached describes whether a figure is within the bound, if there is one.
func (g goal) reached(figure float64) string {
	switch {
	case g.most == 0:
		return ""
	case figure <= g.most:
		return "yes"
	}
	return "no"
}

// figure is a number of a turn.
type figure struct {
	name     string
	decimals int
	of       func(turn) float64
}

var (
	cpuAll     = figure{"% of a CPU", 3, func(t turn) float64 { return 100 * t.all() }}
	cpuEarly   = figure{"% of a CPU in the first 20 s", 3, func(t turn) float64 { return 100 * t.early }}
	wakeups    = figure{"wakeups per second", 1, func(t turn) float64 { return t.wakeups }}
	resident   = figure{"MiB resident", 1, func(t turn) float64 { return t.memory.resident / (1 << 20) }}
	anonymous  = figure{"MiB anonymous", 1, func(t turn) float64 { return t.memory.anonymous / (1 << 20) }}
	firstAfter = figure{"ms to the first emission", 0, func(t turn) float64 { return 1000 * t.first.after.Seconds() }}
	firstCPU   = figure{"ms of CPU until then", 0, func(t turn) float64 { return 1000 * t.first.cpu.Seconds() }}
)

// cpu returns a goal for CPU time with the bound most, or without a bound if most is 0, and other
// goals.
func cpu(most float64, others ...goal) []goal {
	return append([]goal{{figure: cpuAll, most: most}}, others...)
}

// memoryAtMost returns goals for memory.
func memoryAtMost(most float64) []goal {
	return []goal{{figure: resident, most: most}, {figure: anonymous}}
}

// idling returns the goals of programs on an idle node.
func idling(cpu, wakes, memory float64) []goal {
	return []goal{{figure: cpuAll, most: cpu}, {figure: wakeups, most: wakes}, {figure: resident, most: memory}}
}

// crowdOf returns a machine with processes, and some of them active.
func crowdOf(processes, active int) crowd.Machine {
	return crowd.Machine{Processes: processes, Active: active}
}

const second = time.Second

// rules makes the receiver train static power models, so that the figures include it. Modeled
// energy needs no such models.
const rules = "attribution: {static_power: trained}"

const (
	allSeries = "series: {processes: {group_by: pid, max: 0, min_energy: 0}}"
	byOTLP    = "all by OTLP"
)

var (
	everySecond  = settings{source: "bpf", interval: second}
	everySecondP = settings{source: "procfs", interval: second}
	every10s     = settings{source: "bpf", interval: 10 * second}
	windows10ms  = settings{source: "bpf", interval: 10 * second, window: second / 100}
	windows100ms = settings{source: "bpf", interval: 10 * second, window: second / 10}
	windows1s    = settings{source: "bpf", interval: 10 * second, window: second}
	starting     = settings{source: "bpf", interval: second, starts: true}
	startingC    = settings{source: "clocks", interval: second, starts: true}
	defaults     = settings{label: "default", source: "bpf", interval: 10 * second, window: second, receiver: rules, divided: true}
	defaults10th = settings{label: "default in 100 ms", source: "bpf", interval: 10 * second, window: second / 10, receiver: rules, divided: true}
	defaultsC    = settings{label: "default, clocks", source: "clocks", interval: 10 * second, window: second, receiver: rules}
	settled      = settings{label: "default, clocks", source: "clocks", interval: 10 * second, window: second, receiver: rules, warmup: 40 * second}
	scraped15s   = settings{label: "default", source: "bpf", interval: 10 * second, window: second, receiver: rules, scraped: 15 * second}
	scraped15sC  = settings{label: "default, clocks", source: "clocks", interval: 10 * second, window: second, receiver: rules, scraped: 15 * second}
	scraped1s    = settings{label: "default", source: "bpf", interval: second, receiver: rules, scraped: second}
	scraped1sC   = settings{label: "default, clocks", source: "clocks", interval: second, receiver: rules, scraped: second}
	scrapedAll   = settings{label: "all scraped", source: "bpf", interval: second, scraped: second, receiver: allSeries}
	sendsAll     = settings{label: byOTLP, source: "bpf", interval: second, sends: true, receiver: allSeries}
	uncompressed = settings{label: "all by OTLP, uncompressed", source: "bpf", interval: second, sends: true, uncompressed: true, receiver: allSeries}
	withoutPower = settings{label: "all by OTLP, without power", source: "bpf", interval: second, sends: true, receiver: allSeries + ", metrics: {process.power: {enabled: false}}"}
	sends500     = settings{label: "500 by OTLP", source: "bpf", interval: second, sends: true, receiver: "series: {processes: {group_by: pid, max: 500, min_energy: 0}}"}
	sendsUsed    = settings{label: "those above 1 J by OTLP", source: "bpf", interval: second, sends: true, receiver: "series: {processes: {group_by: pid, max: 0, min_energy: 1}}"}
)

// ofAllByOTLP is the goal of the scenario "series": CPU time as a multiple of the CPU time of
// 10,000 series by OTLP.
var ofAllByOTLP = []goal{{figure: cpuAll, times: byOTLP}}

// scenarios are the measurements of the receiver. Adjacent scenarios with the same machine share
// it.
var scenarios = []scenario{
	{name: "idle", machine: crowdOf(100, 0), rows: []row{
		{packaged, idling(0.05, 2.5, 41)}, {defaults.collector, idling(0.05, 2.5, 0)},
		{emptyCollector, idling(0, 0, 0)}, {kepler(0), idling(0, 0, 0)},
	}},
	{name: "windows", machine: crowdOf(1000, 10), rows: []row{
		{windows10ms.collector, cpu(1.2, goal{figure: wakeups})}, {windows100ms.collector, cpu(0.3)}, {floor("wake", second/100), cpu(0)},
	}},
	{name: "measure", machine: crowdOf(1000, 10), rows: []row{
		{measure10ms, cpu(1.8, goal{figure: wakeups})},
	}},
	{name: "exits", machine: crowd.Machine{Processes: 1000, Active: 10, Exits: 1000}, rows: []row{{everySecond.collector, cpu(0.25)}}},
	{name: "containers", machine: crowd.Machine{Processes: 1000, Active: 50, Containers: 1000}, rows: []row{
		{scraped15s.collector, cpu(0.25)}, {scraped15sC.collector, cpu(0.6)},
	}},
	{name: "containers-second", machine: crowd.Machine{Processes: 1000, Active: 50, Containers: 1000}, rows: []row{
		{scraped1s.collector, cpu(0)}, {scraped1sC.collector, cpu(0)}, {kepler(second), cpu(0)},
	}},
	{name: "start", machine: crowdOf(10_000, 100), rows: []row{
		{starting.collector, []goal{{figure: firstAfter, most: 600}, {figure: firstCPU, most: 150}}},
		{startingC.collector, []goal{{figure: firstAfter}, {figure: firstCPU}}},
	}},
	{name: "second-10000", machine: crowdOf(10_000, 100), rows: []row{
		{everySecond.collector, cpu(0.18, memoryAtMost(55)...)},
		{everySecondP.collector, cpu(0, append(memoryAtMost(0), goal{figure: cpuAll, most: 1.1, times: "floor procfs"})...)},
		{floor("procfs", second), nil}, {floor("library", second), cpu(0)}, {kepler(0), cpu(0, memoryAtMost(0)...)},
	}},
	{name: "ten-seconds", machine: crowdOf(10_000, 100), rows: []row{{every10s.collector, cpu(0.03)}}},
	{name: "default", machine: crowdOf(10_000, 100), rows: []row{
		{defaults.collector, cpu(0.35, goal{figure: resident})}, {windows1s.collector, cpu(0)},
	}},
	{name: "windows-10000", machine: crowdOf(10_000, 100), rows: []row{{windows10ms.collector, cpu(3)}, {defaults10th.collector, cpu(0)}}},
	{name: "clocks", machine: crowdOf(10_000, 100), rows: []row{{defaultsC.collector, cpu(0.7, goal{figure: resident})}}},
	{name: "series", machine: crowdOf(10_000, 100), rows: []row{
		{sendsAll.collector, cpu(0, goal{figure: resident})}, {uncompressed.collector, ofAllByOTLP}, {withoutPower.collector, ofAllByOTLP},
		{sends500.collector, ofAllByOTLP}, {sendsUsed.collector, ofAllByOTLP}, {scrapedAll.collector, append(memoryAtMost(0), ofAllByOTLP...)},
		{kepler(second), cpu(0, memoryAtMost(0)...)},
	}},
	{name: "profiles", machine: crowdOf(10_000, 100), rows: []row{
		{profiler("energyprofile", energyprofilePipelines), cpu(2.5, goal{figure: resident})},
		{profiler("receiver and profiler", metricsPipeline+", "+profilesPipeline), cpu(0, goal{figure: resident})},
		{profiler("profiler", profilesPipeline), cpu(0)}, {profiler("receiver", metricsPipeline), cpu(0, goal{figure: resident})},
	}},
	{
		name: "clocks-active", machine: crowd.Machine{Processes: 10_000, Active: 100, Containers: 100},
		rows: []row{{defaultsC.collector, cpu(1)}},
	},
	{
		name: "clocks-idle", machine: crowd.Machine{Processes: 10_000, Active: 100, Containers: 100, ActiveIn: 10},
		rows: []row{{defaultsC.collector, cpu(0.7)}},
	},
	{name: "clocks-asleep", machine: crowd.Machine{Processes: 30_000, Containers: 300}, rows: []row{
		{settled.collector, cpu(1, goal{figure: cpuEarly, most: 3})},
	}},
	{name: "busy-10000", machine: crowdOf(10_000, 500), rows: []row{{everySecond.collector, cpu(0.45)}}},
	{name: "second-30000", machine: crowdOf(30_000, 300), rows: []row{{everySecond.collector, cpu(0.75, memoryAtMost(75)...)}}},
}
