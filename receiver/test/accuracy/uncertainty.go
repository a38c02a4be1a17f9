// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/window"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/rules"
)

// doubted is a figure that the receiver states an uncertainty of.
type doubted struct {
	scenario, setting string
	workload          string // empty: the node
	zone              power.Kind
	// off is how far the figure is from the truth, and deviation the stated standard deviation, in J.
	off, deviation float64
	// sharing is the error of a workload's share in the unit of window.Deviation, which returns used for what is known.
	sharing, used float64
	known         string
}

// holds reports whether the truth is within one standard deviation. Energy is rounded to
// microjoules and CPU time to nanoseconds.
func (d *doubted) holds() bool { return math.Abs(d.off) <= d.deviation+1e-4 }

// mostWorkloads is how many workloads of a scenario count, so that one with thousands counts for no more than others.
const mostWorkloads = 10

// doubted returns the figures of a measurement that have uncertainties.
func (t simTotals) doubted(sc simScenario, setting simSetting) (all []doubted) {
	parts := map[power.Kind]func(joules) float64{
		power.Package: func(j joules) float64 { return j.pkg }, power.DRAM: func(j joules) float64 { return j.dram },
	}
	for _, zone := range slices.Sorted(maps.Keys(parts)) {
		of := parts[zone]
		add := func(metric, workload string, off float64) *doubted {
			deviation, stated := t.uncertainties[simSeries{metric: metric, of: workload, zone: string(zone)}]
			if !stated || of(t.aboveIdle) < 1e-3 {
				return &doubted{}
			}
			all = append(all, doubted{
				scenario: sc.name, setting: setting.name, workload: workload, zone: zone, off: off, deviation: deviation,
			})
			return &all[len(all)-1]
		}
		add("system.power.uncertainty", "", of(t.node)-of(t.aboveIdle))
		for i, w := range t.workloads {
			reported, truth, share := of(t.reported[w]), of(t.truth[w]), of(t.reported[w])/of(t.node)
			if i == mostWorkloads || reported < 1e-4 {
				break
			}
			d := add(t.entities[w]+".power.uncertainty", w, reported-truth)
			d.known, d.used = setting.known(zone, t.sockets)
			d.sharing = math.Abs(reported-truth*of(t.node)/of(t.aboveIdle)) / (reported * max(1-share, 1e-9))
		}
	}
	return all
}

// known describes the arguments of window.Deviation for a measurement, and returns its result.
func (s *simSetting) known(zone power.Kind, sockets int) (known string, used float64) {
	cfg := s.config()
	r, _ := rules.Resolve(cfg, rules.Machine{})
	key, length := r.Weight(zone).Key(zone), r.Window
	if length == 0 {
		length = cfg.CollectionInterval
	}
	shared := sockets > 1 && r.Scope == config.ScopeNode
	known = "`" + string(zone) + "`"
	switch {
	case zone == power.DRAM:
		known += " by `" + string(key) + "`"
	case shared:
		known = "several packages with the same users by `" + string(key) + "`, windows of " + length.String()
	default:
		known += " with users of its own, windows of " + length.String()
	}
	return known, window.Deviation(key, zone, length, shared)
}

// uncertaintySettings are those whose uncertainties are measured, where they learn for a time.
func uncertaintySettings(learn time.Duration) (settings []simSetting) {
	ticks := splitting(config.StaticTrained, 0)
	ticks.name, ticks.source = "learned, 10 s, procfs", cpu.KindProcfs
	for _, s := range []simSetting{
		splitting(config.StaticTrained, 0), ticks, splitting(config.StaticTrained, time.Second),
		byZone(config.WeightMemoryCPUTime, config.StaticTrained, cpu.KindBPF, time.Second), byDefault(cpu.KindBPF), byDefault(cpu.KindProcfs),
	} {
		s.learns = learn
		settings = append(settings, s)
	}
	return settings
}

// part returns the part of the figures whose truth is within one standard deviation.
func part(figures []doubted, of func(*doubted) bool) (part float64, n int) {
	held := 0
	for i := range figures {
		if d := &figures[i]; of(d) {
			n++
			if d.holds() {
				held++
			}
		}
	}
	return float64(held) / float64(n), n
}

// heldOut returns the part of the workloads' figures in every other scenario whose share is within
// the deviation that would have been taken from the remaining scenarios alone, and the other way
// around.
func heldOut(figures []doubted, scenarios []simScenario) float64 {
	half := map[string]int{}
	for i := range scenarios {
		half[scenarios[i].name] = i % 2
	}
	ratios := [2]map[string][]float64{{}, {}}
	for _, d := range figures {
		if h := half[d.scenario]; d.workload != "" {
			ratios[h][d.known] = append(ratios[h][d.known], d.sharing)
		}
	}
	held, n := 0, 0
	for h, other := range []int{1, 0} {
		for known, tested := range ratios[h] {
			fitted := slices.Sorted(slices.Values(ratios[other][known]))
			if len(fitted) == 0 {
				continue
			}
			deviation := typical(fitted)
			for _, ratio := range tested {
				n++
				if ratio <= deviation+1e-6 {
					held++
				}
			}
		}
	}
	return float64(held) / float64(n)
}

