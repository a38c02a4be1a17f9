// SPDX-License-Identifier: Apache-2.0

package static

import (
	"math"
	"time"
)

// NewCurve returns a model that fits the power over utilization. Its static power is the power at a
// utilization of 0.
func NewCurve() *Model { return NewCurveWithPrior(MeasuredPrior()) }

// NewCurveWithPrior is NewCurve with another prior for provisional estimates.
func NewCurveWithPrior(prior Prior) *Model {
	m := newModel(nil)
	m.standIn = prior.active
	m.newEstimator = func() estimator { return &curve{prior: prior, meter: m.meter} }
	return m
}

// meter is the kind of the meter that reads the zones of a model.
type meter uint8

const (
	otherMeter meter = iota
	promptCounter
	powerSensor
)

// drift returns the standard deviation of the static power from one day to the next, relative to
// the static power. RAPL of an idle machine drifted by 0.08 % in a night and by 1.6 % in ten
// months. Wall meters of five idle machines differed by up to 10 % after different workloads.
func (m meter) drift() float64 {
	if m == powerSensor {
		return 0.03
	}
	return 0.0005
}

// shortSample is the shortest sample of TakeShortSamples. In a tenth of a second, the error of
// RAPL's counter, which is updated every millisecond, is at most 1 %. The scheduler updates the CPU
// time of a running thread every 1 to 10 ms. The error of this delay has the opposite sign in the
// next window, and is 0 on an idle machine.
const shortSample = 100 * time.Millisecond

// curve fits the power over utilization. The static power is the power at a utilization of 0. If
// the node was never that idle, it is extrapolated from the lowest utilizations.
//
// Samples are gathered by utilization. Several models of the curve's shape, from nearly straight to
// strongly bent, are fitted to them. The static power is the mean of their results, weighted by the
// likelihood of each model. Its uncertainty has three parts: the differences between the models,
// the noise of the samples, and the range of utilizations below the lowest sample.
type curve struct {
	bins    [curveBins]curveBin
	seconds float64 // seconds since the bins last faded
	now     estimate
	pending float64 // weight of the samples since the last estimate
	prior   Prior
	meter   meter
	visits  visits
	lowest  float64 // lowest utilization of the last estimate
	absent  float64 // seconds since the machine was at rest, or at the lowest utilization
}

// curveBin has the weighted sums of the samples in a range of utilizations. Samples of at least a
// second have the weight 1. The weight of shorter samples is their length in seconds, because the
// load in consecutive tenths of a second is similar.
type curveBin struct {
	n, u, p, uu, up, pp float64
	recentN, recentP    float64 // sums of the current visit and of a candidate for a step
}

const (
	curveBins = 51
	// curveMemory is the maximum weight of a bin's samples. Older samples fade when newer samples
	// are added.
	curveMemory = 1000
	// fading is the number of seconds after which all bins fade, including bins of utilizations
	// that no longer occur. curveHalfLife is the number of seconds after which they have faded to
	// half.
	fading        = 60 * 60
	curveHalfLife = 2 * day
	// fewestInBin is the minimum weight of a level, which is one bin or several bins. together is
	// the maximum difference between the utilizations of the bins of a level. Levels above the
	// lowest must have a weight of more than tooFewAbove, because the load may have changed during
	// some of their samples. Utilization and power of such samples refer to different times.
	fewestInBin = 5
	tooFewAbove = 10
	together    = 0.02
)

// curveBinOf returns the index of the bin of a utilization. Bins are narrowest near 0, which the
// static power depends on most.
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

func (b *curveBin) add(weight, u, p float64) {
	if b.n >= curveMemory {
		b.fade(1 - weight/curveMemory)
	}
	b.n += weight
	b.u += weight * u
	b.p += weight * p
	b.uu += weight * u * u
	b.up += weight * u * p
	b.pp += weight * p * p
}

// fade reduces the weight of a bin's samples to the part keep.
func (b *curveBin) fade(keep float64) {
	b.n, b.u, b.p, b.uu, b.up, b.pp = b.n*keep, b.u*keep, b.p*keep, b.uu*keep, b.up*keep, b.pp*keep
	b.recentN, b.recentP = b.recentN*keep, b.recentP*keep
}

