// SPDX-License-Identifier: Apache-2.0

// Package calibrated estimates the power of a zone from hardware events. The model is linear, and
// has one layer for each clock rate. It is fitted to the zone's meter, and fitted again if the
// error of its estimate is too large. This is the method of SmartWatts: G. Fieni, R. Rouvoy and L.
// Seinturier, "SmartWatts: Self-Calibrating Software-Defined Power Meter for Containers", CCGRID
// 2020.
package calibrated

import (
	"cmp"
	"math"
)

// Rates are the input of a model, in events per second: cycles, instructions and cache misses.
type Rates [3]float64

// Options are the parameters of a Model. A zero field selects the default.
type Options struct {
	// Fewest is the minimum number of samples for the first fit of a layer. The default is 10.
	Fewest int
	// History is the number of most recent samples of a layer that a fit uses. It is at least
	// Fewest. The default is 60.
	History int
	// Threshold is the error in watts above which a layer is fitted again. The default is 2.
	Threshold float64
	// MaxStatic is the highest static power in watts. SmartWatts uses the TDP. By default there is
	// no limit, because a limit below the real static power would make each estimate wrong.
	MaxStatic float64
}

// OrDefaults returns the options with defaults for zero fields.
func (o Options) OrDefaults() Options {
	return Options{cmp.Or(o.Fewest, 10), cmp.Or(o.History, 60), cmp.Or(o.Threshold, 2), cmp.Or(o.MaxStatic, math.Inf(1))}
}

// Sample is the average power of a zone in an interval, and the rates of events in the same
// interval.
type Sample struct {
	// Layer is the clock rate, in any unit.
	Layer int
	Rates Rates
	Watts float64
}

// Model is a power model. The zero Model has no layers and is ready for use. A Model is not safe for concurrent use.
type Model struct {
	Options
	layers map[int]*layer
	fits   int
}

// layer is the model of one clock rate.
type layer struct {
	samples []Sample // the most recent samples, oldest first
	fit     Fit
	fitted  bool
}

// Fit is a fitted layer: power is Static plus the sum of the rates of the events times Joules.
type Fit struct {
	// Static is the power in watts without any event, from 0 to Options.MaxStatic.
	Static float64
	// Joules is the energy of one event of each kind. It is never negative.
	Joules Rates
}

// Watts returns the estimated power at these rates.
func (f *Fit) Watts(rates *Rates) float64 { return f.Static + f.Active(rates) }

// Active returns the part of the estimated power that the events cause.
func (f *Fit) Active(rates *Rates) (watts float64) {
	for i, joules := range f.Joules {
		watts += joules * rates[i]
	}
	return watts
}

// Layers returns the number of layers, fitted or not.
func (m *Model) Layers() int { return len(m.layers) }

// Fits returns how many times a layer was fitted.
func (m *Model) Fits() int { return m.fits }

// Observe adds a sample. A layer is fitted when it has Fewest samples, and again whenever the error
// of its estimate exceeds Threshold. Layers are never removed: the caller must limit their number.
func (m *Model) Observe(s Sample) {
	o := m.OrDefaults()
	if m.layers == nil {
		m.layers = map[int]*layer{}
	}
	l := m.layers[s.Layer]
	if l == nil {
		l = &layer{samples: make([]Sample, 0, o.History)}
		m.layers[s.Layer] = l
	}
	if len(l.samples) == o.History {
		l.samples = append(l.samples[:0], l.samples[1:]...)
	}
	l.samples = append(l.samples, s)
	if len(l.samples) < o.Fewest || l.fitted && math.Abs(s.Watts-l.fit.Watts(&s.Rates)) <= o.Threshold {
		return
	}
	if fit, ok := newFit(l.samples, o.MaxStatic); ok {
		l.fit, l.fitted = fit, true
		m.fits++
	}
}

// At returns the fit of the layer of a clock rate. If this layer is not fitted, At returns the fit
// of the nearest fitted layer. It returns nil if no layer is fitted. The fit is valid until the
// next Observe.
func (m *Model) At(clock int) *Fit {
	var nearest *layer
	distance := 0
	for at, l := range m.layers {
		d := max(at-clock, clock-at)
		if l.fitted && (nearest == nil || d < distance || d == distance && at < clock) {
			nearest, distance = l, d
		}
	}
	if nearest == nil {
		return nil
	}
	return &nearest.fit
}
