// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/receiver/test/table"
)

// simHorizon is the length of the tables' scenarios, curveHorizon the length of scenarios on the
// load curves, which are steady.
const (
	simHorizon   = 30 * time.Second
	curveHorizon = 10 * time.Second
)

// Paths of the results, and of the page with some of the results.
const (
	results  = "../../../dev/results"
	userPage = "../../../docs/accuracy.md"
)

// measurement is a table with a row for each scenario under each of its settings, in a file of
// dev/results.
type measurement struct {
	file      string
	scenarios []simScenario
	settings  []simSetting
	horizon   time.Duration
	figures   []figure
	cells     [][]*accuracy // by scenario and setting, nil if not measured
}

// figure is a column of shares, or of texts if share is nil.
type figure struct {
	name  string
	share func(*accuracy) float64
	text  func(*accuracy) string
}

func (f *figure) cell(a *accuracy) string {
	if f.share == nil {
		return f.text(a)
	}
	return number(f.share(a))
}

var (
	active        = figure{name: "active", share: func(a *accuracy) float64 { return a.active }}
	all           = figure{name: "all energy", share: func(a *accuracy) float64 { return a.all }}
	sum           = figure{name: "sum", share: func(a *accuracy) float64 { return a.sum }}
	mean          = figure{name: "mean", share: func(a *accuracy) float64 { return a.mean }}
	worst         = figure{name: "worst", share: func(a *accuracy) float64 { return a.worst }}
	worstOf       = figure{name: "worst workload", text: func(a *accuracy) string { return a.worstOf }}
	misattributed = figure{name: "misattributed", share: func(a *accuracy) float64 { return a.misattributed }}
	ofPackage     = figure{name: "of package", share: func(a *accuracy) float64 { return a.misattributedPackage }}
	ofDRAM        = figure{name: "of DRAM", share: func(a *accuracy) float64 { return a.misattributedDRAM }}
	sumOfParts    = figure{name: "sum of parts", share: func(a *accuracy) float64 { return a.partsOf }}
	unowned       = figure{name: "unattributed", share: func(a *accuracy) float64 { return a.unowned }}
)

// measurements returns the tables of make accuracy that have scenarios and settings as rows.
func measurements(t *testing.T) []*measurement {
	even, cores := simCurves(t), simCoreCurves(t)
	return []*measurement{
		{"accuracy.csv", simAll(), simRows(), simHorizon, []figure{active, mean, worst, worstOf, misattributed, ofPackage, ofDRAM}, nil},
		{"curves.csv", onCurves(even, simLoads, underLoad), curveSettings, curveHorizon, []figure{active}, nil},
		{"cores.csv", onCurves(cores, simLoads, underLoad), nightSettings, curveHorizon, []figure{active}, nil},
		{"nights.csv", onCurves(slices.Concat(even, cores), simLowLoads, atLowLoad), nightSettings, curveHorizon, []figure{active}, nil},
		{"effects.csv", simEffects, effectSettings, effectHorizon, []figure{active, misattributed}, nil},
		{"hardware-events.csv", eventMachines(), eventSettings, eventsHorizon, []figure{ofPackage, ofDRAM}, nil},
		{"gpus.csv", gpuScenarios, gpuSettings, gpuHorizon, []figure{sum, active, mean, worst, worstOf, misattributed, unowned}, nil},
		{"rules.csv", simAll(), slices.Concat(ownSettings(), toolSettings()), simHorizon, []figure{misattributed, ofPackage, active, all, sumOfParts}, nil},
	}
}

// onCurves returns a scenario of each machine with a power curve at each load.
func onCurves(curves []simCurve, loads []float64, scenario func(simCurve, float64) simScenario) (all []simScenario) {
	for _, c := range curves {
		for _, load := range loads {
			all = append(all, scenario(c, load))
		}
	}
	return all
}

