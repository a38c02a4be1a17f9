// SPDX-License-Identifier: Apache-2.0

package plot

import (
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

// steps divide the samples of a run into stretches of time with a mean power each.
type steps struct {
	samples []measure.Sample
	ends    []int           // of the steps, as indices of samples
	edges   []time.Duration // step i lasts from edges[i] to edges[i+1]
}

// stepsOf returns at most mostSteps steps. The last step includes samples that are too short for one.
func stepsOf(samples []measure.Sample) steps {
	s := steps{samples: samples}
	if len(samples) == 0 {
		return s
	}
	begin, end := samples[0].End-samples[0].Wall, samples[len(samples)-1].End
	least := max(shortestStep, (end-begin)/mostSteps)
	s.edges = []time.Duration{begin}
	for i, sample := range samples {
		if sample.End-s.edges[len(s.ends)] >= least || i == len(samples)-1 && len(s.ends) == 0 {
			s.ends, s.edges = append(s.ends, i+1), append(s.edges, sample.End)
		}
	}
	s.ends[len(s.ends)-1], s.edges[len(s.ends)] = len(samples), end
	return s
}

func (s steps) count() int { return len(s.ends) }

// watts returns the mean power of each step in a zone, of the command and of the node. Power times time is the energy.
func (s steps) watts(zone int) (used, node []float64) {
	command, all := spread(s.samples, zone)
	from := 0
	for i, end := range s.ends {
		var u, n float64
		for j := from; j < end; j++ {
			u, n = u+command[j], n+all[j]
		}
		if seconds := (s.edges[i+1] - s.edges[i]).Seconds(); seconds > 0 {
			u, n = u/seconds, n/seconds
		}
		used, node, from = append(used, u), append(node, n), end
	}
	return used, node
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
	if from < len(samples) { // the meter has reported no energy since
		share(last, len(samples))
	}
	return used, node
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
