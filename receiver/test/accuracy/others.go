// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/test/rules"
)

// otherTool is the rule of another tool, with the tool's default interval.
type otherTool struct {
	name  string
	every time.Duration
	rule  func(rules.Machine) rules.Rule
	// trains is set if the tool trains a model on the machine for a day before the measurement.
	trains bool
	// noDRAM is set if the tool has no rule for memory. It is then compared with packages only.
	noDRAM bool
}

var otherTools = []otherTool{
	{name: "Kepler up to 0.9", every: 3 * time.Second, rule: func(rules.Machine) rules.Rule { return &rules.Kepler09{} }, trains: true},
	{name: "Kepler from 0.10", every: 5 * time.Second, rule: func(rules.Machine) rules.Rule { return rules.Kepler{} }},
	{name: "Scaphandre", every: 2 * time.Second, rule: func(rules.Machine) rules.Rule { return rules.Scaphandre{} }},
	{name: "SmartWatts", every: time.Second, rule: func(m rules.Machine) rules.Rule { return &rules.SmartWatts{Machine: m} }, trains: true},
	{name: "KubeWatt", every: 15 * time.Second, rule: func(m rules.Machine) rules.Rule { return &rules.KubeWatt{Machine: m} }, trains: true},
	{name: "Kavanagh", every: 30 * time.Second, rule: func(m rules.Machine) rules.Rule { return rules.Kavanagh{Machine: m} }},
	{name: "EnergAt", every: time.Second, rule: func(m rules.Machine) rules.Rule { return rules.EnergAt{Machine: m} }},
	{name: "METRION", every: time.Second, rule: func(m rules.Machine) rules.Rule { return rules.METRION{Machine: m} }},
	{name: "CEEMS", every: 15 * time.Second, rule: func(rules.Machine) rules.Rule { return rules.CEEMS{} }},
	{name: "CodeCarbon", every: time.Second, rule: func(m rules.Machine) rules.Rule { return rules.CodeCarbon{Machine: m} }, noDRAM: true},
	{name: "Alumet", every: 5 * time.Second, rule: func(m rules.Machine) rules.Rule { return rules.Alumet{Machine: m} }, noDRAM: true},
}

// ownSettings are the receiver's settings in the comparison with other rules.
func ownSettings() []simSetting {
	all := among(nil, "default, BPF", "default, procfs", "CPU time, 10 s, BPF", "CPU time, 10 s, procfs")
	for i, as := range []string{"default, BPF", "default, procfs", "preset kepler, BPF", "preset kepler, procfs"} {
		all[i].as = "ours, " + as
	}
	return all
}

// title returns the name of a setting of the receiver in the table of other rules.
func (s *simSetting) title() string { return cmp.Or(s.as, s.name) }

// toolSettings are the rules of the other tools.
func toolSettings() (all []simSetting) {
	for _, other := range otherTools {
		all = append(all, simSetting{name: other.name, by: func(t *testing.T, sc simScenario, _ time.Duration) accuracy {
			return othersOnce(t, sc)[other.name]
		}})
	}
	return all
}

// onlooker adds up the values that a tool can read on a machine.
type onlooker struct {
	l     *simulator
	users int // workloads and, last, the rest
	now   reading
}

// reading holds the values that a tool can read at one time.
type reading struct {
	at    time.Duration
	tasks map[*hostsim.Task]seenTask
	parts [][]rules.Part // by user and socket
	zones []uint64       // package and dram by socket
	times []socketTimes
}

type seenTask struct {
	user    int
	used    time.Duration
	events  hostsim.Events
	samples []float64 // by socket, every 10 ms
}

type socketTimes struct{ busy, stolen, total time.Duration }

// observe returns an onlooker of a simulator's machine. Workloads may end.
func observe(l *simulator) *onlooker {
	o := &onlooker{l: l, users: len(l.workloads) + 1, now: reading{tasks: map[*hostsim.Task]seenTask{}}}
	for range o.users {
		o.now.parts = append(o.now.parts, make([]rules.Part, len(l.machine.Sockets)))
	}
	return o
}