func atLowLoad(c simCurve, load float64) simScenario { return afterNights(c, 0.05, load) }

// run measures the rows that wanted selects.
func (m *measurement) run(t *testing.T, wanted func(*simScenario, *simSetting) bool) *measurement {
	m.cells = make([][]*accuracy, len(m.scenarios))
	for i := range m.cells {
		m.cells[i] = make([]*accuracy, len(m.settings))
	}
	t.Run(strings.TrimSuffix(m.file, ".csv"), func(t *testing.T) {
		for k, setting := range m.settings { // adjacent settings do not wait for the same training
			for i, sc := range m.scenarios {
				if has(&sc, &setting) && wanted(&sc, &setting) {
					t.Run(sc.name+"/"+setting.name, func(t *testing.T) {
						t.Parallel()
						a := measureOnce(t, sc, setting, m.horizon)
						m.cells[i][k] = &a
					})
				}
			}
		}
	})
	return m
}

// has reports whether the tables have a row of the scenario under the setting.
func has(sc *simScenario, s *simSetting) bool {
	return (s.in == nil || slices.Contains(s.in, sc.name)) && (sc.driver == "" || sc.driver == s.driver)
}

func everything(*simScenario, *simSetting) bool { return true }

// isComplete reports whether all rows are measured. A filter of tests leaves out rows.
func (m *measurement) isComplete() bool {
	for i := range m.scenarios {
		for k := range m.settings {
			if has(&m.scenarios[i], &m.settings[k]) && m.cells[i][k] == nil {
				return false
			}
		}
	}
	return true
}

// table returns the rows with all machines measured.
func (m *measurement) table() *table.Table {
	rows := table.New("scenario", "setting")
	for _, f := range m.figures {
		rows.Columns = append(rows.Columns, f.name)
	}
	for i := range m.scenarios {
		name := m.scenarios[i].title()
		if i > 0 && name == m.scenarios[i-1].title() {
			continue
		}
		for k := range m.settings {
			machines := m.machines(name, k)
			if slices.Contains(machines, nil) {
				continue
			}
			a, row := together(machines), []string{name, m.settings[k].title()}
			for _, f := range m.figures {
				row = append(row, f.cell(a))
			}
			rows.Add(row...)
		}
	}
	return rows
}

// machines returns the measured machines of a row.
func (m *measurement) machines(row string, setting int) (machines []*accuracy) {
	for i := range m.scenarios {
		if m.scenarios[i].title() == row {
			machines = append(machines, m.cells[i][setting])
		}
	}
	return machines
}

func (sc *simScenario) title() string { return cmp.Or(sc.row, sc.name) }

// write writes the rows. If some are not measured, it keeps the other rows of the file.
func (m *measurement) write(t *testing.T) { writeRows(t, m.file, m.table(), m.isComplete()) }

// writeRows writes a file of dev/results, unless a measurement has failed.
func writeRows(t *testing.T, file string, rows *table.Table, complete bool) {
	require.False(t, t.Failed())
	path := filepath.Join(results, file)
	if complete {
		require.NoError(t, rows.Write(path))
	} else {
		require.NoError(t, rows.Update(path, 2))
	}
}

// put replaces a part of a page, unless a measurement has failed.
func put(t *testing.T, page, command, text string) {
	require.False(t, t.Failed())
	require.NoError(t, table.Put(page, command, text))
}

// over returns the mean and the extremes of a figure over the scenarios that the function is
// selects.
func (m *measurement) over(setting string, f figure, is func(*simScenario) bool) (s summary) {
	k := slices.IndexFunc(m.settings, func(s simSetting) bool { return s.name == setting })
	for i := range m.scenarios {
		if k >= 0 && is(&m.scenarios[i]) {
			s.add(m.scenarios[i].name, f.share(m.cells[i][k]))
		}
	}
	return s
}

func everywhere(*simScenario) bool { return true }

