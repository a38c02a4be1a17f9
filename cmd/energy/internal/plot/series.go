// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"sort"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/phase"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	// mostSteps bounds the points of a line: more points cannot be distinguished at the width of a
	// plot.
	mostSteps = 600
	// shortestStep is the minimum duration over which a power is computed from an energy. Counters
	// step every millisecond: over 20 ms a power is wrong by at most one step, 5 %.
	shortestStep = 20 * time.Millisecond
)

// edgesOf returns the edges of at most mostSteps steps of time. The last step includes samples that are too short for
// one.
func edgesOf(samples []measure.Sample) (edges []time.Duration) {
	if len(samples) == 0 {
		return nil
	}
	begin, end := samples[0].End-samples[0].Wall, samples[len(samples)-1].End
	least := max(shortestStep, (end-begin)/mostSteps)
	edges = []time.Duration{begin}
	for _, s := range samples {
		if s.End-edges[len(edges)-1] >= least {
			edges = append(edges, s.End)
		}
	}
	return append(edges[:max(1, len(edges)-1)], end)
}

// powers returns the mean power of each step in a zone, of the command and of the node. Power times time is the energy.
func powers(samples []measure.Sample, edges []time.Duration, zone int) (used, node []float64) {
	if len(edges) == 0 {
		return nil, nil
	}
	var u, n units.Energy
	command, all := curve{{edges[0], 0}}, curve{{edges[0], 0}}
	for _, s := range samples {
		if u, n = u+s.Used[zone], n+s.NodeUsed[zone]; s.Used[zone] > 0 || s.NodeUsed[zone] > 0 {
			command, all = append(command, reading{s.End, u.Joules()}), append(all, reading{s.End, n.Joules()})
		}
	}
	// The last reading includes the time until the end.
	command[len(command)-1].at, all[len(all)-1].at = edges[len(edges)-1], edges[len(edges)-1]
	return command.watts(edges), all.watts(edges)
}

// curve is the energy since the begin of a run by time. It is linear between the readings of the meter: a meter that is
// read seldom reports the energy of several samples in one of them.
type curve []reading

type reading struct {
	at     time.Duration
	joules float64
}

func (c curve) watts(edges []time.Duration) (watts []float64) {
	before := 0.0
	for step, edge := range edges[1:] {
		until := c.until(edge)
		watts = append(watts, (until-before)/max(edge-edges[step], 1).Seconds())
		before = until
	}
	return watts
}

// until returns the energy until a time.
func (c curve) until(t time.Duration) float64 {
	next := sort.Search(len(c), func(i int) bool { return c[i].at > t })
	switch next {
	case 0:
		return 0
	case len(c):
		return c[next-1].joules
	}
	from, to := c[next-1], c[next]
	return from.joules + (to.joules-from.joules)*float64(t-from.at)/float64(to.at-from.at)
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