// plausible reports whether the sums are possible for the weight of the samples, except for
// rounding.
func (b *curveBin) plausible() bool {
	n := b.n * (1 + 1e-6)
	return plausible(curveMemory+1, b.n) && plausible(n, b.u, b.uu) && plausible(n*maxWatts, b.p, b.up) &&
		plausible(n*maxWatts*maxWatts, b.pp)
}

// before returns the mean power of the samples before the current visit, and their weight.
func (b *curveBin) before() (watts, weight float64) {
	return (b.p - b.recentP) / (b.n - b.recentN), b.n - b.recentN
}

// scatter is the variance of the power of the samples around the straight line through them, in W².
func (b *curveBin) scatter() float64 {
	meanU, meanP := b.u/b.n, b.p/b.n
	suu := b.uu - b.n*meanU*meanU
	squares := b.pp - b.n*meanP*meanP
	if suu > 1e-12*b.n { // otherwise all samples have the same utilization
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
			b := &c.bins[i]
			was := b.n
			if b.fade(keep); was >= fewestInBin && b.n < fewestInBin {
				*b = curveBin{} // the faded rest of many old samples, not a few new samples
			}
		}
	}
	c.now.stepped = false
	weight := min(s.seconds, 1)
	b := &c.bins[curveBinOf(s.utilization)]
	c.visit(weight, s, b)
	b.add(weight, s.utilization, s.watts)
	if c.pending += weight; c.pending >= reestimate || c.now.stepped {
		c.fit()
	} else if !c.now.usable || c.now.provisional {
		c.now = c.provisional()
	}
}

// pass records a time without samples.
func (c *curve) pass(seconds float64) { c.absent += seconds }

func (c *curve) estimate() estimate { return c.now }

// model is a shape of the curve: static + slope * utilization^exponent + amount * bow(utilization).
// The slope changes randomly with the utilization.
type model struct {
	exponent float64
	// bending is the change of the slope: the standard deviation of the difference between the
	// slopes at both ends of the samples, relative to the mean slope.
	bending float64
	// bow is a curve whose amount is fitted to the samples, or nil. amounts is the standard
	// deviation of the amount in the prior, relative to the mean slope.
	bow     func(utilization float64) float64
	amounts float64
	// odds is the prior probability of the model, relative to other models.
	odds float64
}

// models are lines that bend a little or a lot at any utilization, lines with a bow (knees of
// several widths, and a parabola), and power laws. A bow extends below the lowest utilization.
// Models with a bow and power laws predict the power below the lowest utilization best, but fit
// only if the power has exactly their shape.
var models = [...]model{
	{1, 0.2, nil, 0, 10}, {1, 0.6, nil, 0, 6}, {1, 2, nil, 0, 3}, {1, 6, nil, 0, 1},
	{1, 0.03, narrowKnee, 0.06, 1}, {1, 0.1, narrowKnee, 0.06, 1},
	{1, 0.03, knee, 0.12, 1}, {1, 0.1, knee, 0.12, 1},
	{1, 0.03, wideKnee, 0.24, 1}, {1, 0.1, wideKnee, 0.24, 1},
	{1, 0.03, parabola, 2, 1},
	{0.5, 0.03, nil, 0, 1}, {0.6, 0.03, nil, 0, 1}, {0.75, 0.03, nil, 0, 1}, {0.85, 0.03, nil, 0, 1},
	{1.25, 0.03, nil, 0, 1}, {1.5, 0.03, nil, 0, 1}, {2, 0.03, nil, 0, 1},
}

func narrowKnee(u float64) float64 { return -math.Expm1(-u / 0.03) }
func knee(u float64) float64       { return -math.Expm1(-u / 0.06) }
func wideKnee(u float64) float64   { return -math.Expm1(-u / 0.12) }
func parabola(u float64) float64   { return u * u }

