// SPDX-License-Identifier: Apache-2.0

// Package calibrated estimates the power of a zone from hardware events. The model is linear, has one layer for each
// clock rate, is fitted to the zone's own meter, and is fitted again when its estimate is off. The method is that of
// SmartWatts: G. Fieni, R. Rouvoy and L. Seinturier, "SmartWatts: Self-Calibrating Software-Defined Power Meter for
// Containers", CCGRID 2020.
package calibrated

import (
	"cmp"
	"math"
)

// Rates are the rates of the events that a model is fitted to, per second: cycles, instructions and cache misses.
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
	// MaxStatic is the highest static power in watts. SmartWatts takes the TDP. The default is no
	// limit: a limit below the real static power is an error of each estimate.
	MaxStatic float64
}

// OrDefaults returns the options with defaults in place of zero fields.
func (o Options) OrDefaults() Options {
	return Options{cmp.Or(o.Fewest, 10), cmp.Or(o.History, 60), cmp.Or(o.Threshold, 2), cmp.Or(o.MaxStatic, math.Inf(1))}
}

// Sample is the average power of a zone over an interval, and what was counted in it.
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
	samples []Sample // the last ones, the oldest first
	fit     Fit
	fitted  bool
}

// Fit is a fitted layer: power is Static plus the sum of the rates of the events times Joules.
type Fit struct {
	// Static is the power in watts without any event, from 0 to Options.MaxStatic.
	Static float64
	// Joules is the energy of one event of each kind. None is negative.
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

// Observe adds a sample. A layer is fitted once it has Fewest samples, and again whenever its estimate is off by more
// than Threshold. A layer is never removed: the caller bounds their number.
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

// At returns the fit of the layer of a clock rate, or else of the nearest layer that is fitted. It returns nil if no
// layer is fitted. The fit is valid until the next Observe.
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
