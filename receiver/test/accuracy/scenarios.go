// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/test/table"
)

// simScenario is a machine and its workloads.
type simScenario struct {
	name        string
	description string // for dev/results/scenarios.csv
	// build creates the simulator's machine and its workloads.
	build func(*simulator)
	// row is the name of the scenario's row, if several scenarios share the row.
	row string
	// machine is the name of the machine, if several scenarios share the machine.
	machine string
	load    float64 // of a load curve
	driver  string  // the driver of the cards, if the scenario needs one
}

var simScenarios = []simScenario{
	{
		name: "Steady mix",
		description: "One socket of 4 CPUs, 0 W at rest and 80 W at full load, in proportion in between. The processes `batch` and\n" +
			"`agent` and the containers `web` and `db` run steadily, with 1.3, 0.013, 0.6 and 0.25 CPUs. Energy is in\n" +
			"proportion to CPU time here, so nothing should be misattributed, whatever the setting.",
		build: steadyMix,
	},
	{
		name: "Bursts",
		description: "One socket of 4 CPUs, 20 W at rest and 120 W at full load. The process `steady` uses 20 % of the CPUs all the\n" +
			"time, `burst` asks for all of them during 2 s of every 10 s. The clock rate follows the load as with the\n" +
			"kernel's schedutil governor: 1.25 times the utilization, at least 40 %.",
		build: func(l *simulator) {
			l.on(scaled(straight(4, 20, 120)))
			l.process("steady", 0, 0.8)
			burst := l.process("burst", 0, 0)
			l.each(func(at time.Duration) { burst.demand(cpusIf(4, within(at, 10*time.Second, 3437*ms, 2*time.Second))) })
		},
	},
	{
		name: "Short-lived children",
		description: "One socket of 4 CPUs, 20 W at rest and 100 W at full load, in proportion. The main process of the container\n" +
			"`builder` sleeps and starts a child every 10 ms, which runs for 5 ms; no scan sees one. The process\n" +
			"`server` and the container `web` run steadily with half a CPU each.",
		build: func(l *simulator) {
			l.on(straight(4, 20, 100))
			l.process("server", 0, 0.5)
			l.container("web", 0, 0.5)
			l.withChildren(l.container("builder", 0, 0))
		},
	},
	{
		name: "Short-lived containers",
		description: "The same machine. In every 10 s a new container `job` lives for 3 s, with one CPU, and is gone before the\n" +
			"collection; all of them are taken together. `server` and `web` run steadily with half a CPU each.",
		build: func(l *simulator) {
			l.on(straight(4, 20, 100))
			l.process("server", 0, 0.5)
			l.container("web", 0, 0.5)
			l.jobs(10*time.Second, 4219*ms, func(job *simWorkload) { l.contain(job, 0, 1) })
		},
	},
	{
		name: "One container on one socket",
		description: "Two sockets of 8 CPUs, each 30 W at rest and 130 W at full load on a concave curve: half of what load adds\n" +
			"comes with the first quarter of it. The container `job` has one socket to itself, with 6.5 CPUs; on the other\n" +
			"the processes `server` and `agent` run with 0.6 and 0.2.",
		build: func(l *simulator) {
			l.on(concave(8), concave(8))
			l.process("server", 0, 0.6)
			l.process("agent", 0, 0.2)
			l.container("job", 1, 6.5)
		},
	},
	{
		name: "Frequency scaling",
		description: "Two sockets of 4 CPUs, each 20 W at rest and 100 W at full load and clock rate, which follows the socket's load\n" +
			"as above. The process `fast` uses 3.6 CPUs of one socket, `slow` 0.8 of the other, at 40 % of the clock rate.",
		build: func(l *simulator) {
			l.on(scaled(straight(4, 20, 100)), scaled(straight(4, 20, 100)))
			l.process("fast", 0, 3.6)
			l.process("slow", 1, 0.8)
		},
	},
	{
		name: "Memory-bound and compute-bound",
		description: "One socket of 4 CPUs, 20 W at rest and 100 W at full load; its memory uses 3 W at rest. The processes `compute`\n" +
			"and `memory` run with 1.5 CPUs each. For the same CPU time `compute` makes the package draw 1.3 times and\n" +
			"`memory` 0.7 times the usual, and the memory 0.5 W and 6 W for each CPU. They hold 256 MiB and 4 GiB of it.",
		build: func(l *simulator) {
			l.on(withMemory(straight(4, 20, 100)))
			l.process("compute", 0, 1.5).weighs(1.3, 0.5).holds(256 << 20)
			l.process("memory", 0, 1.5).weighs(0.7, 6).holds(4 << 30)
		},
	},
	{
		name: "Interrupts",
		description: "The steady mix's machine and workloads, with a tenth of all CPU time in interrupts. Their energy is no\n" +
			"workload's.",
		build: func(l *simulator) {
			steadyMix(l)
			l.machine.IRQ = 0.1
		},
	},
	{
		name: "Mixed node",
		description: "Everything at once. Two sockets of 8 CPUs, with the concave curve and a clock rate that follows the load, each\n" +
			"with 3 W of memory at rest; 2 % of CPU time in interrupts. On one socket the containers `db` (1.2 CPUs,\n" +
			"memory-bound) and `builder` (children of 5 ms as above) and the process `agent` (0.05); on the other the\n" +
			"containers `web` (0.9, steady) and `batch` (5 CPUs during 3 of 10 s, compute-bound). `web` requests 4 CPUs,\n" +
			"`db` 2 and the others one. `db` holds 4 GiB, `batch` 256 MiB, and every other process 64 MiB.",
		build: func(l *simulator) {
			l.on(withMemory(scaled(concave(8))), withMemory(scaled(concave(8))))
			l.machine.IRQ = 0.02
			l.process("agent", 0, 0.05)
			db := l.container("db", 0, 1.2)
			db.weighs(0.8, 5).holds(4 << 30)
			l.requests(db, 2)
			l.requests(l.container("web", 1, 0.9), 4)
			batch := l.container("batch", 1, 0)
			batch.weighs(1.3, 0.5).holds(256 << 20)
			l.each(func(at time.Duration) { batch.demand(cpusIf(5, within(at, 10*time.Second, 4219*ms, 3*time.Second))) })
			l.withChildren(l.container("builder", 0, 0))
		},
	},
}

