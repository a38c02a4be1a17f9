// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// simHorizon is how long the tables' scenarios run, curveHorizon how long those on the load curves do, which are
// steady.
const (
	simHorizon   = 30 * time.Second
	curveHorizon = 10 * time.Second
)

// simResults are the measured accuracies of settings, by scenario or load curve.
type simResults struct {
	scenarios []simScenario
	rows      []simSetting
	cells     [][]accuracy // by scenario and row
	curves    []*simCurveTable
}

// simCurveTable is the error of active energy on machines with the curves of real ones.
type simCurveTable struct {
	title, text string
	curves      []simCurve
	loads       []float64
	machine     func(c simCurve, load float64) simScenario
	has         func(*simSetting) bool
	active      [][][]float64 // by curve, row and load
}

func simCurveTables(tb testing.TB) []*simCurveTable {
	even, cores := simCurves(tb), simCoreCurves(tb)
	return []*simCurveTable{
		{
			title: "Load curves of real machines",
			text: "Machines with the measured power curves of real CPUs, steadily under load by two workloads. In the cells is\n" +
				"*active*: the error of the node's active energy, which no key changes. `fixed` has none.",
			curves: even, loads: simLoads, machine: underLoad, has: func(s *simSetting) bool { return s.curves },
		},
		{
			title:  "Cores loaded one by one",
			text:   "The same, of machines of which some cores were busy all the time and the others at rest.",
			curves: cores, loads: simLoads, machine: underLoad, has: func(s *simSetting) bool { return s.nights },
		},
		{
			title:  "Nights at 5 % load",
			text:   "The same, after a day with at least 5 % load, in which jobs of half a second on average arrive at random.",
			curves: slices.Concat(even, cores), loads: slices.Concat(simLowLoads, simLoads[1:]), machine: underLowLoad,
			has: func(s *simSetting) bool { return s.nights },
		},
	}
}

// simMeasure runs scenarios, and the load curves, under those of their settings that are measured.
func simMeasure(t *testing.T, scenarios []simScenario, measured func(s *simSetting) bool) *simResults {
	r := &simResults{scenarios: scenarios, curves: simCurveTables(t)}
	r.rows = slices.DeleteFunc(simRows(), func(s simSetting) bool { return !measured(&s) })
	r.cells = make([][]accuracy, len(scenarios))
	t.Run("cells", func(t *testing.T) {
		for i, sc := range scenarios {
			r.cells[i] = make([]accuracy, len(r.rows))
			for k, setting := range r.rows {
				if setting.has(sc.name) {
					t.Run(sc.name+"/"+setting.name, func(t *testing.T) {
						t.Parallel()
						r.cells[i][k] = measureOnce(t, sc, setting)
					})
				}
			}
		}
		for _, table := range r.curves {
			table.measure(t, r.rows)
		}
	})
	return r
}

// tables returns those of dev/accuracy-tables.md, up to the idle allocation.
func (r *simResults) tables() string {
	var b strings.Builder
	b.WriteString("\n### All scenarios\n\nThe mean and the worst of all scenarios below, of the settings that have a row in each.\n\n" +
		"| setting | misattributed, mean | worst | active, mean | worst |\n|---|---|---|---|---|\n")
	for k := range r.rows {
		if setting := &r.rows[k]; setting.in == nil {
			misattributed, active := r.summary(k)
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", setting.name, percent(misattributed.mean()), misattributed.largest(percent),
				percent(active.mean()), active.largest(signed))
		}
	}
	for i := range r.scenarios {
		sc := &r.scenarios[i]
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n", sc.name, sc.description)
		b.WriteString("| setting | active | mean | worst | misattributed | of package | of DRAM |\n|---|---|---|---|---|---|---|\n")
		for k := range r.rows {
			if a := &r.cells[i][k]; r.rows[k].has(sc.name) {
				fmt.Fprintf(&b, "| %s | %s | %s | %s `%s` | %s | %s | %s |\n", r.rows[k].name, signed(a.active), percent(a.mean),
					signed(a.worst), a.worstOf, percent(a.misattributed), percent(a.misattributedPackage), percent(a.misattributedDRAM))
			}
		}
	}
	for _, table := range r.curves {
		table.write(&b, r.rows)
	}
	return b.String()
}

