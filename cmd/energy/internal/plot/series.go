// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/phase"
)

const (
	// mostSteps bounds the points of a line: more points cannot be distinguished at the width of a
	// plot.
	mostSteps = 600
	// shortestStep is the minimum duration over which a power is computed from an energy. Counters
	// step every millisecond: over 20 ms a power is wrong by at most one step, 5 %.
	shortestStep = 20 * time.Millisecond
)

// steps are mean powers over time: those of step i last from edges[i] to edges[i+1].
type steps struct {
	edges []time.Duration
	used  [][]float64 // watts of the command by zone and step
	node  [][]float64 // watts of the node by zone and step
}

// stepsOf returns the powers of a run in at most mostSteps steps, whose areas are the energies of the run.
func stepsOf(r *measure.Result) steps {
	var s steps
	if len(r.Samples) == 0 {
		return s
	}
	bounds := bounds(r.Samples)
	s.edges = []time.Duration{r.Samples[0].End - r.Samples[0].Wall}
	for _, end := range bounds {
		s.edges = append(s.edges, r.Samples[end-1].End)
	}
	for zone := range r.Zones {
		used, node := spread(r.Samples, zone)
		s.used = append(s.used, means(r.Samples, bounds, used))
		s.node = append(s.node, means(r.Samples, bounds, node))
	}
	return s
}

// bounds returns the ends of steps as indices of samples. The last step includes samples that are too short for one.
func bounds(samples []measure.Sample) (ends []int) {
	var whole, wall time.Duration
	for _, s := range samples {
		whole += s.Wall
	}
	least := max(shortestStep, whole/mostSteps)
	for i, s := range samples {
		if wall += s.Wall; wall >= least {
			ends = append(ends, i+1)
			wall = 0
		}
	}
	switch {
	case len(ends) == 0:
		return []int{len(samples)}
	case wall > 0:
		ends[len(ends)-1] = len(samples)
	}
	return ends
}

// spread returns the joules of a zone in each sample, of the command and of the node. A meter that
// is read seldom reports the energy of several samples in one of them. spread divides it among all
// of them.
func spread(samples []measure.Sample, zone int) (used, node []float64) {
	used, node = make([]float64, len(samples)), make([]float64, len(samples))
	share := func(from, to int) {
		var u, n, wall float64
		for _, s := range samples[from:to] {
			u, n, wall = u+s.Used[zone].Joules(), n+s.NodeUsed[zone].Joules(), wall+s.Wall.Seconds()
		}
		for i := from; i < to && wall > 0; i++ {
			part := samples[i].Wall.Seconds() / wall
			used[i], node[i] = u*part, n*part
		}
	}
	from, last := 0, 0
	for i, s := range samples {
		if s.NodeUsed[zone] > 0 || s.Used[zone] > 0 {
			share(from, i+1)
			from, last = i+1, from
		}
	}
	if from < len(samples) { // the meter has reported nothing since
		share(last, len(samples))
	}
	return used, node
}

// means returns the mean power of each step.
func means(samples []measure.Sample, ends []int, joules []float64) (watts []float64) {
	from := 0
	for _, end := range ends {
		var e, wall float64
		for i := from; i < end; i++ {
			e, wall = e+joules[i], wall+samples[i].Wall.Seconds()
		}
		if wall > 0 {
			e /= wall
		}
		watts = append(watts, e)
		from = end
	}
	return watts
}

// band is a stretch of time in one phase.
type band struct {
	name     string
	from, to time.Duration
}

// bands returns the stretches of a run that are in phases.
func bands(r *measure.Result) (found []band) {
	for _, s := range r.Samples {
		if s.Phase == "" || s.Phase == phase.None {
			continue
		}
		from := s.End - s.Wall
		if last := len(found) - 1; last >= 0 && found[last].name == s.Phase && found[last].to == from {
			found[last].to = s.End
			continue
		}
		found = append(found, band{name: s.Phase, from: from, to: s.End})
	}
	return found
}

// sum returns the sums, step by step, of the series of zones that are added up.
func sum(zones []measure.Zone, series [][]float64) []float64 {
	var total []float64
	for i, z := range zones {
		switch {
		case z.Besides != "":
		case total == nil:
			total = slices.Clone(series[i])
		default:
			for step, w := range series[i] {
				total[step] += w
			}
		}
	}
	return total
}