// typical returns the value that 68 % of sorted ratios do not exceed.
func typical(sorted []float64) float64 { return sorted[int(0.68*float64(len(sorted)-1)+0.5)] }

func ofWorkloads(d *doubted) bool { return d.workload != "" }

func ofTheNode(d *doubted) bool { return d.workload == "" }

// uncertaintyTables returns the tables of uncertainty of dev/accuracy-tables.md.
func uncertaintyTables(t *testing.T) string {
	scenarios := simAll()
	settings := uncertaintySettings(24 * time.Hour) // as in the other tables, which have some of the same runs
	inOrder := make([][]doubted, len(settings)*len(scenarios))
	curves, nights := slices.Concat(simCurves(t), simCoreCurves(t)), []float64{0, 0.02, 0.05, 0.1}
	afterEach := make([][]doubted, len(curves)*len(nights))
	t.Run("uncertainty", func(t *testing.T) {
		for k, setting := range settings {
			for i, sc := range scenarios {
				t.Run(sc.name+"/"+setting.name, func(t *testing.T) {
					t.Parallel()
					a := measureOnce(t, sc, setting)
					inOrder[k*len(scenarios)+i] = a.doubted(sc, setting)
				})
			}
		}
		for i, c := range curves {
			for n, night := range nights {
				setting, sc := splitting(config.StaticTrained, 0), afterNights(c, night)
				setting.name = fmt.Sprintf("nights at %.0f %%", 100*night)
				t.Run(sc.name, func(t *testing.T) {
					t.Parallel()
					a := measure(t, sc, setting, curveHorizon)
					afterEach[i*len(nights)+n] = a.doubted(sc, setting)
				})
			}
		}
	})
	figures, nodes := slices.Concat(inOrder...), slices.Concat(afterEach...)
	var b strings.Builder
	row := func(what string, figures []doubted, of func(*doubted) bool) {
		if p, n := part(figures, of); n > 0 {
			fmt.Fprintf(&b, "| %s | %.0f %% | %d |\n", what, 100*p, n)
		}
	}
	b.WriteString("\n| setting, figures of workloads | truth within one standard deviation | figures |\n|---|---|---|\n")
	for _, setting := range uncertaintySettings(0) {
		row(setting.name, figures, func(d *doubted) bool { return ofWorkloads(d) && d.setting == setting.name })
	}
	for _, zone := range []power.Kind{power.Package, power.DRAM} {
		row("all, `"+string(zone)+"`", figures, func(d *doubted) bool { return ofWorkloads(d) && d.zone == zone })
	}
	row("**all**", figures, ofWorkloads)
	fmt.Fprintf(&b, "\nWith deviations from every other scenario alone, the truth is within one standard deviation in %.0f %% of the rest.\n",
		100*heldOut(figures, scenarios))

	writeDeviations(&b, figures)

	b.WriteString("\n| the node's active energy | truth within one standard deviation | figures |\n|---|---|---|\n")
	for _, night := range nights {
		name := fmt.Sprintf("nights at %.0f %%", 100*night)
		row("load curves, "+name, nodes, func(d *doubted) bool { return ofTheNode(d) && d.setting == name })
	}
	row("scenarios, nights near rest, package", figures, func(d *doubted) bool { return ofTheNode(d) && d.zone == power.Package })
	row("**all**", slices.Concat(nodes, figures), func(d *doubted) bool { return ofTheNode(d) && d.zone == power.Package })
	return b.String()
}

// afterNights returns a machine at a load of 10 % after days whose lowest load is that of the nights.
func afterNights(c simCurve, night float64) simScenario {
	c.cpu, c.watts = fmt.Sprintf("%s, nights at %g %%", c.cpu, 100*night), fromZero(c.watts)
	sc := underLoad(c, 0.1)
	build := sc.build
	sc.build = func(l *simulator) func(time.Duration) {
		l.nights = night
		return build(l)
	}
	return sc
}

// writeDeviations writes the deviations of shares, measured and as window.Deviation has them.
func writeDeviations(b *strings.Builder, figures []doubted) {
	b.WriteString("\n| active energy of | deviation, measured | used | figures |\n|---|---|---|---|\n")
	byKnown, used := map[string][]float64{}, map[string]float64{}
	for _, d := range figures {
		if ofWorkloads(&d) {
			byKnown[d.known], used[d.known] = append(byKnown[d.known], d.sharing), d.used
		}
	}
	for _, known := range slices.Sorted(maps.Keys(byKnown)) {
		ratios := slices.Sorted(slices.Values(byKnown[known]))
		fmt.Fprintf(b, "| %s | %.2f | %.2f | %d |\n", known, typical(ratios), used[known], len(ratios))
	}
}