// measure starts the measurements of the table.
func (c *simCurveTable) measure(t *testing.T, rows []simSetting) {
	c.active = make([][][]float64, len(c.curves))
	for i, curve := range c.curves {
		c.active[i] = make([][]float64, len(rows))
		for k, setting := range rows {
			c.active[i][k] = make([]float64, len(c.loads))
			for n, load := range c.loads {
				if c.has(&setting) {
					t.Run(c.title+"/"+curve.cpu+"/"+setting.name, func(t *testing.T) {
						t.Parallel()
						c.active[i][k][n] = measure(t, c.machine(curve, load), setting, curveHorizon).active
					})
				}
			}
		}
	}
}

func (c *simCurveTable) write(b *strings.Builder, rows []simSetting) {
	fmt.Fprintf(b, "\n### %s\n\n%s\n\n| CPU | setting |", c.title, c.text)
	for _, load := range c.loads {
		fmt.Fprintf(b, " %.0f %% load |", 100*load)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(c.loads)) + "\n")
	for i, curve := range c.curves {
		for k := range rows {
			if !c.has(&rows[k]) {
				continue
			}
			fmt.Fprintf(b, "| %s | %s |", curve.cpu, rows[k].name)
			for _, active := range c.active[i][k] {
				fmt.Fprintf(b, " %s |", signed(active))
			}
			b.WriteString("\n")
		}
	}
}

// between returns the smallest and the largest error at a load, of all curves.
func (c *simCurveTable) between(row, load int) string {
	least, most := math.Inf(1), math.Inf(-1)
	for i := range c.curves {
		active := c.active[i][row][load]
		least, most = min(least, active), max(most, active)
	}
	if signed(least) == signed(most) {
		return signed(most)
	}
	return signed(least) + " to " + signed(most)
}

// summary returns what a row misattributes in all scenarios, and its errors of active energy.
func (r *simResults) summary(row int) (misattributed, active summary) {
	for i, sc := range r.scenarios {
		misattributed.add(sc.name, r.cells[i][row].misattributed)
		active.add(sc.name, r.cells[i][row].active)
	}
	return misattributed, active
}

// headline returns the table that docs/accuracy.md begins with: the default rules and the best.
func (r *simResults) headline() string {
	var b strings.Builder
	settings := []string{simSettings[1].name, simBest[0].name, simBest[1].name}
	row := func(figure string, of func(k int) string) {
		fmt.Fprintf(&b, "| %s |", figure)
		for _, name := range settings {
			k := slices.IndexFunc(r.rows, func(s simSetting) bool { return s.name == name })
			fmt.Fprintf(&b, " %s |", of(k))
		}
		b.WriteString("\n")
	}
	b.WriteString("| figure | `preset: kepler`, BPF | default, BPF | default, procfs |\n|---|---|---|---|\n")
	row(fmt.Sprintf("energy attributed to the wrong workload, mean of %d scenarios", len(r.scenarios)), func(k int) string {
		misattributed, _ := r.summary(k)
		return percent(misattributed.mean())
	})
	row("the worst of them", func(k int) string {
		misattributed, _ := r.summary(k)
		return misattributed.largest(percent)
	})
	row("error of the node's active energy, mean", func(k int) string {
		_, active := r.summary(k)
		return percent(active.mean())
	})
	row("the worst", func(k int) string {
		_, active := r.summary(k)
		return active.largest(signed)
	})
	for _, table := range []struct {
		*simCurveTable
		after string
	}{{r.curves[0], ""}, {r.curves[2], ", after nights at 5 % load"}} {
		for n, load := range table.loads {
			if load != 0.1 && load != 1 {
				continue
			}
			row(fmt.Sprintf("active energy on %d curves of real CPUs, at %.0f %% load%s", len(table.curves), 100*load, table.after), func(k int) string {
				if !table.has(&r.rows[k]) {
					return "-"
				}
				return table.between(k, n)
			})
		}
	}
	return b.String()
}

// simAll returns all scenarios in the order of the tables.
func simAll() []simScenario { return slices.Concat(simScenarios, simHardware) }