const ms = time.Millisecond

// straight returns a socket whose power rises linearly with its load, from idle to full W.
func straight(cpus int, idle, full float64) *hostsim.Socket {
	return &hostsim.Socket{CPUs: cpus, Idle: idle, Curve: model.Curve{{Utilization: 0, Watts: idle}, {Utilization: 1, Watts: full}}}
}

// concave returns a socket whose power rises most at low load.
func concave(cpus int) *hostsim.Socket {
	return &hostsim.Socket{CPUs: cpus, Idle: 30, Curve: model.Curve{
		{Utilization: 0, Watts: 30}, {Utilization: 0.25, Watts: 80}, {Utilization: 0.5, Watts: 105}, {Utilization: 1, Watts: 130},
	}}
}

// scaled makes the clock rate of a socket follow the load.
func scaled(s *hostsim.Socket) *hostsim.Socket {
	s.Frequency = schedutil
	return s
}

// schedutil is the clock rate that the kernel's default governor requests, relative to the highest:
// 1.25 times the utilization (Documentation/scheduler/schedutil.rst), with a minimum of 40 %.
func schedutil(utilization float64) float64 { return min(max(1.25*utilization, 0.4), 1) }

// withMemory adds memory to a socket that draws 3 W at rest.
func withMemory(s *hostsim.Socket) *hostsim.Socket {
	s.DRAMIdle = 3
	return s
}

func steadyMix(l *simulator) {
	l.on(straight(4, 0, 80))
	l.process("batch", 0, 1.3)
	l.process("agent", 0, 0.013)
	l.container("web", 0, 0.6)
	l.container("db", 0, 0.25)
}

// within reports whether a time is within a part of each period, which starts at an offset. No
// window of 10 ms begins at the offsets of the scenarios.
func within(at, period, from, length time.Duration) bool {
	in := at % period
	return in >= from && in < from+length
}

// cpusIf returns n if the condition holds, and 0 otherwise.
func cpusIf(n float64, condition bool) float64 {
	if condition {
		return n
	}
	return 0
}

