// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/test/rules"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
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
	return []simSetting{byDefault(cpu.KindBPF), byDefault(cpu.KindProcfs), simSettings[1], simSettings[0]}
}

// ownName names a setting of the receiver among the rules.
func ownName(s *simSetting) string {
	if strings.HasPrefix(s.name, "default") {
		return "**ours, " + s.name + "**"
	}
	return "**ours, preset kepler, " + sourceNames[s.source] + "**"
}

// compared is how far from the truth the figures of a rule are.
type compared struct {
	// misattributed is the part of the energy that is attributed to the wrong workload, and
	// misattributedPackage that of packages.
	misattributed, misattributedPackage float64
	// active is the error of what all users together are given and of what is unattributed,
	// compared with the energy above rest, and all compared with all energy.
	active, all float64
	// parts is the sum of all users' energies, relative to the rule's own figure of the whole.
	parts float64
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

// runOthers runs rules of other tools at once on a scenario. They only read.
func runOthers(tb testing.TB, sc simScenario, others []otherTool) []compared {
	l := &simulator{tb: tb, root: tb.TempDir()}
	drive := sc.build(l)
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
	for w.elapsed < simHorizon {
		if drive != nil {
			drive(w.elapsed)
		}
		l.machine.Step(time.Millisecond)
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
	}
	all := make([]compared, len(tools))
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
	l := &simulator{tb: tb, root: tb.TempDir()}
	sc.build(l)
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
func (l *simulator) compare(s *otherSums, noDRAM bool) (c compared) {
	t := simTotals{reported: map[string]joules{}, truth: map[string]joules{}}
	var all joules
	for _, socket := range l.machine.Sockets {
		all = all.plus(inJoules(socket.Energy))
		t.aboveIdle = t.aboveIdle.plus(inJoules(socket.Energy)).less(inJoules(socket.Idled))
	}
	for u, part := range s.parts {
		given := joules{part.Package, part.DRAM}
		t.node = t.node.plus(given)
		if u < len(l.workloads) {
			w := l.workloads[u]
			t.workloads = append(t.workloads, w.name)
			t.reported[w.name], t.truth[w.name] = given, w.truth()
		}
	}
	c.parts = t.node.sum() / s.whole // without what is unattributed
	t.node = t.node.plus(joules{s.unattributed.Package, s.unattributed.DRAM})
	c.misattributedPackage = t.misattributed(func(j joules) float64 { return j.pkg })
	if noDRAM {
		c.misattributed = c.misattributedPackage
		c.active, c.all = off(t.node.pkg, t.aboveIdle.pkg), off(t.node.pkg, all.pkg)
		return c
	}
	c.misattributed = t.misattributed(joules.sum)
	c.active, c.all = off(t.node.sum(), t.aboveIdle.sum()), off(t.node.sum(), all.sum())
	return c
}

// own compares the receiver's figures in the same way.
func (a *accuracy) own() compared {
	return compared{
		misattributed: a.misattributed, misattributedPackage: a.misattributedPackage, active: a.active,
		all: off(a.node.sum(), a.node.sum()+a.idle.node.sum()), parts: a.parts.sum() / a.node.sum(),
	}
}

// othersTables returns the tables of dev/other-rules.md for some scenarios, the means over them and
// each: all rules, and the receiver's own under those of its settings that are measured.
func othersTables(t *testing.T, scenarios []simScenario, measured func(*simSetting) bool) (means, each string) {
	settings := slices.DeleteFunc(ownSettings(), func(s simSetting) bool { return !measured(&s) })
	own := make([][]compared, len(scenarios))
	others := make([][]compared, len(scenarios))
	t.Run("others", func(t *testing.T) {
		for i, sc := range scenarios {
			own[i] = make([]compared, len(settings))
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				others[i] = runOthers(t, sc, otherTools)
			})
			for k, setting := range settings {
				t.Run(sc.name+"/"+setting.name, func(t *testing.T) {
					t.Parallel()
					a := measureOnce(t, sc, setting)
					own[i][k] = a.own()
				})
			}
		}
	})
	names := make([]string, 0, len(settings)+len(otherTools))
	for i := range settings {
		names = append(names, ownName(&settings[i]))
	}
	for _, other := range otherTools {
		names = append(names, other.name)
	}
	of := func(scenario, rule int) *compared {
		if rule < len(settings) {
			return &own[scenario][rule]
		}
		return &others[scenario][rule-len(settings)]
	}
	return meansOf(names, scenarios, of), eachOf(names, scenarios, of)
}

// meansOf returns the table of each rule's errors over all scenarios.
func meansOf(names []string, scenarios []simScenario, of func(scenario, rule int) *compared) string {
	var b strings.Builder
	b.WriteString("\n| rule | misattributed, mean | worst | active, mean | worst | sum of parts |\n|---|---|---|---|---|---|\n")
	for k, name := range names {
		var misattributed, active summary
		least, most := math.Inf(1), math.Inf(-1)
		for i, sc := range scenarios {
			c := of(i, k)
			misattributed.add(sc.name, c.misattributed)
			active.add(sc.name, c.active)
			least, most = min(least, c.parts), max(most, c.parts)
		}
		parts := percent(least)
		if percent(most) != parts {
			parts += " to " + percent(most)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", name, percent(misattributed.mean()), misattributed.largest(percent),
			percent(active.mean()), active.largest(signed), parts)
	}
	return b.String()
}

// eachOf returns a table of each rule's errors for each scenario.
func eachOf(names []string, scenarios []simScenario, of func(scenario, rule int) *compared) string {
	var b strings.Builder
	for i, sc := range scenarios {
		fmt.Fprintf(&b, "\n### %s\n\n| rule | misattributed | of package | active | all energy | sum of parts |\n|---|---|---|---|---|---|\n", sc.name)
		for k, name := range names {
			c := of(i, k)
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", name, percent(c.misattributed), percent(c.misattributedPackage),
				signed(c.active), signed(c.all), percent(c.parts))
		}
	}
	return b.String()
}

// summary is the mean of the absolute errors in all scenarios, and the largest.
type summary struct {
	sum, n, worst float64
	in            string
}

func (s *summary) add(scenario string, e float64) {
	s.sum, s.n = s.sum+math.Abs(e), s.n+1
	if math.Abs(e) > math.Abs(s.worst)+simRounding || s.in == "" {
		s.worst, s.in = e, scenario
	}
}

func (s *summary) mean() float64 { return s.sum / s.n }

// largest formats the largest error, with the scenario unless it is none.
func (s *summary) largest(format func(float64) string) string {
	if math.Abs(s.worst) < simRounding {
		return format(0)
	}
	return format(s.worst) + " " + s.in
}

const othersPage = "../../../dev/other-rules.md"
