// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/window"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/rules"
	"github.com/energyreceiver/energyreceiver/receiver/test/table"
)

// doubted is a figure with an uncertainty that the receiver reports.
type doubted struct {
	scenario, row, setting string
	workload               string // empty: the node
	zone                   power.Kind
	// off is the error of the figure, and deviation the reported standard deviation, in J.
	off, deviation float64
	// sharing is the error of a workload's share in units of window.Deviation. used is the value of
	// window.Deviation for the arguments that known describes.
	sharing, used float64
	known         string
}

// holds reports whether the truth is within one standard deviation. Energy is rounded to
// microjoules and CPU time to nanoseconds.
func (d *doubted) holds() bool { return math.Abs(d.off) <= d.deviation+1e-4 }

// mostWorkloads is the number of workloads that count per scenario, so that a scenario with
// thousands does not outweigh the others.
const mostWorkloads = 10

// doubted returns the figures of a measurement that have uncertainties.
func (t simTotals) doubted(sc simScenario, setting simSetting) (all []doubted) {
	parts := map[power.Kind]func(joules) float64{power.Package: ofPackages, power.DRAM: ofMemories}
	node, used := t.reported[nodeEnergy], t.truth[aboveIdle]
	for _, zone := range slices.Sorted(maps.Keys(parts)) {
		of := parts[zone]
		add := func(metric, workload string, off float64) *doubted {
			deviation, stated := t.uncertainties[simSeries{metric: metric, of: workload, zone: string(zone)}]
			if !stated || of(used) < 1e-3 {
				return &doubted{}
			}
			all = append(all, doubted{
				scenario: sc.name, row: sc.row, setting: setting.name, workload: workload, zone: zone, off: off, deviation: deviation,
			})
			return &all[len(all)-1]
		}
		add("system.power.uncertainty", "", of(node)-of(used))
		for i, w := range t.workloads {
			reported, truth, share := of(t.reported[w]), of(t.truth[w]), of(t.reported[w])/of(node)
			if i == mostWorkloads || reported < 1e-4 {
				break
			}
			d := add(t.entities[w]+".power.uncertainty", w, reported-truth)
			d.known, d.used = setting.known(zone, t.sockets)
			d.sharing = math.Abs(reported-truth*of(node)/of(used)) / (reported * max(1-share, 1e-9))
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
	known = string(zone)
	switch {
	case zone == power.DRAM:
		known += " by " + string(key)
	case shared:
		known = "several packages with the same users by " + string(key) + ", windows of " + length.String()
	default:
		known += " with users of its own, windows of " + length.String()
	}
	return known, window.Deviation(key, zone, length, shared)
}

// uncertaintySettings are the settings whose uncertainties are measured, with a training time.
func uncertaintySettings(training time.Duration) []simSetting {
	all := among(nil, "trained, 10 s, BPF", "trained, 10 s, procfs", "trained, 1 s, BPF",
		"scope zone, trained, DRAM by memory_cpu_time, 1 s, BPF", "default, BPF", "default, procfs")
	for i := range all {
		all[i].training = training
	}
	return all
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

// sharings returns the sorted errors of the shares of the workloads that the function is selects,
// by doubted.known.
func sharings(figures []doubted, is func(*doubted) bool) map[string][]float64 {
	by := map[string][]float64{}
	for i := range figures {
		if d := &figures[i]; ofWorkloads(d) && is(d) {
			by[d.known] = append(by[d.known], d.sharing)
		}
	}
	for _, values := range by {
		slices.Sort(values)
	}
	return by
}

// heldOut divides the scenarios into two halves, every other scenario. It returns the part of the
// workloads' figures whose share is within the deviation of the other half.
func heldOut(figures []doubted, scenarios []simScenario) float64 {
	inHalf := func(half int) func(*doubted) bool {
		return func(d *doubted) bool {
			return slices.IndexFunc(scenarios, func(sc simScenario) bool { return sc.name == d.scenario })%2 == half
		}
	}
	held, n := 0, 0
	for half := range 2 {
		fitted := sharings(figures, inHalf(1-half))
		for known, tested := range sharings(figures, inHalf(half)) {
			if len(fitted[known]) == 0 {
				continue
			}
			n += len(tested)
			after, _ := slices.BinarySearch(tested, typical(fitted[known])+1e-6)
			held += after
		}
	}
	return float64(held) / float64(n)
}

// typical returns the value that 68 % of sorted ratios do not exceed.
func typical(sorted []float64) float64 { return sorted[int(0.68*float64(len(sorted)-1)+0.5)] }

func ofWorkloads(d *doubted) bool { return d.workload != "" }

func ofTheNode(d *doubted) bool { return d.workload == "" }

// writeUncertainty writes the tables of uncertainties, if all figures are measured.
func writeUncertainty(t *testing.T) {
	nights := []float64{0, 0.02, 0.05, 0.1}
	afterEach := onCurves(slices.Concat(simCurves(t), simCoreCurves(t)), nights, func(c simCurve, night float64) simScenario {
		sc := afterNights(c, night, 0.1)
		sc.row = nightsAt(night)
		return sc
	})
	// The training time is the same as in the other tables, which share some of these runs.
	busy := &measurement{file: "uncertainty", scenarios: simAll(), settings: uncertaintySettings(24 * time.Hour), horizon: simHorizon}
	quiet := &measurement{file: "uncertainty of nodes", scenarios: afterEach, settings: among(nil, "trained, 10 s, BPF"), horizon: curveHorizon}
	figures, nodes := busy.run(t, everything).doubted(), quiet.run(t, everything).doubted()
	if !busy.isComplete() || !quiet.isComplete() {
		return
	}
	held := table.New("figures", "of", "truth within one standard deviation", "count")
	row := func(of, what string, figures []doubted, is func(*doubted) bool) {
		if p, n := part(figures, is); n > 0 {
			held.Add(of, what, fmt.Sprintf("%.0f", 100*p), strconv.Itoa(n))
		}
	}
	for _, setting := range busy.settings {
		row("workloads", setting.name, figures, func(d *doubted) bool { return ofWorkloads(d) && d.setting == setting.name })
	}
	for _, zone := range []power.Kind{power.Package, power.DRAM} {
		row("workloads", string(zone), figures, func(d *doubted) bool { return ofWorkloads(d) && d.zone == zone })
	}
	row("workloads", "all", figures, ofWorkloads)
	held.Add("workloads", "deviations from every other scenario alone", fmt.Sprintf("%.0f", 100*heldOut(figures, busy.scenarios)), "")
	for _, night := range nights {
		row("nodes", "load curves, "+nightsAt(night), nodes, func(d *doubted) bool { return ofTheNode(d) && d.row == nightsAt(night) })
	}
	row("nodes", "scenarios, nights near rest, package", figures, func(d *doubted) bool { return ofTheNode(d) && d.zone == power.Package })
	row("nodes", "all", slices.Concat(nodes, figures), func(d *doubted) bool { return ofTheNode(d) && d.zone == power.Package })
	writeRows(t, "uncertainty.csv", held, true)
	writeRows(t, "deviations.csv", deviations(figures), true)
}

func nightsAt(load float64) string { return fmt.Sprintf("nights at %.0f %%", 100*load) }

// doubted returns the figures of all cells that have uncertainties, by setting and scenario.
func (m *measurement) doubted() (all []doubted) {
	for k := range m.settings {
		for i, cells := range m.cells {
			if cells[k] != nil {
				all = append(all, cells[k].doubted(m.scenarios[i], m.settings[k])...)
			}
		}
	}
	return all
}

// deviations returns the deviations of shares: measured, and by window.Deviation.
func deviations(figures []doubted) *table.Table {
	all := table.New("active energy of", "deviation, measured", "used", "figures")
	by := sharings(figures, ofWorkloads)
	for _, known := range slices.Sorted(maps.Keys(by)) {
		used := figures[slices.IndexFunc(figures, func(d doubted) bool { return d.known == known })].used
		all.Add(known, fmt.Sprintf("%.2f", typical(by[known])), fmt.Sprintf("%.2f", used), strconv.Itoa(len(by[known])))
	}
	return all
}
