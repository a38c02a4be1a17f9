// SPDX-License-Identifier: Apache-2.0

package static

import "math"

// NewCurve returns a model that learns the power over utilization. Its static power is that at a utilization of 0.
func NewCurve() *Model {
	return newModel(func() estimator { return new(curve) })
}

// curve learns the power over utilization, and takes for static power what it is at a utilization of 0: where the
// node was never that idle, what the lowest utilizations point to.
//
// Samples are gathered by utilization. Several models of the power's shape are held against them, from nearly straight
// to strongly bent, and the static power is the mean of what they say, each weighted by how well it fits. What they
// disagree in and what the noise leaves open is how uncertain it is.
type curve struct {
	bins    [curveBins]curveBin
	seconds float64 // since the bins last faded
	watts   float64
	ok      bool
	pending int // samples since the last estimate
}

// curveBin is the weighted sums of the samples of a range of utilizations.
type curveBin struct {
	n, u, p, uu, up, pp float64
}

const (
	curveBins = 51
	// curveMemory is how many samples a bin remembers: older ones fade as newer ones of the same utilization come.
	curveMemory = 1000
	// fading is after how many seconds all bins fade, also those of utilizations that no longer come, and curveHalfLife
	// after how many they are half.
	fading        = 60 * 60
	curveHalfLife = 2 * day
	// fewestInBin is how many samples a bin needs to be used.
	fewestInBin = 5
)

// curveBinOf is finest near 0, where the static power is read from.
func curveBinOf(u float64) int {
	switch {
	case u < 0.05:
		return int(u / 0.0025)
	case u < 0.2:
		return 20 + int((u-0.05)/0.01)
	default:
		return min(35+int((u-0.2)/0.05), curveBins-1)
	}
}

func (b *curveBin) add(u, p float64) {
	if b.n >= curveMemory {
		b.fade(1 - 1.0/curveMemory)
	}
	b.n++
	b.u += u
	b.p += p
	b.uu += u * u
	b.up += u * p
	b.pp += p * p
}

// fade makes a bin's samples count for less.
func (b *curveBin) fade(keep float64) {
	b.n, b.u, b.p, b.uu, b.up, b.pp = b.n*keep, b.u*keep, b.p*keep, b.uu*keep, b.up*keep, b.pp*keep
}

// plausible reports whether the sums are possible for so many samples, except for rounding.
func (b *curveBin) plausible() bool {
	n := b.n * (1 + 1e-6)
	return plausible(curveMemory+1, b.n) && plausible(n, b.u, b.uu) && plausible(n*maxWatts, b.p, b.up) &&
		plausible(n*maxWatts*maxWatts, b.pp)
}

// scatter is the variance of the power of the samples around the straight line through them, in W².
func (b *curveBin) scatter() float64 {
	meanU, meanP := b.u/b.n, b.p/b.n
	suu := b.uu - b.n*meanU*meanU
	squares := b.pp - b.n*meanP*meanP
	if suu > 1e-12*b.n { // else all of them are of the same utilization
		sup := b.up - b.n*meanU*meanP
		squares -= sup * sup / suu
	}
	return max(squares, 0) / (b.n - 2)
}

func (c *curve) observe(s sample) {
	if c.seconds += s.seconds; c.seconds >= fading {
		keep := math.Exp2(-c.seconds / curveHalfLife)
		c.seconds = 0
		for i := range c.bins {
			c.bins[i].fade(keep)
		}
	}
	c.bins[curveBinOf(s.utilization)].add(s.utilization, s.watts)
	if c.pending++; c.pending >= reestimate {
		c.fit()
	}
}

func (c *curve) estimate() (watts float64, ok bool) { return c.watts, c.ok }

// model is a shape that the power may have: static + slope * utilization^exponent, where the slope changes at random
// along the way.
type model struct {
	exponent float64
	// bending is how much the slope changes: the standard deviation of the difference between both ends of the samples,
	// relative to its mean.
	bending float64
	// odds is how likely the model is before anything was seen, relative to others.
	odds float64
}

// models are lines that bend a little or a lot, wherever and however often, and power laws, which tell most about what
// is below the lowest utilization, and fit only where the power is of that very shape.
var models = [...]model{
	{1, 0.2, 10}, {1, 0.6, 6}, {1, 2, 3}, {1, 6, 1},
	{0.5, 0.03, 1}, {0.6, 0.03, 1}, {0.75, 0.03, 1}, {0.85, 0.03, 1}, {1.25, 0.03, 1}, {1.5, 0.03, 1}, {2, 0.03, 1},
}

const (
	// reach is how far above the lowest utilization samples tell something about 0.
	reach = 0.5
	// exact is a part of the power that a bin's mean may be off by however many samples it has, as no machine is exactly
	// of any shape.
	exact = 0.0003
	// fewestBins and fewestSamples are how many there must be to say anything.
	fewestBins, fewestSamples = 2, 60
	// tooUncertain is above what standard deviation the static power is not known, as a part of what a load of 10 % adds.
	// Up to here it is nearly always better than the split by utilization.
	tooUncertain = 0.2
	// negligible is a standard deviation as a part of the static power that never matters.
	negligible = 0.005
	// tooFar is the lowest utilization from which the power at 0 cannot be extrapolated.
	tooFar = 0.3
	// reestimate is after how many samples the estimate is made anew.
	reestimate = 20
)

