// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"math"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
)

const (
	// atRest is the highest utilization of a sample at rest, when only the operating system runs.
	atRest = 0.006
	// underLoad is the lowest utilization of a sample under load.
	underLoad = 0.05
	// loaded is the lowest utilization at the start of a run that begins under load.
	loaded = 0.5
)

// Truth is the static power of a series, and the additional power of a load of 10 %, in W.
type Truth struct {
	Static, Ten float64
	// Known is set if there are enough samples at rest and under load.
	Known bool
}

// idlePower is the static power in W of machines that are never idle, by their lowest samples.
var idlePower = map[string]float64{"nx12 package": 31.8, "nx12 dram": 38.0}

// truth returns the power at a utilization of 0 on the straight line through the means of the
// samples at rest and of the samples under load.
func truth(samples []Sample) Truth {
	var rest, load Sample // means
	for _, x := range samples {
		switch {
		case x.Utilization <= atRest:
			rest.include(x)
		case x.Utilization >= underLoad:
			load.include(x)
		}
	}
	slope := (load.Watts - rest.Watts) / (load.Utilization - rest.Utilization)
	return Truth{
		Static: rest.Watts - slope*rest.Utilization, Ten: slope / 10,
		Known: rest.Seconds >= 20 && load.Seconds >= 20,
	}
}

// include adds a sample to a mean.
func (s *Sample) include(x Sample) {
	s.Seconds += x.Seconds
	part := x.Seconds / s.Seconds
	s.Utilization += part * (x.Utilization - s.Utilization)
	s.Watts += part * (x.Watts - s.Watts)
}

func (s *Series) truth() Truth {
	t := truth(s.Samples)
	if idle, ok := idlePower[s.Machine+" "+s.Zone]; ok {
		t = Truth{Static: idle}
	}
	return t
}

// active returns the true active energy of samples in J: the energy beyond static power.
func active(samples []Sample, static float64) (joules float64) {
	for _, x := range samples {
		joules += (x.Watts - static) * x.Seconds
	}
	return joules
}

// newModel returns an untrained model for a series. Its prior excludes the machine; addPrior lists
// the machines that the prior does not contain.
func newModel(s *Series) *static.Model {
	prior, _ := static.PriorWithout(s.Machine)
	m := static.NewCurveWithPrior(prior)
	if s.Counter {
		m.TakeShortSamples()
	} else {
		m.TakePowerSensors()
	}
	return m
}

// feed passes samples to a model, and returns the active energy in J.
func feed(m attribution.StaticPowerModel, s *Series, samples []Sample) (joules float64) {
	for _, x := range samples {
		joules += m.Active(s.portion(x)).Joules()
	}
	return joules
}

// trainedOn returns a model that is trained on runs of one machine.
func trainedOn(runs ...*Series) *static.Model {
	m := newModel(runs[0])
	for _, s := range runs {
		feed(m, s, s.Samples)
	}
	return m
}

// Energy holds the relative errors of an active energy: of the model, and of the utilization rule.
type Energy struct {
	Case                 string
	Trained, Utilization float64
	// Within reports whether the error is at most two standard errors.
	Within bool
}

// WholeRun returns the error of the active energy of a run that begins with an untrained model.
func WholeRun(s *Series) Energy {
	want := active(s.Samples, s.truth().Static)
	return Energy{
		Case: s.String(), Trained: feed(newModel(s), s, s.Samples)/want - 1, Utilization: byUtilization(s.Samples)/want - 1,
	}
}

func byUtilization(samples []Sample) (joules float64) {
	for _, x := range samples {
		joules += x.Watts * x.Utilization * x.Seconds
	}
	return joules
}

// LoadedStarts returns the errors of the active energy of runs that begin under load with an
// untrained model, until the first estimate that is not provisional, but for at most ten minutes. A
// run begins at each rise of the utilization to loaded that lasts for 20 s.
func LoadedStarts(s *Series) (starts []Energy) {
	idle := s.truth().Static
	for i := range s.Samples {
		if i > 0 && s.Samples[i-1].Utilization >= loaded || !staysLoaded(s.Samples[i:]) {
			continue
		}
		model := newModel(s)
		var got, seconds, errors float64
		end := i
		for ; end < len(s.Samples) && seconds < 600; end++ {
			x := s.Samples[end]
			got += model.Active(s.portion(x)).Joules()
			seconds += x.Seconds
			if !model.Provisional(0) {
				break
			}
			errors += model.StandardError(0) * x.Seconds
		}
		if want := active(s.Samples[i:end], idle); want > 0 {
			starts = append(starts, Energy{s.String(), got/want - 1, byUtilization(s.Samples[i:end])/want - 1, math.Abs(got-want) <= 2*errors})
		}
	}
	return starts
}

// staysLoaded reports whether the utilization is at least loaded in the first 20 s.
func staysLoaded(samples []Sample) bool {
	seconds := 0.0
	for i := 0; seconds < 20; i++ {
		if i == len(samples) || samples[i].Utilization < loaded {
			return false
		}
		seconds += samples[i].Seconds
	}
	return true
}

// Power is the error of a static power.
type Power struct {
	Case  string
	Watts float64 // too high
	// Relative is the error relative to the additional power of a load of 10 %.
	Relative      float64
	StandardError float64 // in W
	Trained       bool
}

// Within reports whether the error is at most one standard error.
func (p Power) Within() bool { return math.Abs(p.Watts) <= p.StandardError }

// powerOf returns the error of a model's static power.
func powerOf(name string, m *static.Model, t Truth) Power {
	off := m.StaticPower(0) - t.Static
	return Power{name, off, off / t.Ten, m.StandardError(0), m.Trained(0)}
}

// Runs returns the errors of models that were trained on one or more consecutive runs. They are
// compared with the last of these runs, the next run and the later runs.
func Runs(runs []*Series) (related [3][]Power) {
	for first := range runs {
		model := newModel(runs[first])
		for last := first; last < len(runs); last++ {
			feed(model, runs[last], runs[last].Samples)
			for i, s := range runs[last:] {
				p := powerOf(runs[first].Run+" to "+runs[last].Run+": "+s.Run, model, s.truth())
				related[min(i, 2)] = append(related[min(i, 2)], p)
			}
		}
	}
	return related
}

// Workloads returns the errors of a machine's models, trained on each workload alone, and on it and
// all workloads before it.
func Workloads(runs []*Series) (all []Power) {
	var samples []Sample
	for _, s := range runs {
		samples = append(samples, s.Samples...)
	}
	machine := truth(samples)
	for i, s := range runs {
		all = append(all, powerOf(s.Run, trainedOn(s), machine), powerOf("up to "+s.Run, trainedOn(runs[:i+1]...), machine))
	}
	return all
}

// quantile returns a quantile of the absolute values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := make([]float64, len(values))
	for i, v := range values {
		sorted[i] = math.Abs(v)
	}
	slices.Sort(sorted)
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

// part returns the fraction of values that meet a condition.
func part[T any](values []T, holds func(T) bool) float64 {
	n := 0
	for _, v := range values {
		if holds(v) {
			n++
		}
	}
	return float64(n) / float64(len(values))
}

// each returns a figure of each value.
func each[T any](values []T, figure func(T) float64) []float64 {
	figures := make([]float64, len(values))
	for i, v := range values {
		figures[i] = figure(v)
	}
	return figures
}
