// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"math"

	"github.com/energyreceiver/energyreceiver/internal/power/model/calibrated"
)

// Estimates are the errors of estimated power in the second half of a series, in watts.
type Estimates struct {
	// Calibrated are those of a model of hardware events. Each estimate is made before the model sees the sample. Fits
	// is how many times the model was fitted in that half.
	Calibrated []float64
	Fits       int
	// Once are those of the model as it was in the middle of the series.
	Once []float64
	// Mean are those of the mean power of the last samples, as many as the model is fitted to.
	Mean []float64
	// Watts is the mean power.
	Watts float64
}

// Calibrate runs a calibrated model on a series with hardware events. The series has no clock rate, so the model has
// one layer.
func Calibrate(s *Series) (e Estimates) {
	var m calibrated.Model
	var once calibrated.Fit
	half := len(s.Samples) / 2
	for i, x := range s.Samples {
		if i == half {
			once, e.Fits = *m.At(0), m.Fits()
		}
		if i >= half {
			recent := 0.0
			for _, past := range s.Samples[i-calibrated.History : i] {
				recent += past.Watts / calibrated.History
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

// Explained returns the coefficient of determination (R²) of a straight line of the power of a series over a figure
// of its samples.
func Explained(s *Series, of func(*Sample) float64) float64 {
	n := float64(len(s.Samples))
	var mx, my, xx, xy, yy float64
	for i := range s.Samples {
		mx, my = mx+of(&s.Samples[i])/n, my+s.Samples[i].Watts/n
	}
	for i := range s.Samples {
		x, y := of(&s.Samples[i])-mx, s.Samples[i].Watts-my
		xx, xy, yy = xx+x*x, xy+x*y, yy+y*y
	}
	return xy * xy / (xx * yy)
}