// means returns the mean and worst errors over all scenarios, for settings with a row in each
// scenario.
func means(all ...*measurement) *table.Table {
	rows := table.New("setting", "misattributed, mean", "misattributed, worst", "worst in", "active, mean", "active, worst", "active, worst in",
		"sum of parts, least", "sum of parts, most")
	for _, m := range all {
		for _, s := range m.settings {
			if s.in != nil {
				continue
			}
			row := []string{s.title()}
			for _, f := range []figure{misattributed, active} {
				over := m.over(s.name, f, everywhere)
				row = append(row, number(over.mean()), number(over.worst), over.scenario())
			}
			parts := m.over(s.name, sumOfParts, everywhere)
			rows.Add(append(row, number(parts.least), number(parts.most))...)
		}
	}
	return rows
}

// headline returns the table of docs/accuracy.md: CPU time, and the default rules.
func headline(accuracy, curves, nights, effects, events *measurement) string {
	all := table.New("figure", "`preset: kepler`, BPF", "default, BPF", "default, procfs")
	row := func(name string, m *measurement, f figure, is func(*simScenario) bool, format func(*summary) string) {
		cells := []string{name}
		for _, setting := range []string{"CPU time, 10 s, BPF", "default, BPF", "default, procfs"} {
			over := m.over(setting, f, is)
			cells = append(cells, format(&over))
		}
		all.Add(cells...)
	}
	const wrong = "energy attributed to the wrong workload, "
	average := func(s *summary) string { return percent(s.mean()) }
	largest := func(s *summary) string { return s.largest(percent) }
	largestSigned := func(s *summary) string { return s.largest(signed) }
	row(fmt.Sprintf(wrong+"mean of %d scenarios", len(accuracy.scenarios)), accuracy, misattributed, everywhere, average)
	row("the worst of them", accuracy, misattributed, everywhere, largest)
	row("error of the node's active energy, mean", accuracy, active, everywhere, average)
	row("the worst", accuracy, active, everywhere, largestSigned)
	for _, m := range []struct {
		*measurement
		loads int
		after string
	}{{curves, len(simLoads), ""}, {nights, len(simLowLoads), ", after nights at 5 % load"}} {
		for _, load := range []float64{0.1, 1} {
			row(fmt.Sprintf("error of active energy on %d power curves of real CPUs, at %.0f %% load%s", len(m.scenarios)/m.loads, 100*load, m.after),
				m.measurement, active, func(sc *simScenario) bool { return sc.load == load }, (*summary).span)
		}
	}
	row(fmt.Sprintf(wrong+"worst of %d effects of real machines", len(effects.scenarios)-1), effects, misattributed, everywhere, largest)
	row("error of the node's active energy, worst of them", effects, active, everywhere, largestSigned)
	for _, group := range eventGroups[:2] {
		cells := []string{fmt.Sprintf("energy of DRAM attributed to the wrong one of %s, mean of %d machines that count misses", group.name, group.machines)}
		for _, setting := range []int{0, 2, 1} { // by CPU time, by misses, by memory
			cells = append(cells, percent(together(events.machines(group.title(), setting)).misattributedDRAM))
		}
		all.Add(cells...)
	}
	return all.Markdown()
}

// simAll returns all scenarios in the order of the tables.
func simAll() []simScenario { return slices.Concat(simScenarios, simHardware) }

// descriptions returns the descriptions of all scenarios.
func descriptions() *table.Table {
	all := table.New("scenario", "description")
	for _, sc := range slices.Concat(simAll(), gpuScenarios) {
		all.Add(sc.name, strings.ReplaceAll(sc.description, "\n", " "))
	}
	return all
}

