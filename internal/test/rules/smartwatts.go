// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math"
	"slices"
)

// SmartWatts is the rule of SmartWatts (smartwatts-formula: handler/hwpc_report.py,
// model/power_model.py). On each socket and for each layer of 100 MHz it fits power as a sum of
// events with coefficients that are not negative, to the last 60 samples of a second. It fits again
// when the median error since the last fit, of 60 samples at most, is more than 2 W, with a
// constant once it has 60 samples, which must be below the TDP. A cgroup has the power that the
// model gives its events, and the constant in proportion: active and idle energy are one. The
// events are cycles and CPU time of the simulation. What SmartWatts also counts, instructions and
// cache misses, the lab does not have.
type SmartWatts struct {
	Machine Machine

	layers map[layer]*history
}

// layer is a model: of a socket, its package or its DRAM, at a clock rate in 100 MHz.
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
	smartNominal = 30  // 100 MHz, of the clock rate 1
)

type events [2]float64 // cycles and CPU time, per second

type history struct {
	samples []eventSample
	errors  []float64 // of the power of the last samples since it tried to fit, in W
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
			each[u] = events{on.Cycles / i.Seconds, on.CPU / i.Seconds}
			all[0], all[1] = all[0]+each[u][0], all[1]+each[u][1]
		}
		// The mean clock rate of the package, while it does not rest.
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

// observe returns the power of each user under the model as it was, and learns from the sample.
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

// last returns the newest values that are kept.
func last[T any](of []T) []T { return of[max(len(of)-smartHistory, 0):] }

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func (w events) of(e events) float64 { return w[0]*e[0] + w[1]*e[1] }

// fit finds the best coefficients that are not negative, with a constant if the history is full.
func (h *history) fit(tdp float64) {
	if len(h.samples) < smartFewest {
		return
	}
	constant := len(h.samples) == smartHistory
	best, found := math.Inf(1), false
	var weights events
	var base float64
	// With two events the candidates are few: both, either, none.
	for _, use := range [][2]bool{{true, true}, {true, false}, {false, true}, {false, false}} {
		w, b, ok := squares(h.samples, use, constant)
		if !ok || w[0] < 0 || w[1] < 0 {
			continue
		}
		off := 0.0
		for _, s := range h.samples {
			d := s.watts - w.of(s.events) - b
			off += d * d
		}
		if off < best*(1-1e-9) {
			best, found, weights, base = off, true, w, b
		}
	}
	if found && base >= 0 && base < tdp {
		h.fitted, h.weights, h.base = true, weights, base
	}
}

// squares solves least squares with some of the events. It reports false if they do not differ enough.
func squares(samples []eventSample, use [2]bool, constant bool) (w events, base float64, ok bool) {
	n := float64(len(samples))
	var mean events
	var watts float64
	if constant {
		for _, s := range samples {
			mean[0], mean[1], watts = mean[0]+s.events[0]/n, mean[1]+s.events[1]/n, watts+s.watts/n
		}
	}
	var xx, xy, yy, xp, yp float64
	for _, s := range samples {
		x, y, p := s.events[0]-mean[0], s.events[1]-mean[1], s.watts-watts
		xx, xy, yy, xp, yp = xx+x*x, xy+x*y, yy+y*y, xp+x*p, yp+y*p
	}
	switch use {
	case [2]bool{true, true}:
		det := xx*yy - xy*xy
		if det <= 1e-9*xx*yy {
			return w, 0, false
		}
		w = events{(xp*yy - yp*xy) / det, (yp*xx - xp*xy) / det}
	case [2]bool{true, false}:
		if xx == 0 {
			return w, 0, false
		}
		w[0] = xp / xx
	case [2]bool{false, true}:
		if yy == 0 {
			return w, 0, false
		}
		w[1] = yp / yy
	}
	return w, watts - w.of(mean), true
}