// observe records the last step of the machine, of length d.
func (o *onlooker) observe(d time.Duration) {
	o.now.at += d
	for _, t := range o.l.machine.Tasks {
		task, isKnown := o.now.tasks[t]
		if !isKnown {
			task = seenTask{user: o.user(t), samples: make([]float64, len(o.l.machine.Sockets))}
		}
		if ran := t.Used - task.used; ran > 0 {
			cycles := ran.Seconds() * o.l.machine.Sockets[t.Socket].Clock()
			alone := cycles
			if run, together := t.Ran(); run > 0 {
				alone *= 1 - together/run
			}
			part := &o.now.parts[task.user][t.Socket]
			part.CPU, part.Cycles, part.Alone = part.CPU+ran.Seconds(), part.Cycles+cycles, part.Alone+alone
			part.Instructions += t.Events.Instructions - task.events.Instructions
			part.Misses += t.Events.Misses - task.events.Misses
			task.used, task.events = t.Used, t.Events
		}
		if o.now.at%(10*ms) == 0 {
			task.samples[t.Socket]++
		}
		o.now.tasks[t] = task
	}
}

// user returns the user that a task belongs to.
func (o *onlooker) user(t *hostsim.Task) int {
	i := slices.IndexFunc(o.l.workloads, func(w *simWorkload) bool { return slices.Contains(w.tasks, t) })
	if i < 0 {
		return o.users - 1
	}
	return i
}

// read returns the current values. They include only existing tasks.
func (o *onlooker) read() *reading {
	r := &reading{at: o.now.at, tasks: map[*hostsim.Task]seenTask{}}
	for _, t := range o.l.machine.Tasks {
		if task, isKnown := o.now.tasks[t]; isKnown {
			task.samples = slices.Clone(task.samples)
			r.tasks[t] = task
		}
	}
	for _, parts := range o.now.parts {
		r.parts = append(r.parts, slices.Clone(parts))
	}
	for _, s := range o.l.machine.Sockets {
		r.zones = append(r.zones, s.Package.Reads(), s.DRAM.Reads())
		busy, stolen, total := s.CPUTimes()
		r.times = append(r.times, socketTimes{busy, stolen, total})
	}
	return r
}