const (
	// reach is the range of utilizations above the lowest that is used to extrapolate to 0.
	reach = 0.5
	// exact is the minimum error of a level, relative to its power, for any number of samples,
	// because no machine has exactly the shape of a model.
	exact = 0.0003
	// fewestBins and fewestSamples are the minimum numbers for an estimate.
	fewestBins, fewestSamples = 2, 60
	// tooUncertain is the maximum uncertainty of an estimate that is used, relative to the power
	// that a load of 10 % adds. Up to this uncertainty, the estimate is nearly always better than
	// the split by utilization.
	tooUncertain = 0.2
	// trainedError is the maximum standard error of a trained static power, relative to the same
	// power.
	trainedError = 0.1
	// negligible is a standard deviation, relative to the static power, that is always accepted.
	negligible = 0.005
	// nearRest is the maximum of the lowest utilization of a trained static power. From higher
	// utilizations, the shapes of measured machines do not predict the idle power of another
	// machine.
	nearRest = 0.025
	// lenience multiplies trainedError and nearRest while the static power is trained.
	lenience = 1.5
	// tooFar bounds the lowest utilization of the levels. If it is higher, there is no estimate.
	tooFar = 0.3
	// maxAbsence is the maximum of absent in a stored state, in s.
	maxAbsence = 1e10
	// reestimate is the weight of the samples between two estimates.
	reestimate = 30
)

// The models are similar and not independent, so their uncertainty exceeds the standard error in
// the range of the samples. Below the lowest utilization there are no samples. agreement is the
// ratio of the standard error to the uncertainty of the models. unseen is the standard error of the
// power between 0 and the lowest utilization, relative to that power, at a lowest utilization of
// unseenAt. It is proportional to the square of the lowest utilization. With both, the true static
// power of 36 curves is within the standard error in two of three cases
// (TestTheTruthIsWithinTheStandardErrorInMoreThanTwoOfThreeCases).
const (
	agreement = 0.45
	unseen    = 0.3
	unseenAt  = 0.05
)

// If the curve bends near idle, a shape that fits higher loads has an error. The difference between
// the static power from all levels and from the nearest levels is therefore added to the standard
// error. The nearest levels reach up to nearby times the lowest utilization. Fewer than fewestNear
// levels are not used.
const (
	nearby     = 5
	fewestNear = 4
)

// level is the mean power of the samples in a range of utilizations.
type level struct {
	utilization, watts float64
	variance           float64 // variance of watts
}

// fit updates the estimate of the static power.
func (c *curve) fit() {
	stepped := c.now.stepped
	c.pending = 0
	var known [curveBins]level
	levels := c.levels(&known)
	if levels == nil {
		c.now = c.provisional()
		return
	}
	watts, uncertain := extrapolate(levels)
	lowest := &levels[0]
	far := lowest.utilization / unseenAt
	standardError := math.Hypot(agreement*uncertain, unseen*far*far*(lowest.watts-watts))
	if near := nearest(levels); len(near) >= fewestNear && len(near) < len(levels) {
		alone, _ := extrapolate(near)
		standardError = math.Hypot(standardError, alone-watts)
	}
	c.lowest = lowest.utilization
	drift := c.meter.drift() * watts * math.Sqrt(1+c.absent/day)
	standardError = math.Sqrt(standardError*standardError + drift*drift + c.visits.variance())
	ten, least, lenient := added(levels, watts), negligible*watts, 1.0
	if c.now.trained {
		lenient = lenience
	}
	c.now = estimate{
		watts: watts, standardError: standardError,
		usable:  uncertain <= max(tooUncertain*ten, least),
		trained: lowest.utilization <= lenient*nearRest && standardError <= max(lenient*trainedError*ten, least),
		stepped: stepped,
	}
	if c.now.trained = c.now.trained && c.now.usable && c.meter != powerSensor; !c.now.usable {
		c.now = c.provisional()
	}
}

