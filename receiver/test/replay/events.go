// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"math"

	"github.com/energyreceiver/energyreceiver/internal/usage/weigh/calibrated"
)

// Estimates are the errors of estimated power in the second half of a series, in watts.
type Estimates struct {
	// Calibrated holds the errors of a model of hardware events. Each estimate is made before the
	// model observes the sample. Fits is the number of fits of the model in that half.
	Calibrated []float64
	Fits       int
	// Once holds the errors of the model as fitted at the middle of the series.
	Once []float64
	// Mean holds the errors of the mean power of the last samples, as many as the model is fitted
	// to.
	Mean []float64
	// Watts is the mean power.
	Watts float64
}

// Calibrate runs a calibrated model on a series with hardware events. The model has one layer,
// because the series has no clock rate.
func Calibrate(s *Series) (e Estimates) {
	var m calibrated.Model
	var once calibrated.Fit
	history := m.OrDefaults().History
	half := len(s.Samples) / 2
	for i, x := range s.Samples {
		if i == half {
			once, e.Fits = *m.At(0), m.Fits()
		}
		if i >= half {
			recent := 0.0
			for _, past := range s.Samples[i-history : i] {
				recent += past.Watts / float64(history)
			}
			e.Calibrated = append(e.Calibrated, math.Abs(m.At(0).Watts(&x.Events)-x.Watts))
			e.Once = append(e.Once, math.Abs(once.Watts(&x.Events)-x.Watts))
			e.Mean = append(e.Mean, math.Abs(recent-x.Watts))
			e.Watts += x.Watts / float64(len(s.Samples)-half)
		}
		m.Observe(calibrated.Sample{Rates: x.Events, Watts: x.Watts})
	}
	e.Fits = m.Fits() - e.Fits
	return e
}

// Explained returns the coefficient of determination (R²) of a straight line of the power of a
// series over a figure of its samples.
func Explained(s *Series, of func(*Sample) float64) float64 {
	var l line
	for i := range s.Samples {
		l.add(of(&s.Samples[i]), s.Samples[i].Watts)
	}
	return l.explained()
}

// line is the least-squares line through points.
type line struct{ n, x, y, xx, xy, yy float64 } // sums

func (l *line) add(x, y float64) {
	l.n, l.x, l.y, l.xx, l.xy, l.yy = l.n+1, l.x+x, l.y+y, l.xx+x*x, l.xy+x*y, l.yy+y*y
}

// at returns the y of the line at x. Negative slopes count as 0.
func (l *line) at(x float64) float64 {
	slope := max(0, (l.n*l.xy-l.x*l.y)/(l.n*l.xx-l.x*l.x))
	return l.y/l.n + slope*(x-l.x/l.n)
}

// explained returns R².
func (l *line) explained() float64 {
	covariance := l.n*l.xy - l.x*l.y
	return covariance * covariance / ((l.n*l.xx - l.x*l.x) * (l.n*l.yy - l.y*l.y))
}