// withChildren makes a workload's first task start children that live for 3 to 8 ms in every 10 ms.
func (l *simulator) withChildren(w *simWorkload) {
	var child *hostsim.Task
	l.each(func(at time.Duration) {
		switch at % (10 * ms) {
		case 3 * ms:
			child = w.spawn()
			child.Exec("/usr/bin/cc", "cc")
			child.Demand = 1
		case 8 * ms:
			child.Exit()
			child.Reap(false)
		}
	})
}

// jobs adds a workload of containers. In every period, start starts a container, which lives for 3
// s.
func (l *simulator) jobs(period, from time.Duration, start func(*simWorkload)) {
	job := l.workload("job")
	l.each(func(at time.Duration) {
		switch at % period {
		case from:
			start(job)
		case from + 3*time.Second:
			l.end(job.tasks[len(job.tasks)-1])
		}
	})
}

// Loads of the machines in the load curves. Power at rest matters most at low loads.
var (
	simLoads    = []float64{0.1, 0.4, 0.7, 1}
	simLowLoads = []float64{0.02, 0.05, 0.1, 0.4, 0.7, 1}
)

// underLoad returns a machine with the power curve of a real machine, on which a process and a
// container run steadily.
func underLoad(c simCurve, load float64) simScenario {
	return simScenario{name: fmt.Sprintf("%s, %.0f %% load", c.cpu, 100*load), machine: c.cpu, load: load, build: func(l *simulator) {
		l.on(&hostsim.Socket{CPUs: c.threads, Idle: c.watts[0].Watts, Curve: c.watts})
		demand := load * float64(c.threads)
		l.process("server", 0, demand*3/4)
		l.container("job", 0, demand/4)
	}}
}

// afterNights returns the machine of underLoad after days whose lowest mean load, at midnight, is
// night.
func afterNights(c simCurve, night, load float64) simScenario {
	c.cpu, c.watts = fmt.Sprintf("%s, nights at %.0f %%", c.cpu, 100*night), fromZero(c.watts)
	sc := underLoad(c, load)
	build := sc.build
	sc.build = func(l *simulator) {
		l.nights = night
		build(l)
	}
	return sc
}

// fromZero returns a curve that begins at a load of 0, on the line through its first two points.
func fromZero(c model.Curve) model.Curve {
	first, second := c[0], c[1]
	if first.Utilization == 0 {
		return c
	}
	slope := (second.Watts - first.Watts) / (second.Utilization - first.Utilization)
	return append(model.Curve{{Utilization: 0, Watts: first.Watts - slope*first.Utilization}}, c...)
}

// simCurve is the measured power of a machine by load.
type simCurve struct {
	cpu     string
	threads int
	watts   model.Curve
}

// simCurves returns the curves of testdata/load-curves.csv, which cites their source. All cores are
// loaded evenly.
func simCurves(tb testing.TB) []simCurve { return curvesOf(tb, "load-curves.csv") }

// simCoreCurves returns the curves of testdata/core-curves.csv, which cites their source. Cores are
// loaded one by one.
func simCoreCurves(tb testing.TB) []simCurve {
	curves := curvesOf(tb, "core-curves.csv")
	for i := range curves {
		curves[i].cpu += ", some cores"
	}
	return curves
}

func curvesOf(tb testing.TB, name string) (curves []simCurve) {
	all, err := table.Read(filepath.Join("testdata", name))
	require.NoError(tb, err)
	number := func(s string) float64 {
		n, err := strconv.ParseFloat(s, 64)
		require.NoError(tb, err)
		return n
	}
	for _, row := range all.Rows {
		if n := len(curves); n == 0 || curves[n-1].cpu != row[0] {
			curves = append(curves, simCurve{cpu: row[0], threads: int(number(row[1]))})
		}
		c := &curves[len(curves)-1]
		c.watts = append(c.watts, model.Point{Utilization: number(row[2]) / 100, Watts: number(row[3])})
	}
	for _, c := range curves {
		_, err := model.NewCurve(c.watts)
		require.NoError(tb, err, c.cpu)
	}
	return curves
}