// levels returns the levels from the lowest utilization up to reach above it, or nil if there are
// too few. Adjacent bins with too few samples are merged into one level.
func (c *curve) levels(known *[curveBins]level) []level {
	bins, samples := 0, 0.0
	var b curveBin
	from := 0.0
	for i := range c.bins {
		one := &c.bins[i]
		if b.n > 0 && one.n > 0 && one.u/one.n > from+together {
			b = curveBin{}
		}
		if b.n == 0 && one.n > 0 {
			from = one.u / one.n
		}
		if b.merge(one); b.n < fewestInBin || bins > 0 && b.n <= tooFewAbove {
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
		b = curveBin{}
	}
	if bins < fewestBins || samples < fewestSamples || known[0].utilization > tooFar {
		return nil
	}
	return known[:bins]
}

// nearest returns the levels up to nearby times the lowest utilization.
func nearest(levels []level) []level {
	i := 1
	for i < len(levels) && levels[i].utilization <= nearby*levels[0].utilization {
		i++
	}
	return levels[:i]
}

// merge adds another bin's samples.
func (b *curveBin) merge(o *curveBin) {
	b.n += o.n
	b.u += o.u
	b.p += o.p
	b.uu += o.uu
	b.up += o.up
	b.pp += o.pp
}

// extrapolate returns the mean static power of all models, and its standard deviation, in watts.
func extrapolate(levels []level) (watts, uncertain float64) {
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
	return mean, math.Sqrt(max(square/weights-mean*mean, 0))
}

// extrapolate is a Kalman filter from the level with the highest utilization to the level with the
// lowest, and on to 0. Its state is the most likely power, slope and amount of the bow, and their
// covariances. It returns the power at 0 in W, its variance, and the logarithm of the likelihood of
// the levels under this model, up to a constant.
func (m *model) extrapolate(levels []level) (at0, variance, logLikelihood float64) {
	first, last := &levels[0], &levels[len(levels)-1]
	x, height := m.along(last.utilization)
	lowest, _ := m.along(first.utilization)
	span := x - lowest
	typical := max(math.Abs(last.watts-first.watts), 1e-3*first.watts, 1e-9) / span
	change := m.bending * m.bending * typical * typical / span // increase of the slope's variance along x
	amounts := m.amounts * typical
	watts, slope, amount := last.watts, 0.0, 0.0
	// Their variances and covariances: w is the power, s the slope, a the amount.
	ww, ss, aa := last.variance, 100*typical*typical, amounts*amounts
	ws, wa, sa := 0.0, 0.0, 0.0
	walk := func(utilization float64) {
		to, level := m.along(utilization)
		d, h := x-to, height-level
		watts -= slope*d + amount*h
		ww += d*(d*ss-2*ws+change*d*d/3) + h*(h*aa-2*wa+2*d*sa)
		ws -= d*(ss+change*d/2) + h*sa
		wa -= d*sa + h*aa
		ss += change * d
		x, height = to, level
	}
	for i := len(levels) - 2; i >= 0; i-- {
		l := &levels[i]
		walk(l.utilization)
		off, expected := l.watts-watts, ww+l.variance
		logLikelihood -= (math.Log(expected) + off*off/expected) / 2
		gainW, gainS, gainA := ww/expected, ws/expected, wa/expected
		watts += gainW * off
		slope += gainS * off
		amount += gainA * off
		ss -= gainS * ws
		sa -= gainS * wa
		aa -= gainA * wa
		ws -= gainS * ww
		wa -= gainA * ww
		ww -= gainW * ww
	}
	walk(0)
	return max(min(watts, first.watts), 0), ww, logLikelihood
}

// along returns utilization^exponent and the bow's height.
func (m *model) along(utilization float64) (x, height float64) {
	if x = utilization; m.exponent != 1 {
		x = math.Pow(x, m.exponent)
	}
	if m.bow != nil {
		height = m.bow(utilization)
	}
	return x, height
}

// added returns the power in W that a load of 10 % adds to the static power, according to the
// levels.
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

func (c *curve) state() []float64 {
	s := make([]float64, 0, 6*curveBins+3)
	for i := range c.bins {
		b := &c.bins[i]
		s = append(s, b.n, b.u, b.p, b.uu, b.up, b.pp)
	}
	return append(s, c.visits.count, c.visits.variance(), c.absent)
}

// restore also accepts states of earlier versions, which lack the results of visits.
func (c *curve) restore(s []float64) bool {
	if len(s) != 6*curveBins && len(s) != 6*curveBins+3 {
		return false
	}
	for i := range c.bins {
		v := s[6*i:]
		c.bins[i] = curveBin{n: v[0], u: v[1], p: v[2], uu: v[3], up: v[4], pp: v[5]}
		if !c.bins[i].plausible() {
			return false
		}
	}
	if v := s[6*curveBins:]; len(v) > 0 {
		if !plausible(visitMemory, v[0]) || !plausible(maxWatts*maxWatts, v[1]) || !plausible(maxAbsence, v[2]) {
			return false
		}
		c.visits.count, c.visits.square, c.absent = v[0], v[1], v[2]
	}
	c.fit()
	return true
}
