// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"math"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/phase"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// axis is a linear axis that begins at 0.
type axis struct {
	most float64 // the largest value, in seconds or watts
	unit
}

// unit is the unit of an axis.
type unit struct {
	name   string
	factor float64 // of seconds or watts
}

// newAxis returns an axis in the last unit that makes its largest value at least 3. Units of factor
// 1 need only 1.
func newAxis(most float64, units ...unit) axis {
	if most == 0 {
		most = 1
	}
	a := axis{most, units[0]}
	for _, u := range units {
		if most*u.factor >= 3 || u.factor == 1 && most >= 1 {
			a.unit = u
		}
	}
	return a
}

// ticks returns about so many multiples of 1, 2 or 5 times a power of ten, in the unit of the axis.
func (a axis) ticks(about float64) (values []float64) {
	rough := a.most * a.factor / about
	step := math.Pow(10, math.Ceil(math.Log10(rough)))
	for _, part := range []float64{5, 2} {
		if step/part >= rough {
			step /= part
		}
	}
	for v := 0.0; v <= a.most*a.factor*1.0001; v += step {
		values = append(values, v)
	}
	return values
}

const (
	// mostSteps bounds the points of a line: more points cannot be distinguished at the width of a
	// plot.
	mostSteps = 600
	// shortestStep is the minimum duration over which a power is computed from an energy. Counters
	// step every millisecond: over 20 ms a power is wrong by at most one step, 5 %.
	shortestStep = 20 * time.Millisecond
)

// edgesOf returns the edges of at most mostSteps steps of time. The last step includes samples that
// are too short for one.
func edgesOf(samples []measure.Sample) []time.Duration {
	edges := []time.Duration{0}
	if len(samples) == 0 {
		return edges
	}
	end := samples[len(samples)-1].End
	least := max(shortestStep, end/mostSteps)
	for _, s := range samples {
		if s.End-edges[len(edges)-1] >= least {
			edges = append(edges, s.End)
		}
	}
	return append(edges[:max(1, len(edges)-1)], end)
}

// powers returns the mean power of each step. Power times time is the energy.
func powers(samples []measure.Sample, edges []time.Duration, energy func(measure.Sample) units.Energy) []float64 {
	watts := make([]float64, len(edges)-1)
	step := 0
	for _, s := range samples {
		for s.End > edges[step+1] {
			step++
		}
		watts[step] += energy(s).Joules() / max(edges[step+1]-edges[step], 1).Seconds()
	}
	return watts
}

func addTo(sum, values []float64) {
	for i, v := range values {
		sum[i] += v
	}
}

func highest(values []float64) float64 { return slices.Max(append(values, 0)) }

// band is a stretch of time in one phase.
type band struct {
	name     string
	from, to time.Duration
}

// bandsOf returns the stretches of a run that are in phases.
func bandsOf(samples []measure.Sample) (bands []band) {
	for _, s := range samples {
		last := len(bands) - 1
		switch from := s.End - s.Wall; {
		case s.Phase == "" || s.Phase == phase.None:
		case last >= 0 && bands[last].name == s.Phase && bands[last].to == from:
			bands[last].to = s.End
		default:
			bands = append(bands, band{s.Phase, from, s.End})
		}
	}
	return bands
}
