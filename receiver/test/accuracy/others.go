// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"cmp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/test/rules"
)

// otherTool is the rule of another tool, at the interval at which the tool reads by default.
type otherTool struct {
	name  string
	every time.Duration
	rule  func(rules.Machine) rules.Rule
	// learns states that the tool sees the machine for a day before.
	learns bool
	// noDRAM states that the tool says nothing of memory, so that it is compared with packages only.
	noDRAM bool
}

var otherTools = []otherTool{
	{name: "Kepler up to 0.9", every: 3 * time.Second, rule: func(rules.Machine) rules.Rule { return &rules.Kepler09{} }, learns: true},
	{name: "Kepler from 0.10", every: 5 * time.Second, rule: func(rules.Machine) rules.Rule { return rules.Kepler{} }},
	{name: "Scaphandre", every: 2 * time.Second, rule: func(rules.Machine) rules.Rule { return rules.Scaphandre{} }},
	{name: "SmartWatts", every: time.Second, rule: func(m rules.Machine) rules.Rule { return &rules.SmartWatts{Machine: m} }, learns: true},
	{name: "KubeWatt", every: 15 * time.Second, rule: func(m rules.Machine) rules.Rule { return &rules.KubeWatt{Machine: m} }, learns: true},
	{name: "Kavanagh", every: 30 * time.Second, rule: func(m rules.Machine) rules.Rule { return rules.Kavanagh{Machine: m} }},
	{name: "EnergAt", every: time.Second, rule: func(m rules.Machine) rules.Rule { return rules.EnergAt{Machine: m} }},
	{name: "METRION", every: time.Second, rule: func(m rules.Machine) rules.Rule { return rules.METRION{Machine: m} }},
	{name: "CEEMS", every: 15 * time.Second, rule: func(rules.Machine) rules.Rule { return rules.CEEMS{} }},
	{name: "CodeCarbon", every: time.Second, rule: func(m rules.Machine) rules.Rule { return rules.CodeCarbon{Machine: m} }, noDRAM: true},
	{name: "Alumet", every: 5 * time.Second, rule: func(m rules.Machine) rules.Rule { return rules.Alumet{Machine: m} }, noDRAM: true},
}

// ownSettings are those of the receiver that other rules are compared with.
func ownSettings() []simSetting {
	all := among(nil, "default, BPF", "default, procfs", "CPU time, 10 s, BPF", "CPU time, 10 s, procfs")
	for i, as := range []string{"default, BPF", "default, procfs", "preset kepler, BPF", "preset kepler, procfs"} {
		all[i].as = "ours, " + as
	}
	return all
}

// title names a setting of the receiver among the rules of tools.
func (s *simSetting) title() string { return cmp.Or(s.as, s.name) }

// toolSettings are the rules of the other tools.
func toolSettings() (all []simSetting) {
	for _, other := range otherTools {
		all = append(all, simSetting{name: other.name, tool: true})
	}
	return all
}

// onlooker follows a machine's tasks, and what a tool has read of them.
type onlooker struct {
	l       *simulator
	users   int // workloads and, last, the rest
	tasks   map[*hostsim.Task]*seenTask
	known   []int // tasks of each workload in tasks
	parts   [][]rules.Part
	elapsed time.Duration
}

type seenTask struct {
	user    int
	used    time.Duration
	events  hostsim.Events
	samples []float64 // by socket, every 10 ms
}

// reading holds a tool's readings at the end of its last interval.
type reading struct {
	at      time.Duration
	ticks   map[*hostsim.Task]int64
	samples map[*hostsim.Task][]float64
	parts   [][]rules.Part
	zones   []uint64 // package and dram by socket
	times   [][3]time.Duration
}

// observe follows the tasks of a simulator's machine, whose workloads may end.
func observe(l *simulator) *onlooker {
	w := &onlooker{l: l, users: len(l.workloads) + 1, tasks: map[*hostsim.Task]*seenTask{}, known: make([]int, len(l.workloads))}
	w.parts = make([][]rules.Part, w.users)
	for u := range w.parts {
		w.parts[u] = make([]rules.Part, len(l.machine.Sockets))
	}
	return w
}

