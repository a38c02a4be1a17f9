// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

// simHardware are the scenarios whose hardware changes the cost of CPU time, or makes energy
// difficult to measure.
var simHardware = []simScenario{
	{
		name: "Hyperthreads",
		description: "One socket of 4 cores with 2 threads each, 20 W at rest and 100 W at full load. A core whose threads are both\n" +
			"busy draws 1.2 times what it does with one busy thread. The process `pair` keeps both threads of a core\n" +
			"busy and the container `twins` those of another, for 95 % of the time; the process `alone` and the\n" +
			"container `single` have a core each and use one thread of it, `single` for 90 % of the time.",
		build: func(l *simulator) {
			l.on(threaded())
			l.process("pair", 0, 0).pinned(1, 0, 4)
			l.container("twins", 0, 0).pinned(0.95, 1, 5)
			l.process("alone", 0, 0).pinned(1, 2)
			l.container("single", 0, 0).pinned(0.9, 3)
		},
	},
	{
		name: "Hyperthreads in bursts",
		description: "The same machine. The processes `left` and `right` share a core and take turns of 170 ms, so that its threads\n" +
			"are never busy together. The two tasks of the container `twins` run at the same time, 250 of every 340 ms. The\n" +
			"process `early` runs during the first 400 ms of each second, and the container `late` from 100 to 500 ms on\n" +
			"the sibling. `alone` runs all the time on the fourth core.",
		build: func(l *simulator) {
			l.on(threaded())
			left, right := l.process("left", 0, 0), l.process("right", 0, 0)
			twins := l.container("twins", 0, 0)
			early, late := l.process("early", 0, 0), l.container("late", 0, 0)
			left.pinned(0, 0)
			right.pinned(0, 4)
			twins.pinned(0, 1, 5)
			early.pinned(0, 2)
			late.pinned(0, 6)
			l.process("alone", 0, 0).pinned(1, 3)
			l.each(func(at time.Duration) {
				at += 3 * ms // so that no window begins with a burst
				left.demand(cpusIf(1, within(at, 340*ms, 0, 170*ms)))
				right.demand(cpusIf(1, within(at, 340*ms, 170*ms, 170*ms)))
				twins.demand(cpusIf(1, within(at+90*ms, 340*ms, 0, 250*ms)))
				early.demand(cpusIf(1, within(at, time.Second, 0, 400*ms)))
				late.demand(cpusIf(1, within(at, time.Second, 100*ms, 400*ms)))
			})
		},
	},
	{
		name: "Two sockets with migration",
		description: "Two sockets of 8 CPUs, each 30 W at rest and 130 W at full load on the concave curve, with a clock rate that\n" +
			"follows the load. The process `heavy` uses 5 CPUs of one socket and `light` 0.5 of the other. The container\n" +
			"`rover` uses one CPU and moves to the other socket every 370 ms; the process `nomad` uses two, and stays 900 ms\n" +
			"on the busy socket and 300 ms on the other.",
		build: func(l *simulator) {
			l.on(scaled(concave(8)), scaled(concave(8)))
			l.process("heavy", 0, 5)
			l.process("light", 1, 0.5)
			rover, nomad := l.container("rover", 0, 1), l.process("nomad", 0, 2)
			l.each(func(at time.Duration) {
				at += 3 * ms
				rover.tasks[0].Socket = int(at/(370*ms)) % 2
				nomad.tasks[0].Socket = int(cpusIf(1, within(at, 1200*ms, 900*ms, 300*ms)))
			})
		},
	},
	{
		name: "NUMA",
		description: "Two sockets of 8 CPUs, each 20 W at rest and 120 W at full load, in proportion; the memory of each uses 3 W at\n" +
			"rest. The container `remote` runs on one socket with 2 CPUs and uses 4 GiB of the other socket's memory, which\n" +
			"draws 6 W for each CPU. The container `local` uses as much of the same memory, with 1.5 CPUs of its socket. The\n" +
			"process `compute` runs beside `remote` with 4 CPUs and 256 MiB of its own socket's memory, 0.3 W for each CPU. The\n" +
			"container `cache` runs beside `local` with one CPU and holds twice as much memory, but reads little of it: 1.5 W.",
		build: func(l *simulator) {
			l.on(withMemory(straight(8, 20, 120)), withMemory(straight(8, 20, 120)))
			remote, local := l.container("remote", 0, 2).weighs(1, 6), l.container("local", 1, 1.5).weighs(1, 6)
			remote.holds(4 << 30)
			remote.tasks[0].MemorySocket = 1
			local.holds(4 << 30)
			l.process("compute", 0, 4).weighs(1, 0.3).holds(256 << 20)
			l.container("cache", 1, 1).weighs(1, 1.5).holds(8 << 30)
		},
	},
	{
		name: "Turbo with a power limit",
		description: "One socket of 8 CPUs, 20 W at rest and 120 W at full load at the nominal clock rate. The rate is 1.35 times that\n" +
			"with one busy CPU, and 1.15 times with all. When the average power of the last 2 s reaches 95 W, the rate falls\n" +
			"to what holds it there. The process `steady` uses one CPU, the container `batch` 7 CPUs during 6 s of every\n" +
			"10 s, and the container `pulse` 2 CPUs during 300 ms of every 1.1 s.",
		build: func(l *simulator) {
			s := straight(8, 20, 120)
			s.Turbo = &hostsim.Turbo{One: 1.35, All: 1.15, Limit: 95, Window: 2 * time.Second}
			l.on(s)
			l.process("steady", 0, 1)
			batch, pulse := l.container("batch", 0, 0), l.container("pulse", 0, 0)
			l.each(func(at time.Duration) {
				batch.demand(cpusIf(7, within(at, 10*time.Second, 2437*ms, 6*time.Second)))
				pulse.demand(cpusIf(2, within(at+3*ms, 1100*ms, 0, 300*ms)))
			})
		},
	},
	{
		name: "A noisy counter",
		description: "One socket of 8 CPUs with the concave curve, whose counters behave like RAPL's: they move once a millisecond\n" +
			"(every 976 µs, give or take 20), in units of 61 µJ. The process `steady` uses 1.5 CPUs. The container `flicker`\n" +
			"uses 5 CPUs during 7 ms of every 23 ms, and the process `wave` 0 to 3 CPUs in a period of 700 ms.",
		build: func(l *simulator) {
			l.on(concave(8))
			l.machine.SetRegisters(hostsim.Registers{Every: 976 * time.Microsecond, Jitter: 20 * time.Microsecond, Unit: 61.03515625})
			l.process("steady", 0, 1.5)
			flicker, wave := l.container("flicker", 0, 0), l.process("wave", 0, 0)
			l.each(func(at time.Duration) {
				flicker.demand(cpusIf(5, within(at, 23*ms, 0, 7*ms)))
				wave.demand(1.5 + 1.5*math.Sin(2*math.Pi*at.Seconds()/0.7))
			})
		},
	},
	{
		name: "A hypervisor's steal",
		description: "A virtual machine of 4 CPUs, 10 W at rest and 70 W at full load on a concave curve, of whose CPUs others take 25 % on average: from 5\n" +
			"to 45 % in a period of 7 s. Its meter counts what it caused itself. The process `batch` demands 3 CPUs, so that\n" +
			"it gets what is left; the container `web` demands 0.6, and the container `burst` 2 during 2 s of every 10 s.",
		build: func(l *simulator) {
			l.on(&hostsim.Socket{CPUs: 4, Idle: 10, Curve: model.Curve{
				{Utilization: 0, Watts: 10}, {Utilization: 0.25, Watts: 35}, {Utilization: 0.5, Watts: 52}, {Utilization: 1, Watts: 70},
			}})
			l.process("batch", 0, 3)
			l.container("web", 0, 0.6)
			burst := l.container("burst", 0, 0)
			l.each(func(at time.Duration) {
				l.machine.Steal = 0.25 + 0.2*math.Sin(2*math.Pi*at.Seconds()/7)
				burst.demand(cpusIf(2, within(at, 10*time.Second, 3437*ms, 2*time.Second)))
			})
		},
	},
	{
		name: "2,000 small containers",
		description: "One socket of 32 CPUs with the concave curve and a clock rate that follows the load. Of 2,000 containers, each\n" +
			"uses 0.001 to 0.02 CPUs on average, most of them little: each sleeps and runs in bursts of one CPU, of which\n" +
			"most last for some milliseconds and a few for seconds.",
		build: smallContainers,
	},
	{
		name: "Interrupts in bursts",
		description: "One socket of 4 CPUs, 20 W at rest and 100 W at full load, in proportion. Interrupts use 1 % of the CPUs, and 35 %\n" +
			"in storms of 300 ms, one every 2 to 4 s. The process `batch` uses 1.2 CPUs, the process `agent` 0.05 and the\n" +
			"container `web` 0.6; the container `proxy` uses 0.2, and 1.5 during the storms.",
		build: func(l *simulator) { interruptStorms(l, straight(4, 20, 100)) },
	},
}