// level is the mean power of the samples of a range of utilizations.
type level struct {
	utilization, watts float64
	variance           float64 // of watts
}

// fit estimates the static power anew.
func (c *curve) fit() {
	c.pending = 0
	c.ok = false
	var known [curveBins]level
	bins, samples := 0, 0.0
	for i := range c.bins {
		b := &c.bins[i]
		if b.n < fewestInBin {
			continue
		}
		u, p := b.u/b.n, b.p/b.n
		if bins >= fewestBins && u > known[0].utilization+reach {
			break
		}
		off := exact * p
		known[bins] = level{u, p, b.scatter()/b.n + off*off}
		bins++
		samples += b.n
	}
	levels := known[:bins]
	if bins < fewestBins || samples < fewestSamples || levels[0].utilization > tooFar {
		return
	}
	var at0, variance, logLikelihood [len(models)]float64
	best := math.Inf(-1)
	for i := range models {
		at0[i], variance[i], logLikelihood[i] = models[i].extrapolate(levels)
		best = max(best, logLikelihood[i])
	}
	var weights, mean, square float64
	for i := range models {
		w := models[i].odds * math.Exp(logLikelihood[i]-best)
		weights += w
		mean += w * at0[i]
		square += w * (at0[i]*at0[i] + variance[i])
	}
	mean /= weights
	uncertain := math.Sqrt(max(square/weights-mean*mean, 0))
	c.watts = mean
	c.ok = uncertain <= max(tooUncertain*added(levels, mean), negligible*mean)
}

// extrapolate walks along the levels from the highest utilization to the lowest and on to 0, as a Kalman filter: on the
// way it keeps what power and slope the levels that it passed make most likely, and how uncertain both are. It returns
// the power at 0 in W, its variance, and how likely the levels are under this model, as a logarithm but for a constant.
func (m *model) extrapolate(levels []level) (at0, variance, logLikelihood float64) {
	first, last := &levels[0], &levels[len(levels)-1]
	x := math.Pow(last.utilization, m.exponent)
	span := x - math.Pow(first.utilization, m.exponent)
	typical := max(math.Abs(last.watts-first.watts), 1e-3*first.watts, 1e-9) / span
	change := m.bending * m.bending * typical * typical / span // of the slope's variance along x
	watts, slope := last.watts, 0.0
	ww, ws, ss := last.variance, 0.0, 100*typical*typical // the variances of both, and their covariance
	walk := func(to float64) {
		d := x - to
		watts -= slope * d
		ww += d * (d*ss - 2*ws + change*d*d/3)
		ws -= d * (ss + change*d/2)
		ss += change * d
		x = to
	}
	for i := len(levels) - 2; i >= 0; i-- {
		l := &levels[i]
		walk(math.Pow(l.utilization, m.exponent))
		off, expected := l.watts-watts, ww+l.variance
		logLikelihood -= (math.Log(expected) + off*off/expected) / 2
		gainW, gainS := ww/expected, ws/expected
		watts += gainW * off
		slope += gainS * off
		ss -= gainS * ws
		ws -= gainS * ww
		ww -= gainW * ww
	}
	walk(0)
	return max(min(watts, first.watts), 0), ww, logLikelihood
}

// added is what a load of 10 % adds to the static power, in W, by the levels.
func added(levels []level, static float64) float64 {
	below := level{watts: static}
	for i := range levels {
		if levels[i].utilization >= 0.1 || i == len(levels)-1 {
			above := &levels[i]
			return below.watts - static + (above.watts-below.watts)*(0.1-below.utilization)/(above.utilization-below.utilization)
		}
		below = levels[i]
	}
	return 0
}

// spread is the deviation of the samples around the line through those of about the same utilization.
func (c *curve) spread() float64 {
	var n, squares float64
	for i := range c.bins {
		if b := &c.bins[i]; b.n >= fewestInBin {
			squares += b.n * b.scatter()
			n += b.n
		}
	}
	if n == 0 {
		return -1
	}
	return math.Sqrt(squares / n)
}

func (c *curve) state() []float64 {
	s := make([]float64, 0, 6*curveBins)
	for i := range c.bins {
		b := &c.bins[i]
		s = append(s, b.n, b.u, b.p, b.uu, b.up, b.pp)
	}
	return s
}

func (c *curve) restore(s []float64) bool {
	if len(s) != 6*curveBins {
		return false
	}
	for i := range c.bins {
		v := s[6*i:]
		c.bins[i] = curveBin{v[0], v[1], v[2], v[3], v[4], v[5]}
		if !c.bins[i].plausible() {
			return false
		}
	}
	c.fit()
	return true
}