// since returns the interval between two readings.
func (o *onlooker) since(before, now *reading) *rules.Interval {
	i := &rules.Interval{Seconds: (now.at - before.at).Seconds(), Users: make([]rules.User, o.users)}
	for n, s := range o.l.machine.Sockets {
		is, was := now.times[n], before.times[n]
		i.Sockets = append(i.Sockets, rules.Socket{
			Energy: joules{Package: counted(s.Package, before.zones[2*n], now.zones[2*n]), DRAM: counted(s.DRAM, before.zones[2*n+1], now.zones[2*n+1])},
			Busy:   (is.busy - was.busy).Seconds(), Steal: (is.stolen - was.stolen).Seconds(), Total: (is.total - was.total).Seconds(),
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
	for t, task := range now.tasks {
		addTask(i, t, before.tasks[t], task)
	}
	return i
}

// counted returns the energy in J between two readings of a counter, which may wrap around.
func counted(z *hostsim.Zone, before, now uint64) float64 {
	if now < before {
		now += z.Max
	}
	return float64(now-before) / 1e6
}

// addTask adds a task's part of an interval as procfs shows it. The samples divide the ticks among
// the sockets.
func addTask(i *rules.Interval, t *hostsim.Task, before, now seenTask) {
	user := &i.Users[now.user]
	ticks := (now.used.Truncate(hostsim.Tick) - before.used.Truncate(hostsim.Tick)).Seconds()
	user.Processes++
	user.Ticks += ticks
	samples, all := slices.Clone(now.samples), 0.0
	for n, was := range before.samples {
		samples[n] -= was
	}
	for _, n := range samples {
		all += n
	}
	for n := range samples {
		if all > 0 {
			user.On[n].Last += ticks * samples[n] / all
		}
	}
	on := t.MemoryOn()
	user.On[on].Memory += float64(t.Resident)
	i.Sockets[on].Memory += float64(t.Resident)
}

// ruleMachine returns the tools' description of the simulated machine. The TDP is the package power
// at full load, the best value that is available without a measurement.
func (l *simulator) ruleMachine() rules.Machine {
	m := rules.Machine{CPUs: l.machine.Host.CPUs}
	for _, s := range l.machine.Sockets {
		m.Threads = max(m.Threads, s.Threads)
		m.TDP += s.Curve.Watts(1)
		m.Rest = append(m.Rest, rules.Energy{Package: s.Idle, DRAM: s.DRAMIdle})
	}
	return m
}

// byOthers holds the results of othersOnce by scenario.
var byOthers onceBy[map[string]accuracy]

// othersOnce runs the rules of all other tools at once on a scenario, and returns their results by
// name.
func othersOnce(tb testing.TB, sc simScenario) map[string]accuracy {
	return byOthers.get(sc.name, func() map[string]accuracy { return runOthers(tb, sc) })
}

// toolRun is the run of a tool on a scenario.
type toolRun struct {
	*otherTool
	rules.Rule
	last *reading
	sum  rules.Report
}

// observe reports the interval since the last reading.
func (r *toolRun) observe(o *onlooker, now *reading) {
	report := r.Observe(o.since(r.last, now))
	r.last = now
	r.sum.Whole, r.sum.Unattributed = r.sum.Whole+report.Whole, r.sum.Unattributed.Plus(report.Unattributed)
	for u := range report.Parts {
		r.sum.Parts[u] = r.sum.Parts[u].Plus(report.Parts[u])
	}
}

// runOthers runs all rules at once. They only read.
func runOthers(tb testing.TB, sc simScenario) map[string]accuracy {
	l, o := observed(tb, sc)
	tools := make([]toolRun, len(otherTools))
	for k := range tools {
		tools[k] = toolRun{otherTool: &otherTools[k], Rule: otherTools[k].rule(l.ruleMachine())}
	}
	trainOthers(tb, sc, tools)
	for k := range tools {
		tools[k].last, tools[k].sum = o.read(), rules.Report{Parts: make([]joules, o.users)}
	}
	l.run(simHorizon, func() {
		o.observe(ms)
		if o.now.at%time.Second > 0 {
			return
		}
		now := o.read()
		for k := range tools {
			if o.now.at%tools[k].every == 0 {
				tools[k].observe(o, now)
			}
		}
	})
	all := map[string]accuracy{}
	for k := range tools {
		all[tools[k].name] = l.compare(&tools[k].sum, tools[k].noDRAM)
	}
	return all
}

// observed builds the machine of a scenario, which counts hardware events.
func observed(tb testing.TB, sc simScenario) (*simulator, *onlooker) {
	l := build(tb, tb.TempDir(), sc, "")
	l.machine.PMU = &hostsim.PMU{Seed: 1}
	return l, observe(l)
}

// trainOthers trains the rules that have a model, on the machine of a scenario under the load of a
// day, without its workloads.
func trainOthers(tb testing.TB, sc simScenario, tools []toolRun) {
	l, o := observed(tb, sc)
	l.strip()
	last := o.read()
	l.day(24*time.Hour, func() {
		o.observe(10 * time.Second)
		now := o.read()
		i := o.since(last, now)
		for k := range tools {
			if tools[k].trains {
				tools[k].Observe(i)
			}
		}
		last = now
	})
}

// compare compares a rule's report with the truth.
func (l *simulator) compare(sum *rules.Report, noDRAM bool) accuracy {
	zones := func(j joules) joules {
		if noDRAM {
			j.DRAM = 0
		}
		return j
	}
	t := simTotals{reported: map[string]joules{}, truth: map[string]joules{}}
	all, idled := l.energy()
	t.truth[aboveIdle], t.truth[atRest] = zones(less(all, idled)), zones(idled)
	var node joules
	for u, part := range sum.Parts {
		node = node.Plus(zones(part))
		if u < len(l.workloads) {
			w := l.workloads[u]
			t.workloads = append(t.workloads, w.name)
			t.reported[w.name], t.truth[w.name] = zones(part), zones(l.truth(w))
		}
	}
	t.reported[nodeEnergy] = node.Plus(zones(sum.Unattributed))
	a := t.accuracy()
	a.partsOf = node.Sum() / sum.Whole
	return a
}