// observe notes what the tasks did in the last step of the machine.
func (w *onlooker) observe(d time.Duration) {
	for i, of := range w.l.workloads {
		for ; w.known[i] < len(of.tasks); w.known[i]++ {
			w.add(of.tasks[w.known[i]], i)
		}
	}
	w.elapsed += d
	for _, t := range w.l.machine.Tasks {
		task := w.tasks[t]
		if task == nil {
			task = w.add(t, w.users-1)
		}
		if ran := t.Used - task.used; ran > 0 {
			task.used = t.Used
			cycles := ran.Seconds() * w.l.machine.Sockets[t.Socket].Clock()
			alone := cycles
			if run, together := t.Ran(); run > 0 {
				alone *= 1 - together/run
			}
			part := &w.parts[task.user][t.Socket]
			part.CPU, part.Cycles, part.Alone = part.CPU+ran.Seconds(), part.Cycles+cycles, part.Alone+alone
			part.Instructions += t.Events.Instructions - task.events.Instructions
			part.Misses += t.Events.Misses - task.events.Misses
			task.events = t.Events
		}
		if w.elapsed%(10*time.Millisecond) == 0 {
			task.samples[t.Socket]++
		}
	}
}

func (w *onlooker) add(t *hostsim.Task, user int) *seenTask {
	task := &seenTask{user: user, samples: make([]float64, len(w.l.machine.Sockets))}
	w.tasks[t] = task
	return task
}

// read returns what a tool reads now.
func (w *onlooker) read() *reading {
	r := &reading{at: w.elapsed, ticks: map[*hostsim.Task]int64{}, samples: map[*hostsim.Task][]float64{}}
	for _, t := range w.l.machine.Tasks {
		r.ticks[t] = int64(t.Used / hostsim.Tick)
		if task := w.tasks[t]; task != nil {
			r.samples[t] = slices.Clone(task.samples)
		}
	}
	for _, parts := range w.parts {
		r.parts = append(r.parts, slices.Clone(parts))
	}
	for _, s := range w.l.machine.Sockets {
		r.zones = append(r.zones, s.Package.Reads(), s.DRAM.Reads())
		busy, stolen, total := s.CPUTimes()
		r.times = append(r.times, [3]time.Duration{busy, stolen, total})
	}
	return r
}

// since returns the interval between two readings.
func (w *onlooker) since(before, now *reading) *rules.Interval {
	i := &rules.Interval{Seconds: (now.at - before.at).Seconds(), Users: make([]rules.User, w.users)}
	for n, s := range w.l.machine.Sockets {
		grown := func(zone int, z *hostsim.Zone) float64 {
			d := now.zones[2*n+zone] - before.zones[2*n+zone]
			if now.zones[2*n+zone] < before.zones[2*n+zone] {
				d += z.Max
			}
			return float64(d) / 1e6
		}
		ran := func(k int) float64 { return (now.times[n][k] - before.times[n][k]).Seconds() }
		i.Sockets = append(i.Sockets, rules.Socket{
			Energy: rules.Energy{Package: grown(0, s.Package), DRAM: grown(1, s.DRAM)}, Busy: ran(0), Steal: ran(1), Total: ran(2),
		})
	}
	for u := range i.Users {
		user := &i.Users[u]
		user.On = slices.Clone(now.parts[u])
		for n := range user.On {
			p, was := &user.On[n], &before.parts[u][n]
			p.CPU, p.Cycles, p.Alone = p.CPU-was.CPU, p.Cycles-was.Cycles, p.Alone-was.Alone
			p.Instructions, p.Misses = p.Instructions-was.Instructions, p.Misses-was.Misses
			user.CPU += p.CPU
		}
	}
	for t, ticks := range now.ticks {
		task := w.tasks[t]
		if task == nil {
			continue
		}
		user := &i.Users[task.user]
		user.Processes++
		used := (time.Duration(ticks-before.ticks[t]) * hostsim.Tick).Seconds()
		user.Ticks += used
		samples := slices.Clone(now.samples[t])
		all := 0.0
		for n := range samples {
			if was := before.samples[t]; was != nil {
				samples[n] -= was[n]
			}
			all += samples[n]
		}
		for n := range samples {
			if all > 0 {
				user.On[n].Last += used * samples[n] / all
			}
		}
		on := t.MemoryOn()
		user.On[on].Memory += float64(t.Resident)
		i.Sockets[on].Memory += float64(t.Resident)
	}
	return i
}

