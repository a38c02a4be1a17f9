// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/test/crowd"
)

// scenario is variants beside a machine, and what they should cost at most.
type scenario struct {
	name    string
	machine crowd.Machine
	evict   float64 // as plan.evict
	// variants returns those that run the given programs. Without a program that it needs there are none.
	variants func(programs) ([]variant, error)
	goals    []goal
	extra    bool // is run only if it is named, or with all
}

// programs are the paths of programs that scenarios run. Empty ones are missing.
type programs struct {
	collector, kepler string
	profiles          string // a collector with the profiler
	dir               string // for their files
}

// goal is a figure of a variant and its bound.
type goal struct {
	variant int // index
	// against is the index of the variant whose figure is the unit, or none.
	against int
	figure  figure
	bound   bound
}

const none = -1

// bound is the maximum or minimum of a figure. The zero bound is none.
type bound struct {
	value   float64
	atLeast bool
}

func atMost(value float64) bound  { return bound{value: value} }
func atLeast(value float64) bound { return bound{value, true} }

// holds reports whether a figure is within the bound.
func (b bound) holds(figure float64) bool {
	if b.atLeast {
		return figure >= b.value
	}
	return figure <= b.value
}

func (b bound) String() string {
	switch {
	case b == bound{}:
		return ""
	case b.atLeast:
		return fmt.Sprintf("at least %g", b.value)
	}
	return fmt.Sprintf("at most %g", b.value)
}

// figure is a number of a turn.
type figure struct {
	name     string
	decimals int
	of       func(turn) float64
}

var (
	cpuAll      = figure{"% of a CPU", 3, func(t turn) float64 { return 100 * t.all() }}
	wakeups     = figure{"wakeups per second", 1, func(t turn) float64 { return t.wakeups }}
	resident    = figure{"MiB resident", 1, func(t turn) float64 { return t.memory.resident / (1 << 20) }}
	anonymous   = figure{"MiB anonymous", 1, func(t turn) float64 { return t.memory.anonymous / (1 << 20) }}
	keptWindows = figure{"% of windows kept", 1, func(t turn) float64 { return 100 * t.kept }}
	firstAfter  = figure{"ms to the first emission", 0, func(t turn) float64 { return 1000 * t.first.after.Seconds() }}
	firstCPU    = figure{"ms of CPU until then", 0, func(t turn) float64 { return 1000 * t.first.cpu.Seconds() }}
)

// beside returns a machine with processes, of which some are active.
func beside(processes, active int) crowd.Machine {
	return crowd.Machine{Processes: processes, Active: active}
}

// collectors returns the function that returns a collector for each of the settings, named by what they set.
func collectors(all ...settings) func(programs) ([]variant, error) {
	return func(p programs) (variants []variant, err error) {
		for _, s := range all {
			s.binary = p.collector
			variants = append(variants, s.collector(s.String()))
		}
		return variants, nil
	}
}

// with adds the floor of that name, whose work is done so often.
func with(name string, every time.Duration, others func(programs) ([]variant, error)) func(programs) ([]variant, error) {
	return func(p programs) ([]variant, error) {
		variants, err := others(p)
		if err != nil {
			return nil, err
		}
		floor, err := ownFloor(name, p.dir, every)
		return append(variants, floor), err
	}
}

// keplers adds Kepler, not scraped and scraped. Without it the scenario is left out.
func keplers(others func(programs) ([]variant, error)) func(programs) ([]variant, error) {
	return func(p programs) ([]variant, error) {
		if p.kepler == "" {
			return nil, nil
		}
		variants, err := others(p)
		if err != nil {
			return nil, err
		}
		for _, isScraped := range []bool{false, true} {
			v, err := kepler(p.kepler, p.dir, isScraped)
			if err != nil {
				return nil, err
			}
			variants = append(variants, v)
		}
		return variants, nil
	}
}

// besideClocks returns the goals of withoutBPF, whose cost with CPU clocks should be at most so many % of a CPU.
func besideClocks(most float64) []goal {
	return []goal{{0, none, cpuAll, atMost(most)}, {0, 1, cpuAll, bound{}}, {1, none, cpuAll, bound{}}, {0, none, resident, bound{}}}
}

const second = time.Second