// simIdleTables returns the tables of the carriers of idle energy under each rule.
func simIdleTables(t *testing.T) string {
	var b strings.Builder
	b.WriteString("\n### Idle allocation\n\n" +
		"Parts of the node's idle energy, in percent. They have no true values to compare with, because no workload causes the power at rest.\n" +
		"All rules share the same energy, to the microjoule, and leave active energy unchanged. The static power model is\n" +
		"`fixed`, so idle energy is what the machine draws at rest. Every container requests one CPU unless the scenario\n" +
		"says otherwise.\n")
	for _, name := range simIdleScenarios {
		sc := simScenarioOf(t, name)
		var workloads []string
		var rows strings.Builder
		var active map[string]joules
		for _, rule := range simIdleRules {
			a := measure(t, sc, rule, simHorizon)
			workloads = a.workloads
			if active == nil {
				active = a.reported
			}
			require.Equal(t, active, a.reported, "%s, %s: active energy is as it was", name, rule.name)
			fmt.Fprintf(&rows, "| %s |", rule.name)
			for _, share := range a.idle.shares(t, workloads) {
				fmt.Fprintf(&rows, " %s |", percent(share))
			}
			rows.WriteString("\n")
		}
		fmt.Fprintf(&b, "\n| %s, `idle` | `%s` | other processes | unattributed |\n|---|%s\n%s", name,
			strings.Join(workloads, "` | `"), strings.Repeat("---|", len(workloads)+2), rows.String())
	}
	return b.String()
}

// shares returns the shares of the workloads, of other processes and of unattributed energy in the node's idle energy.
func (i idleTotals) shares(t *testing.T, workloads []string) (shares []float64) {
	micro := func(joules float64) int64 { return int64(math.Round(1e6 * joules)) }
	for _, zone := range []func(joules) float64{func(j joules) float64 { return j.pkg }, func(j joules) float64 { return j.dram }} {
		require.InDelta(t, zone(i.idled), zone(i.node), 1e-4, "the energy of the machine at rest")
		if i.processes.sum() > 0 {
			require.Equal(t, micro(zone(i.node)), micro(zone(i.processes)+zone(i.unattributed)), "to the microjoule")
		}
	}
	others := i.processes.sum()
	for _, w := range workloads {
		share := i.workloads[w].sum()
		others -= share
		shares = append(shares, share/i.node.sum())
	}
	require.GreaterOrEqual(t, others, -1e-6, "the workloads' idle energy is in the series of their processes or of the others")
	return append(shares, others/i.node.sum(), 1-i.processes.sum()/i.node.sum())
}

// percent formats a share as a percentage with one decimal, or as a dash if there is none.
func percent(share float64) string {
	if math.IsNaN(share) {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", math.Abs(100*share))
}

// signed formats an error as a percentage with its sign.
func signed(share float64) string {
	switch {
	case math.Round(1000*share) == 0:
		return "0.0 %"
	case share < 0:
		return "-" + percent(share)
	}
	return "+" + percent(share)
}

const (
	accuracyPage  = "../../../dev/accuracy-tables.md"
	accuracyBegin = "<!-- make accuracy writes what follows -->\n"
	accuracyEnd   = "\n<!-- make accuracy wrote what is above -->"
)

// generated is a part of a page that make accuracy writes.
type generated struct{ name, before, text, after string }

// readGenerated returns a part of a page, counted from 0.
func readGenerated(t *testing.T, name string, nth int) (p generated) {
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	p = generated{name: name, after: string(page)}
	for range nth + 1 {
		p.before += p.text
		before, rest, ok := strings.Cut(p.after, accuracyBegin)
		require.True(t, ok, "%s lacks %q", name, accuracyBegin)
		text, after, ok := strings.Cut(rest, accuracyEnd)
		require.True(t, ok, "%s lacks %q", name, accuracyEnd)
		p.before += before + accuracyBegin
		p.text, p.after = text, accuracyEnd+after
	}
	return p
}

// write replaces a generated part of a page, counted from 0, unless a measurement has failed.
func write(t *testing.T, page string, nth int, text string) {
	require.False(t, t.Failed())
	p := readGenerated(t, page, nth)
	require.NoError(t, os.WriteFile(p.name, []byte(p.before+text+p.after), 0o600))
}

// tableHead returns the head of a table with a column for each setting.
func tableHead(first string, settings []simSetting) string {
	columns := []string{first}
	for _, s := range settings {
		columns = append(columns, s.name)
	}
	return "| " + strings.Join(columns, " | ") + " |\n" + strings.Repeat("|---", len(columns)) + "|\n"
}