// idleTable returns the part of the node's idle energy that each workload gets under each rule.
func idleTable(t *testing.T) *table.Table {
	m := &measurement{file: "idle.csv", settings: simIdleRules, horizon: simHorizon}
	for _, name := range simIdleScenarios {
		m.scenarios = append(m.scenarios, simScenarioOf(t, name))
	}
	m.run(t, everything)
	all := table.New("scenario", "setting", "workload", "share of idle energy")
	for i := range m.scenarios {
		for k, a := range m.cells[i] {
			if a == nil || m.cells[i][0] == nil {
				continue
			}
			name, rule := m.scenarios[i].name, m.settings[k].name
			require.Equal(t, m.cells[i][0].reported, a.reported, "%s, %s: active energy is unchanged", name, rule)
			carriers := append(slices.Clone(a.workloads), "other processes", "unattributed")
			for n, share := range a.idleShares(t) {
				all.Add(name, rule, carriers[n], number(math.Abs(share)))
			}
		}
	}
	return all
}

// idleShares returns the shares of the workloads, of other processes and of unattributed energy in
// the node's idle energy.
func (t *simTotals) idleShares(tb testing.TB) (shares []float64) {
	micro := func(joules float64) int64 { return int64(math.Round(1e6 * joules)) }
	node, processes := t.idle[nodeEnergy], t.idle[processEnergy]
	for _, zone := range []func(joules) float64{ofPackages, ofMemories} {
		require.InDelta(tb, zone(t.truth[atRest]), zone(node), 1e-4, "the energy of the machine at rest")
		if processes.Sum() > 0 {
			require.Equal(tb, micro(zone(node)), micro(zone(processes.Plus(t.idle[unattributedEnergy]))), "to the microjoule")
		}
	}
	others := processes.Sum()
	for _, w := range t.workloads {
		others -= t.idle[w].Sum()
		shares = append(shares, t.idle[w].Sum()/node.Sum())
	}
	require.GreaterOrEqual(tb, others, -1e-6, "idle energy of workloads exceeds the idle energy of all processes")
	return append(shares, others/node.Sum(), 1-processes.Sum()/node.Sum())
}

// number formats a share in percent with one decimal. NaN is the empty string.
func number(share float64) string {
	if math.IsNaN(share) {
		return ""
	}
	if text := fmt.Sprintf("%.1f", 100*share); text != "-0.0" {
		return text
	}
	return "0.0"
}

// percent formats a share as a percentage. NaN is a dash.
func percent(share float64) string {
	if math.IsNaN(share) {
		return "-"
	}
	return number(math.Abs(share)) + " %"
}

// signed formats an error as a percentage with its sign.
func signed(share float64) string {
	if text := number(share); share > 0 && text != "0.0" {
		return "+" + text + " %"
	}
	return number(share) + " %"
}

// summary is the mean of the absolute errors in all scenarios, and the extremes.
type summary struct {
	sum, n, worst, least, most float64
	in                         string // the scenario of the worst
}

func (s *summary) add(scenario string, e float64) {
	if math.Abs(e) > math.Abs(s.worst)+simRounding || s.n == 0 {
		s.worst, s.in = e, scenario
	}
	if s.n == 0 {
		s.least, s.most = e, e
	}
	s.sum, s.n, s.least, s.most = s.sum+math.Abs(e), s.n+1, min(s.least, e), max(s.most, e)
}

func (s *summary) mean() float64 { return s.sum / s.n }

// largest formats the largest error and its scenario, which it omits if all errors are rounding.
func (s *summary) largest(format func(float64) string) string {
	if s.scenario() == "" {
		return format(0)
	}
	return format(s.worst) + " " + s.in
}

// scenario returns the scenario of the largest error, or an empty string if all errors are
// rounding.
func (s *summary) scenario() string {
	if math.Abs(s.worst) < simRounding {
		return ""
	}
	return s.in
}

// span formats the smallest and the largest error, or a dash without errors.
func (s *summary) span() string {
	switch {
	case s.n == 0:
		return "-"
	case signed(s.least) == signed(s.most):
		return signed(s.most)
	}
	return signed(s.least) + " to " + signed(s.most)
}