var (
	everySecond  = settings{source: "bpf", interval: second}
	everySecondP = settings{source: "procfs", interval: second}
	every10s     = settings{source: "bpf", interval: 10 * second}
	windows10ms  = settings{source: "bpf", interval: 10 * second, window: 10 * time.Millisecond}
	windows100ms = settings{source: "bpf", interval: 10 * second, window: 100 * time.Millisecond, telemetry: true}
	starting     = settings{source: "bpf", interval: second, starts: true}
	startingP    = settings{source: "procfs", interval: second, starts: true}
	scraped      = settings{source: "bpf", interval: second, scraped: true}
	everyProcess = "series: {processes: {group_by: pid, max: 0, min_energy: 0}}"
	scrapedAll   = settings{label: "all scraped", source: "bpf", interval: second, scraped: true, receiver: everyProcess}
	sendsAll     = settings{label: "all by OTLP", source: "bpf", interval: second, sends: true, receiver: everyProcess}
	uncompressed = settings{label: "all by OTLP, uncompressed", source: "bpf", interval: second, sends: true, uncompressed: true, receiver: everyProcess}
	withoutPower = settings{label: "all by OTLP, without power", source: "bpf", interval: second, sends: true, receiver: everyProcess + ", metrics: {process.power: {enabled: false}}"}
	sends500     = settings{label: "500 by OTLP", source: "bpf", interval: second, sends: true, receiver: "series: {processes: {group_by: pid, max: 500, min_energy: 0}}"}
	sendsUsed    = settings{label: "those above 1 J by OTLP", source: "bpf", interval: second, sends: true, receiver: "series: {processes: {group_by: pid, max: 0, min_energy: 1}}"}
	learned      = settings{label: "scope zone, split learned", source: "bpf", interval: second, receiver: "attribution: {scope: zone, static_power: trained}"}
	// Modeled energy needs no learning: it is asked for.
	accurate      = "attribution: {static_power: trained}"
	accurateBPF   = settings{label: "default", source: "bpf", interval: 10 * second, window: second, receiver: accurate, divided: true}
	accurateShort = settings{label: "default in 100 ms", source: "bpf", interval: 10 * second, window: second / 10, receiver: accurate, divided: true}
	accurateP     = settings{label: "default, procfs", source: "procfs", interval: 10 * second, window: second, receiver: accurate, divided: true}
	defaultC      = settings{label: "default, clocks", source: "clocks", interval: 10 * second, window: second, receiver: accurate}
	defaultP      = settings{label: "default, procfs", source: "procfs", interval: 10 * second, window: second, receiver: accurate}
	shipped       = settings{interval: 10 * second, config: "config.yaml"}
	windows1s     = settings{source: "bpf", interval: 10 * second, window: second}
	kavanagh      = settings{label: "preset kavanagh", source: "bpf", interval: second, receiver: "attribution: {preset: kavanagh}"}
	everySecondOf = collectors(everySecond)
	withoutBPF    = collectors(defaultC, defaultP)
)

