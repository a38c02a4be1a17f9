// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/test/rules"
)

// joules is energy by zone kind. The package energy of a machine with cards is the cards' energy.
type joules = rules.Energy

func less(a, b joules) joules { return joules{Package: a.Package - b.Package, DRAM: a.DRAM - b.DRAM} }

func inJoules(e hostsim.Energies) joules { return joules{Package: e.Package / 1e6, DRAM: e.DRAM / 1e6} }

func ofPackages(j joules) float64 { return j.Package }

func ofMemories(j joules) float64 { return j.DRAM }

// truth returns the energy that a workload caused.
func (l *simulator) truth(w *simWorkload) (j joules) {
	for _, c := range w.contexts {
		j.Package += c.Energy / 1e6
	}
	for _, t := range w.tasks {
		if len(l.machine.GPUs) == 0 {
			j = j.Plus(inJoules(t.Energy))
		}
	}
	return j
}

// energy returns all energy, and the energy at rest.
func (l *simulator) energy() (all, idled joules) {
	for _, g := range l.machine.GPUs {
		all.Package, idled.Package = all.Package+g.Energy/1e6, idled.Package+g.Idled/1e6
	}
	for _, s := range l.machine.Sockets {
		if len(l.machine.GPUs) == 0 {
			all, idled = all.Plus(inJoules(s.Energy)), idled.Plus(inJoules(s.Idled))
		}
	}
	return all, idled
}

// inZone returns the reported energy of a zone.
func (l *simulator) inZone(zone string, value float64) (j joules) {
	switch hasCards := len(l.machine.GPUs) > 0; {
	case zone == string(power.GPU) && hasCards, zone == string(power.Package) && !hasCards:
		j.Package = value
	case zone == string(power.DRAM) && !hasCards:
		j.DRAM = value
	}
	return j
}

// The metrics that are compared with the truth.
const (
	nodeEnergy         = "system.energy"
	unattributedEnergy = "system.unattributed.energy"
	processEnergy      = "process.energy"
	containerEnergy    = "container.energy"
)

var workloadMetrics = []string{processEnergy, containerEnergy, nodeEnergy, unattributedEnergy}

// simTotals is energy since the beginning, or since earlier totals.
type simTotals struct {
	workloads []string
	entities  map[string]string // of each workload: process or container
	sockets   int
	// reported and idle are the active and the idle energy of each workload, and of all series of
	// each metric. truth is the energy that each workload caused, all energy aboveIdle, and the
	// energy atRest.
	reported, idle, truth map[string]joules
	// uncertainties are the standard deviations of the measured energy, by metric, workload and
	// zone. Only emitted uncertainties are included.
	uncertainties map[simSeries]float64
}

// The keys of simTotals.truth that are not workloads.
const aboveIdle, atRest = "above idle", "at rest"

func (l *simulator) totals() simTotals {
	t := simTotals{
		entities: map[string]string{}, sockets: len(l.machine.Sockets), uncertainties: maps.Clone(l.uncertainties),
		reported: map[string]joules{}, idle: map[string]joules{}, truth: map[string]joules{},
	}
	for _, w := range l.workloads {
		t.workloads = append(t.workloads, w.name)
		t.entities[w.name], t.truth[w.name] = w.entity(), l.truth(w)
	}
	all, idled := l.energy()
	t.truth[aboveIdle], t.truth[atRest] = less(all, idled), idled
	// The order gives the same rounding every time.
	for _, s := range slices.SortedFunc(maps.Keys(l.series), simSeries.compare) {
		sums, energy := t.reported, l.inZone(s.zone, l.series[s])
		if s.idle {
			sums = t.idle
		}
		sums[s.metric] = sums[s.metric].Plus(energy)
		if s.metric == t.entities[s.of]+".energy" {
			sums[s.of] = sums[s.of].Plus(energy)
		}
	}
	return t
}

func (s simSeries) compare(o simSeries) int {
	return cmp.Or(strings.Compare(s.metric, o.metric), strings.Compare(s.resource, o.resource), strings.Compare(s.zone, o.zone), cmp.Compare(s.start, o.start))
}

// since returns the totals less earlier ones.
func (t simTotals) since(before simTotals) simTotals {
	for _, of := range [][2]map[string]joules{{t.reported, before.reported}, {t.idle, before.idle}, {t.truth, before.truth}} {
		for key := range of[0] {
			of[0][key] = less(of[0][key], of[1][key])
		}
	}
	return t
}

// accuracy holds the errors of the receiver's figures. Errors are relative: 0.1 means 10 % too
// much.
type accuracy struct {
	simTotals

	active  float64 // of the node's active energy, relative to all energy above idle
	all     float64 // of the node's active energy, relative to all energy
	sum     float64 // of active and idle energy together
	mean    float64 // of the absolute errors of the workloads
	worst   float64
	worstOf string
	// misattributed is the part of all energy above idle that is attributed to a workload that did
	// not cause it, over all zones and for each zone.
	misattributed, misattributedPackage, misattributedDRAM float64
	// partsOf is the active energy of all parts, relative to the node's active energy. unowned is
	// the part of the node's active energy outside all workloads.
	partsOf, unowned float64
}

// simRounding is the precision of the tables. Of errors that print the same, the first is the
// worst.
const simRounding = 5e-4

// accuracy compares the emitted energy with the truth. A workload without true energy has no
// relative error.
func (t simTotals) accuracy() accuracy {
	node, above := t.reported[nodeEnergy].Sum(), t.truth[aboveIdle].Sum()
	all, unowned := above+t.truth[atRest].Sum(), t.reported[unattributedEnergy].Sum()
	a := accuracy{simTotals: t, active: off(node, above), all: off(node, all), sum: off(node+t.idle[nodeEnergy].Sum(), all)}
	a.partsOf, a.unowned = (t.reported[processEnergy].Sum()+unowned)/node, unowned/node
	used := 0.0
	for _, w := range t.workloads {
		if t.truth[w].Sum() == 0 {
			continue
		}
		used++
		e := off(t.reported[w].Sum(), t.truth[w].Sum())
		a.mean += math.Abs(e)
		if math.Abs(e) > math.Abs(a.worst)+simRounding || a.worstOf == "" {
			a.worst, a.worstOf = e, w
		}
	}
	a.mean /= used
	a.misattributed, a.misattributedPackage, a.misattributedDRAM = t.misattributed(joules.Sum), t.misattributed(ofPackages), t.misattributed(ofMemories)
	return a
}

// misattributed returns half the sum of the differences between the reported and the true shares.
// Everything outside the workloads is one more share. It is NaN if no energy above idle was used.
func (t simTotals) misattributed(of func(joules) float64) float64 {
	if of(t.truth[aboveIdle]) < 1e-6 {
		return math.NaN()
	}
	rest, distance := 0.0, 0.0
	for _, w := range t.workloads {
		d := of(t.reported[w])/of(t.reported[nodeEnergy]) - of(t.truth[w])/of(t.truth[aboveIdle])
		distance += math.Abs(d)
		rest -= d
	}
	return (distance + math.Abs(rest)) / 2
}

// off returns the error of a figure relative to the truth.
func off(reported, truth float64) float64 { return (reported - truth) / truth }
