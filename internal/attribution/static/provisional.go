// SPDX-License-Identifier: Apache-2.0

package static

import "math"

const (
	// background is the utilization of an idle machine.
	background = 0.01
	// shapeDeviation is the standard deviation of measured machines from loadPart at full load.
	shapeDeviation = 0.5
	// sampleDeviation is the standard deviation of the power of a single sample, relative to the
	// power: power and utilization may refer to different moments.
	sampleDeviation = 0.1
	// leastRise is the minimum difference of loadPart between two bins that determine a slope.
	leastRise = 0.05
)

// loadPart returns the part of the power between idle and full load that typical machines draw at a
// utilization.
func loadPart(utilization float64) float64 { return 1.5 * utilization / (1 + 0.5*utilization) }

// provisional returns the estimate that is used until there are enough samples for the curve. It is
// the mean of two estimates, weighted by precision. The first applies the prior to the samples with
// the lowest utilization. The second is the line through the samples with the lowest and the
// highest utilization. On an idle machine, the mean is the measured power.
func (c *curve) provisional() estimate {
	low, high, least := c.extremes()
	if low == nil {
		return estimate{standardError: -1}
	}
	watts, deviation := c.prior.idle(low.p/low.n, low.u/low.n)
	if line, off, ok := idleOnLine(low, high); ok {
		watts, deviation = combine(watts, deviation, line, off)
	}
	watts = min(max(watts, 0), least)
	few := sampleDeviation * watts / math.Sqrt(low.n) // both estimates depend on these samples
	return estimate{
		watts: watts, standardError: math.Hypot(math.Hypot(deviation, few), c.meter.drift()*least), usable: true, provisional: true,
	}
}

// extremes returns the bins with the lowest and the highest utilization, or nil without bins, and
// the lowest power of all bins.
func (c *curve) extremes() (low, high *curveBin, least float64) {
	least = math.Inf(1)
	for i := range c.bins {
		b := &c.bins[i]
		if b.n == 0 {
			continue
		}
		if low == nil {
			low = b
		}
		high = b
		least = min(least, b.p/b.n)
	}
	return low, high, least
}

// idleOnLine returns the power at a utilization of 0 on the line through two bins, and its standard
// deviation.
func idleOnLine(low, high *curveBin) (idle, deviation float64, ok bool) {
	part := loadPart(low.u / low.n)
	rise := loadPart(high.u/high.n) - part
	if rise < leastRise {
		return 0, 0, false
	}
	from, to := low.p/low.n, high.p/high.n
	slope := (to - from) / rise
	few := sampleDeviation * (from/low.n + to/high.n) / rise
	return from - slope*part, math.Hypot(slope*shapeDeviation*math.Sqrt(part), few*part), true
}

// combine returns the mean of two independent estimates, weighted by their precision, and its
// standard deviation.
func combine(a, deviationA, b, deviationB float64) (mean, deviation float64) {
	va, vb := deviationA*deviationA, deviationB*deviationB
	if va+vb == 0 {
		return (a + b) / 2, 0
	}
	return (a*vb + b*va) / (va + vb), math.Sqrt(va * vb / (va + vb))
}
