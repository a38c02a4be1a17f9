// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math"
	"slices"
)

// SmartWatts is the rule of SmartWatts (smartwatts-formula: handler/hwpc_report.py,
// model/power_model.py). On each socket and for each layer of 100 MHz it fits power to a sum of
// events with non-negative coefficients, from the last 60 samples of one second. Once it has 60
// samples, the fit has a constant, which must be below the TDP. It fits again if the median error
// since the last fit, over at most 60 samples, exceeds 2 W. A cgroup gets the power of its events
// under the model, and the constant in proportion. The rule does not separate active and idle
// energy.
type SmartWatts struct {
	Machine Machine

	layers map[layer]*history
}

// layer identifies a model: a socket, its package or its DRAM, and a clock rate in 100 MHz.
type layer struct {
	socket int
	dram   bool
	clock  int
}

// The settings are the defaults of the formula's command line.
const (
	smartFewest  = 10  // samples of a first model
	smartHistory = 60  // samples
	smartError   = 2.0 // W
	smartNominal = 30  // 100 MHz, for a clock rate of 1
)

type events [4]float64 // cycles, CPU time, instructions and cache misses, per second

type history struct {
	samples []eventSample
	errors  []float64 // of the power of the last samples since the last attempt to fit, in W
	fitted  bool
	weights events // W per event
	base    float64
}

type eventSample struct {
	events events
	watts  float64
}

// Observe returns the energies of the users. The whole is all energy.
func (s *SmartWatts) Observe(i *Interval) Report {
	if s.layers == nil {
		s.layers = map[layer]*history{}
	}
	r := Report{Whole: i.Energy().Sum(), Parts: make([]Energy, len(i.Users))}
	for n, socket := range i.Sockets {
		var all events
		each := make([]events, len(i.Users))
		for u := range i.Users {
			on := &i.Users[u].On[n]
			for k, n := range [...]float64{on.Cycles, on.CPU, on.Instructions, on.Misses} {
				each[u][k] = n / i.Seconds
				all[k] += each[u][k]
			}
		}
		// The mean clock rate of the package while it is busy.
		clock := int(smartNominal * over(all[0], all[1]))
		share := func(dram bool, energy float64, add func(u int, joules float64)) {
			at := layer{n, dram, clock}
			h := s.layers[at]
			if h == nil {
				h = &history{}
				s.layers[at] = h
			}
			for u, watts := range h.observe(eventSample{all, energy / i.Seconds}, each, s.Machine.TDP/float64(len(i.Sockets))) {
				add(u, watts*i.Seconds)
			}
		}
		share(false, socket.Energy.Package, func(u int, joules float64) { r.Parts[u].Package += joules })
		share(true, socket.Energy.DRAM, func(u int, joules float64) { r.Parts[u].DRAM += joules })
	}
	return r
}

// observe returns the power of each user under the previous model, and adds the sample to it.
func (h *history) observe(all eventSample, each []events, tdp float64) []float64 {
	var watts []float64
	predicted := h.weights.of(all.events)
	if h.fitted {
		watts = make([]float64, len(each))
		for u, e := range each {
			own := h.weights.of(e)
			watts[u] = own + over(own, predicted)*h.base
		}
	}
	h.samples = last(append(h.samples, all))
	h.errors = last(append(h.errors, math.Abs(all.watts-predicted-h.base)))
	if !h.fitted || median(h.errors) > smartError {
		h.fit(tdp)
		h.errors = h.errors[:0]
	}
	return watts
}

// last returns the newest values, at most smartHistory.
func last[T any](of []T) []T { return of[max(len(of)-smartHistory, 0):] }

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func (w events) of(e events) (watts float64) {
	for k := range w {
		watts += w[k] * e[k]
	}
	return watts
}

// fit finds the best non-negative coefficients, with a constant if the history is full.
func (h *history) fit(tdp float64) {
	if len(h.samples) < smartFewest {
		return
	}
	var mean eventSample
	if len(h.samples) == smartHistory {
		mean = meanOf(h.samples)
	}
	weights := squares(h.samples, mean)
	if base := mean.watts - weights.of(mean.events); base >= 0 && base < tdp {
		h.fitted, h.weights, h.base = true, weights, base
	}
}

func meanOf(samples []eventSample) (mean eventSample) {
	for _, s := range samples {
		for k, n := range s.events {
			mean.events[k] += n / float64(len(samples))
		}
		mean.watts += s.watts / float64(len(samples))
	}
	return mean
}

// squares solves the least squares of the differences to a mean, by coordinate descent.
func squares(samples []eventSample, mean eventSample) (w events) {
	var gram [len(w)]events
	var cross, scale events
	for _, s := range samples {
		for k := range w {
			cross[k] += (s.events[k] - mean.events[k]) * (s.watts - mean.watts)
			for j := range w {
				gram[k][j] += (s.events[k] - mean.events[k]) * (s.events[j] - mean.events[j])
			}
		}
	}
	for k := range w {
		scale[k] = math.Sqrt(gram[k][k])
	}
	const passes, precision = 10_000, 1e-12
	for range passes {
		change := 0.0
		for k := range w {
			if scale[k] == 0 {
				continue
			}
			next := max(0, w[k]+(cross[k]-w.of(gram[k]))/gram[k][k])
			change = max(change, math.Abs(next-w[k])*scale[k])
			w[k] = next
		}
		if change <= precision*math.Abs(cross[0])/max(scale[0], 1e-300) {
			break
		}
	}
	return w
}