// ruleMachine returns the tools' description of the simulated machine. The TDP is the package power
// at full load, which is the best value that can be known without a measurement.
func (l *simulator) ruleMachine() rules.Machine {
	m := rules.Machine{CPUs: l.machine.Host.CPUs}
	for _, s := range l.machine.Sockets {
		m.Threads = max(m.Threads, s.Threads)
		m.TDP += s.Curve.Watts(1)
		m.Rest = append(m.Rest, rules.Energy{Package: s.Idle, DRAM: s.DRAMIdle})
	}
	return m
}

// othersRun holds the results of othersOnce, as functions by scenario.
var othersRun sync.Map

// othersOnce runs the rules of all other tools at once on a scenario, and returns their figures by name.
func othersOnce(tb testing.TB, sc simScenario) map[string]accuracy {
	once, _ := othersRun.LoadOrStore(sc.name, sync.OnceValue(func() map[string]accuracy {
		byName := map[string]accuracy{}
		for k, a := range runOthers(tb, sc, otherTools) {
			byName[otherTools[k].name] = a
		}
		return byName
	}))
	return once.(func() map[string]accuracy)()
}

// runOthers runs rules of other tools at once on a scenario. They only read.
func runOthers(tb testing.TB, sc simScenario, others []otherTool) []accuracy {
	l := build(tb, tb.TempDir(), sc, "")
	l.machine.PMU = &hostsim.PMU{Seed: 1}
	tools := make([]rules.Rule, len(others))
	for k, other := range others {
		tools[k] = other.rule(l.ruleMachine())
	}
	learnOthers(tb, sc, others, tools)

	w := observe(l)
	last := make([]*reading, len(tools))
	sums := make([]otherSums, len(tools))
	for k := range last {
		last[k] = w.read()
		sums[k].parts = make([]rules.Energy, w.users)
	}
	l.run(simHorizon, func() {
		w.observe(time.Millisecond)
		var now *reading
		for k, other := range others {
			if w.elapsed%other.every != 0 {
				continue
			}
			if now == nil {
				now = w.read()
			}
			sums[k].add(tools[k].Observe(w.since(last[k], now)))
			last[k] = now
		}
	})
	all := make([]accuracy, len(tools))
	for k := range all {
		all[k] = l.compare(&sums[k], others[k].noDRAM)
	}
	return all
}

// learnOthers shows the machine of a scenario to the rules that learn, without its workloads, under the load of a day.
func learnOthers(tb testing.TB, sc simScenario, others []otherTool, tools []rules.Rule) {
	if !slices.ContainsFunc(others, func(o otherTool) bool { return o.learns }) {
		return
	}
	l := build(tb, tb.TempDir(), sc, "")
	l.machine.PMU = &hostsim.PMU{Seed: 1}
	w := observe(l)
	l.strip()
	last := w.read()
	l.day(24*time.Hour, func() {
		w.observe(10 * time.Second)
		now := w.read()
		i := w.since(last, now)
		for k, other := range others {
			if other.learns {
				tools[k].Observe(i)
			}
		}
		last = now
	})
}

// otherSums adds up what a rule reports.
type otherSums struct {
	whole        float64
	parts        []rules.Energy
	unattributed rules.Energy
}

func (s *otherSums) add(r rules.Report) {
	s.whole += r.Whole
	s.unattributed = s.unattributed.Plus(r.Unattributed)
	for u := range r.Parts {
		s.parts[u] = s.parts[u].Plus(r.Parts[u])
	}
}

// compare compares the sums with the truth.
func (l *simulator) compare(s *otherSums, noDRAM bool) accuracy {
	t := simTotals{reported: map[string]joules{}, truth: map[string]joules{}}
	zones := func(j joules) joules {
		if noDRAM {
			j.dram = 0
		}
		return j
	}
	all, idled := l.energy()
	t.aboveIdle, t.idle.idled = zones(all.less(idled)), zones(idled)
	for u, part := range s.parts {
		given := zones(joules{part.Package, part.DRAM})
		t.node = t.node.plus(given)
		if u < len(l.workloads) {
			w := l.workloads[u]
			t.workloads = append(t.workloads, w.name)
			t.reported[w.name], t.truth[w.name] = given, zones(l.truth(w))
		}
	}
	parts := t.node.sum() / s.whole // without what is unattributed
	t.node = t.node.plus(zones(joules{s.unattributed.Package, s.unattributed.DRAM}))
	a := t.accuracy()
	a.partsOf = parts
	return a
}
