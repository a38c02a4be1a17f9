// SPDX-License-Identifier: Apache-2.0

package calibrated

import "math"

// penalty is the penalty of the elastic net: one half applies to the sum of the coefficients, the
// other to the sum of their squares. Coefficients are in watts for each standard deviation of an
// event.
const penalty = 0.01

// Coordinate descent ends when no coefficient changes by more than precision, in watts.
const (
	precision = 1e-6
	maxPasses = 1000
)

// newFit fits an elastic net to samples. Its coefficients are not negative, and its static power is
// from 0 to maxStatic. newFit returns false if the power does not depend on any event.
func newFit(samples []Sample, maxStatic float64) (Fit, bool) {
	center := meanOf(samples)
	net := newNet(samples, &center)
	coefficients := net.solve()
	static := net.static(&coefficients)
	if bound := min(max(static, 0), maxStatic); bound != static {
		net = newNet(samples, &Sample{Watts: bound})
		coefficients, static = net.solve(), bound
	}
	f := Fit{Static: static}
	for i, c := range coefficients {
		f.Joules[i] = c / net.scale[i]
	}
	return f, f.Joules != Rates{}
}

// net holds the moments of samples. Events are divided by their scale.
type net struct {
	watts              float64 // power at the center
	mean, scale, cross Rates   // mean holds the rates at the center
	gram               [len(Rates{})]Rates
}

func meanOf(samples []Sample) (mean Sample) {
	n := float64(len(samples))
	for i := range samples {
		mean.Watts += samples[i].Watts / n
		for k, rate := range samples[i].Rates {
			mean.Rates[k] += rate / n
		}
	}
	return mean
}

// newNet computes the moments around center. If center has no events, the static power of the fit is
// the power of center.
func newNet(samples []Sample, center *Sample) net {
	m := net{watts: center.Watts, mean: center.Rates}
	n := float64(len(samples))
	for k := range m.scale {
		for i := range samples {
			d := samples[i].Rates[k] - m.mean[k]
			m.scale[k] += d * d / n
		}
		if m.scale[k] = math.Sqrt(m.scale[k]); m.scale[k] <= 1e-9*m.mean[k] {
			m.scale[k] = math.Inf(1) // the event does not vary
		}
	}
	for i := range samples {
		var x Rates
		for k, rate := range samples[i].Rates {
			x[k] = (rate - m.mean[k]) / m.scale[k]
		}
		for k := range x {
			m.cross[k] += x[k] * (samples[i].Watts - m.watts) / n
			for j := range x {
				m.gram[k][j] += x[k] * x[j] / n
			}
		}
	}
	return m
}

// solve returns the coefficients by coordinate descent.
func (m *net) solve() (c Rates) {
	for range maxPasses {
		change := 0.0
		for k := range c {
			rest := m.cross[k]
			for j := range c {
				if j != k {
					rest -= m.gram[k][j] * c[j]
				}
			}
			next := max(0, rest-penalty/2) / (m.gram[k][k] + penalty/2)
			change = max(change, math.Abs(next-c[k]))
			c[k] = next
		}
		if change <= precision {
			break
		}
	}
	return c
}

// static returns the power without any event.
func (m *net) static(coefficients *Rates) float64 {
	watts := m.watts
	for k, c := range coefficients {
		watts -= c * m.mean[k] / m.scale[k]
	}
	return watts
}