// threaded returns a socket of 4 cores with 2 threads each.
func threaded() *hostsim.Socket {
	s := straight(8, 20, 100)
	s.Threads, s.Siblings = 2, 1.2
	return s
}

// pinned pins the workload's tasks to CPUs of their socket, each with a demand. It adds missing
// tasks.
func (w *simWorkload) pinned(demand float64, cpus ...int) {
	for i, cpu := range cpus {
		if i == len(w.tasks) {
			w.spawn()
		}
		w.tasks[i].Pin(cpu)
		w.tasks[i].Demand = demand
	}
}

// demand sets the demand of all tasks of the workload.
func (w *simWorkload) demand(cpus float64) {
	for _, t := range w.tasks {
		t.Demand = cpus
	}
}

// smallContainers draws the length of each burst and of each sleep from heavy-tailed Pareto
// distributions. They are the same in every run.
func smallContainers(l *simulator) {
	l.on(scaled(concave(32)))
	r := rand.New(rand.NewPCG(1, 2))
	pareto := func(least, most float64) float64 { // with an exponent of 1.1
		return min(least*math.Pow(1-r.Float64(), -1/1.1), most)
	}
	const count = 2000
	inMS := func(n float64) int { return max(int(n), 1) }
	due := make([][]int, 64<<10) // containers whose burst begins or ends, by ms
	all, sleeps := make([]*simWorkload, count), make([]float64, count)
	for i := range all {
		all[i] = l.container(fmt.Sprintf("small-%d", i), 0, 0)
		// Bursts of at least 5 ms last 29 ms on average. The sleeps in between set the average use.
		average := pareto(0.001, 0.02)
		sleeps[i] = 29 * (1 - average) / average
		first := inMS(sleeps[i] * r.Float64())
		due[first%len(due)] = append(due[first%len(due)], i)
	}
	l.each(func(at time.Duration) {
		now := int(at / ms)
		list := due[now%len(due)]
		for _, i := range list {
			t := all[i].tasks[0]
			length := inMS(2 * sleeps[i] * r.Float64())
			if t.Demand == 0 {
				t.Demand, length = 1, inMS(pareto(5, 4000))
			} else {
				t.Demand = 0
			}
			next := (now + min(length, len(due)-1)) % len(due)
			due[next] = append(due[next], i)
		}
		due[now%len(due)] = list[:0]
	})
}

func interruptStorms(l *simulator, sockets ...*hostsim.Socket) {
	l.on(sockets...)
	last := len(sockets) - 1
	l.process("batch", 0, 1.2)
	l.process("agent", last, 0.05)
	l.container("web", last, 0.6)
	proxy := l.container("proxy", 0, 0.2)
	r := rand.New(rand.NewPCG(1, 3))
	begin := 1237 * ms
	l.each(func(at time.Duration) {
		l.machine.IRQ, proxy.tasks[0].Demand = 0.01, 0.2
		if at >= begin {
			l.machine.IRQ, proxy.tasks[0].Demand = 0.35, 1.5
		}
		if at >= begin+300*ms {
			begin += 2*time.Second + time.Duration(r.IntN(2000))*ms
		}
	})
}