// scenarios are the measurements of the receiver. Neighbors with the same machine share it.
var scenarios = []scenario{
	{name: "start", machine: beside(1000, 10), variants: collectors(starting, startingP), goals: []goal{
		{0, none, firstAfter, atMost(200)}, {0, none, firstCPU, atMost(100)},
		{1, none, firstAfter, bound{}}, {1, none, firstCPU, bound{}},
	}},
	{
		name: "windows-1000", machine: beside(1000, 10),
		variants: with("c-wake", 10*time.Millisecond, with("wake", 10*time.Millisecond, collectors(windows10ms))), goals: []goal{
			{0, none, cpuAll, atMost(2)}, {1, none, cpuAll, bound{}}, {2, none, cpuAll, bound{}}, {0, 2, cpuAll, bound{}},
		},
	},
	{
		name: "second-1000", machine: beside(1000, 10), extra: true, variants: with("library", second, collectors(everySecond, everySecondP)),
		goals: []goal{
			{0, none, cpuAll, bound{}}, {1, none, cpuAll, bound{}}, {0, 2, cpuAll, bound{}}, {1, 2, cpuAll, bound{}},
			{0, none, resident, bound{}}, {1, none, resident, bound{}},
		},
	},
	{name: "exits", machine: crowd.Machine{Processes: 1000, Active: 10, Exits: 1000}, variants: everySecondOf, goals: []goal{
		{0, none, cpuAll, atMost(0.25)},
	}},
	{name: "spinning", machine: crowd.Machine{Processes: 1000, Active: 10, Spinning: 100}, extra: true, variants: collectors(windows100ms), goals: []goal{
		{0, none, keptWindows, bound{}},
	}},
	{
		name: "containers", machine: crowd.Machine{Processes: 1000, Active: 50, Containers: 1000},
		variants: with("library", second, collectors(everySecondP)), goals: []goal{
			{0, 1, cpuAll, atMost(0.7)}, {0, none, cpuAll, bound{}},
		},
	},
	{
		name: "kepler-containers", machine: crowd.Machine{Processes: 1000, Active: 50, Containers: 1000}, extra: true,
		variants: keplers(collectors(everySecondP, everySecond)), goals: []goal{
			{0, 2, cpuAll, atMost(0.7)}, {1, 2, cpuAll, bound{}}, {2, none, cpuAll, bound{}}, {3, none, cpuAll, bound{}},
		},
	},
	{
		name: "second-10000", machine: beside(10_000, 100),
		variants: with("c-pread", second, with("c-procfs", second, with("library", second, with("procfs", second, collectors(everySecond, everySecondP))))),
		goals: []goal{
			{0, none, cpuAll, atMost(0.3)}, {0, none, resident, atMost(55)}, {0, none, anonymous, bound{}},
			{1, 2, cpuAll, atMost(1.1)}, {1, none, cpuAll, bound{}}, {1, none, resident, bound{}}, {1, none, anonymous, bound{}},
			{0, 3, cpuAll, bound{}}, {1, 3, cpuAll, bound{}},
			{1, 4, cpuAll, bound{}}, {1, 5, cpuAll, bound{}},
		},
	},
	{name: "ten-seconds", machine: beside(10_000, 100), variants: collectors(every10s, everySecond), goals: []goal{
		{0, none, cpuAll, atMost(0.03)}, {0, 1, cpuAll, atMost(0.1)},
	}},
	{name: "windows-10000", machine: beside(10_000, 100), variants: with("wake", 10*time.Millisecond, collectors(windows10ms)), goals: []goal{
		{0, none, cpuAll, atMost(3)}, {1, none, cpuAll, bound{}},
	}},
	{name: "cold", machine: beside(10_000, 100), evict: 2, extra: true, variants: everySecondOf, goals: []goal{
		{0, none, cpuAll, bound{}},
	}},
	{
		name: "series", machine: beside(10_000, 100), extra: true,
		variants: collectors(sendsAll, uncompressed, withoutPower, sends500, sendsUsed, scrapedAll), goals: []goal{
			{0, none, cpuAll, bound{}}, {0, none, resident, bound{}}, {1, 0, cpuAll, bound{}}, {2, 0, cpuAll, bound{}},
			{3, 0, cpuAll, bound{}}, {4, 0, cpuAll, bound{}}, {5, 0, cpuAll, bound{}}, {5, none, resident, bound{}},
		},
	},
	{name: "rules", machine: beside(10_000, 100), extra: true, variants: collectors(everySecond, learned, kavanagh), goals: []goal{
		{1, 0, cpuAll, bound{}}, {2, 0, cpuAll, bound{}},
	}},
	{
		name: "accurate", machine: beside(10_000, 100), variants: collectors(accurateBPF, accurateShort, accurateP, windows1s),
		goals: []goal{
			{0, none, cpuAll, atMost(0.35)}, {0, 3, cpuAll, bound{}}, {1, none, cpuAll, bound{}}, {1, none, resident, bound{}}, {2, none, cpuAll, bound{}},
		},
	},
	{name: "idle", machine: beside(100, 1), variants: collectors(accurateBPF, shipped), goals: []goal{
		{0, none, cpuAll, atMost(0.1)}, {0, none, wakeups, atMost(5)}, {1, none, cpuAll, bound{}}, {1, none, wakeups, bound{}},
	}},
	{name: "kepler-10000", machine: beside(10_000, 100), extra: true, variants: keplers(collectors(everySecond, everySecondP, scraped)), goals: []goal{
		{0, 3, cpuAll, bound{}}, {1, 3, cpuAll, bound{}}, {2, 4, cpuAll, bound{}}, {3, none, cpuAll, bound{}}, {4, none, cpuAll, bound{}},
		{0, 3, resident, bound{}},
	}},
	{name: "kepler-1000", machine: beside(1000, 10), extra: true, variants: keplers(collectors(everySecond, everySecondP, scraped)), goals: []goal{
		{0, 3, cpuAll, bound{}}, {1, 3, cpuAll, bound{}}, {2, 4, cpuAll, bound{}}, {3, none, cpuAll, bound{}}, {4, none, cpuAll, bound{}},
	}},
	{name: "clocks-cgroup", machine: beside(10_000, 100), extra: true, variants: withoutBPF, goals: besideClocks(2)},
	{name: "profiles", machine: beside(10_000, 100), extra: true, variants: profilers, goals: []goal{
		{3, none, cpuAll, atMost(2.5)}, {2, none, cpuAll, bound{}}, {1, none, cpuAll, bound{}}, {0, none, cpuAll, bound{}},
		{3, 2, cpuAll, bound{}}, {3, none, resident, bound{}}, {2, none, resident, bound{}}, {0, none, resident, bound{}},
	}},
	{
		name: "clocks-cgroups", machine: crowd.Machine{Processes: 10_000, Active: 100, Containers: 100, ActiveIn: 10}, extra: true,
		variants: withoutBPF, goals: besideClocks(0.8),
	},
	{name: "clocks-asleep", machine: crowd.Machine{Processes: 10_000, Containers: 100}, extra: true, variants: withoutBPF, goals: besideClocks(0.5)},
	{name: "clocks-asleep-30000", machine: crowd.Machine{Processes: 30_000, Containers: 300}, extra: true, variants: withoutBPF, goals: besideClocks(1)},
	{
		name: "clocks-containers", machine: crowd.Machine{Processes: 1000, Active: 50, Containers: 1000}, extra: true,
		variants: withoutBPF, goals: besideClocks(0.8),
	},
	{name: "busy-10000", machine: beside(10_000, 500), variants: everySecondOf, goals: []goal{{0, none, cpuAll, atMost(0.45)}}},
	{name: "second-30000", machine: beside(30_000, 300), variants: everySecondOf, goals: []goal{
		{0, none, cpuAll, atMost(0.75)}, {0, none, resident, atMost(75)}, {0, none, anonymous, bound{}},
	}},
}
