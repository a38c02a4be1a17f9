// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// labHorizon is how long the tables' scenarios run, curveHorizon how long those on the load curves do, which are
// steady.
const (
	labHorizon   = 30 * time.Second
	curveHorizon = 10 * time.Second
)

// labTables runs all scenarios under those of their settings that are measured, and GPUs under others, and returns the tables of
// docs/accuracy-tables.md.
func labTables(t *testing.T, measured func(sc *labScenario, s *labSetting) bool, cards []gpuSetting) string {
	curves := labCurves(t)
	rows := labRows()
	scenarios := labAll()
	cells := make([][]accuracy, len(scenarios))
	loaded := make([][][]accuracy, len(curves))
	shown := func(sc *labScenario, s *labSetting) bool { return s.has(sc.name) && measured(sc, s) }
	t.Run("cells", func(t *testing.T) {
		for i := range scenarios {
			cells[i] = make([]accuracy, len(rows))
			for k := range rows {
				if shown(&scenarios[i], &rows[k]) {
					t.Run(scenarios[i].name+"/"+rows[k].name, func(t *testing.T) {
						t.Parallel()
						cells[i][k] = measureOnce(t, scenarios[i], rows[k])
					})
				}
			}
		}
		for i, c := range curves {
			loaded[i] = make([][]accuracy, len(rows))
			for k := range rows {
				loaded[i][k] = make([]accuracy, len(labLoads))
				for n, load := range labLoads {
					if sc := underLoad(c, load); rows[k].curves && measured(&sc, &rows[k]) {
						t.Run(sc.name+"/"+rows[k].name, func(t *testing.T) {
							t.Parallel()
							loaded[i][k][n] = measure(t, sc, rows[k], curveHorizon)
						})
					}
				}
			}
		}
	})
	var b strings.Builder
	for i := range scenarios {
		sc := &scenarios[i]
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n", sc.name, sc.description)
		b.WriteString("| setting | active | mean | worst | misplaced | of package | of DRAM |\n|---|---|---|---|---|---|---|\n")
		for k := range rows {
			if a := &cells[i][k]; shown(sc, &rows[k]) {
				fmt.Fprintf(&b, "| %s | %s | %s | %s `%s` | %s | %s | %s |\n", rows[k].name, signed(a.active), percent(a.mean),
					signed(a.worst), a.worstOf, percent(a.misplaced), percent(a.misplacedPackage), percent(a.misplacedDRAM))
			}
		}
	}
	b.WriteString("\n### Load curves of real machines\n\n")
	b.WriteString("Machines with the measured power curves of real CPUs, steadily under load by two workloads. In the cells is\n" +
		"*active*: the error of the node's active energy, which no key changes.\n\n")
	b.WriteString("| CPU | setting |")
	for _, load := range labLoads {
		fmt.Fprintf(&b, " %.0f %% load |", 100*load)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(labLoads)) + "\n")
	for i, c := range curves {
		for k := range rows {
			if sc := underLoad(c, 1); !rows[k].curves || !measured(&sc, &rows[k]) {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s |", c.cpu, rows[k].name)
			for n := range labLoads {
				fmt.Fprintf(&b, " %s |", signed(loaded[i][k][n].active))
			}
			b.WriteString("\n")
		}
	}
	b.WriteString(labIdleTables(t))
	b.WriteString(gpuTables(t, cards))
	return b.String()
}

// labAll returns all scenarios in the order of the tables.
func labAll() []labScenario { return labScenarios }

// labIdleTables returns the tables of who carries idle energy under each rule.
func labIdleTables(t *testing.T) string {
	var b strings.Builder
	b.WriteString("\n### Idle allocation\n\n" +
		"Parts of the node's idle energy, in percent. They have no true values to compare with, because no workload causes the power at rest.\n" +
		"All rules share the same energy, to the microjoule, and leave active energy unchanged. The static power model is\n" +
		"`fixed`, so idle energy is what the machine draws at rest. Every container requests one CPU unless the scenario\n" +
		"says otherwise.\n")
	for _, name := range labIdleScenarios {
		sc := labScenarioOf(t, name)
		var workloads []string
		var rows strings.Builder
		var active map[string]joules
		for _, rule := range labIdleRules {
			a := measure(t, sc, rule, labHorizon)
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
	accuracyPage  = "../docs/accuracy-tables.md"
	accuracyBegin = "<!-- make accuracy writes what follows -->\n"
	accuracyEnd   = "\n<!-- make accuracy wrote what is above -->"
)

// TestAccuracyTablesAreUpToDate writes the tables with -accuracy.write. Without it the shortest windows are left out,
// because there are so many, the settings that learn for a day, and the long intervals of GPUs.
func TestAccuracyTablesAreUpToDate(t *testing.T) {
	p := readGenerated(t, accuracyPage)
	if *accuracyWrite {
		all := func(*labScenario, *labSetting) bool { return true }
		p.write(t, labTables(t, all, gpuSettings))
		return
	}
	p.onlyOnAMD64(t)
	lines := strings.SplitAfter(p.text, "\n")
	without := func(row string) {
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, "| "+row+" |") })
	}
	for _, setting := range labRows() {
		if !setting.cheap() {
			without(setting.name)
		}
	}
	var cards []gpuSetting
	for _, setting := range gpuSettings {
		if setting.checked() {
			cards = append(cards, setting)
		} else {
			without(setting.name)
		}
	}
	cheap := func(_ *labScenario, s *labSetting) bool { return s.cheap() }
	requireSameLines(t, lines, labTables(t, cheap, cards))
}

// requireSameLines fails with the first lines that differ.
func requireSameLines(t *testing.T, page []string, measured string) {
	text := strings.SplitAfter(measured, "\n")
	for i := range max(len(page), len(text)) {
		if i >= len(page) || i >= len(text) || page[i] != text[i] {
			part := func(lines []string) string { return strings.Join(lines[min(i, len(lines)):min(i+3, len(lines))], "") }
			require.Equal(t, part(page), part(text), "line %d of the tables, and maybe more: run make accuracy to update the page", i+1)
		}
	}
}

// generated is the part of a page that make accuracy writes.
type generated struct{ name, before, text, after string }

func readGenerated(t *testing.T, name string) (p generated) {
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(page), accuracyBegin)
	require.True(t, ok, "%s lacks %q", name, accuracyBegin)
	text, after, ok := strings.Cut(rest, accuracyEnd)
	require.True(t, ok, "%s lacks %q", name, accuracyEnd)
	return generated{name, before + accuracyBegin, text, accuracyEnd + after}
}

// write replaces the text, unless the test has failed.
func (p *generated) write(t *testing.T, text string) {
	require.False(t, t.Failed())
	require.NoError(t, os.WriteFile(p.name, []byte(p.before+text+p.after), 0o600))
}

func (p *generated) onlyOnAMD64(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the tables are written on amd64, and other architectures round floating point otherwise")
	}
}
