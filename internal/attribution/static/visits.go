// SPDX-License-Identifier: Apache-2.0

package static

import "math"

// visits measures how the power at rest differs between visits to rest, by the difference of each
// visit's mean power from the power of earlier visits. The samples of one visit are not
// independent: heat, fans and background programs change more slowly.
type visits struct {
	weight    float64 // of the samples of the current visit
	compared  float64 // of those that could be compared with earlier visits
	off       float64 // weighted sum of the differences of their power from the power of earlier visits
	watts     float64 // power of earlier visits, for the last sample
	scatter   float64 // variance of a sample, in W²
	count     float64 // of visits, up to visitMemory
	square    float64 // mean square of the visits' differences beyond the scatter of samples, in W²
	candidate float64 // difference of the last visit in W if that was large enough for a step, else 0
}

const (
	// visitLength is the largest weight of the samples of a visit: a longer stay at rest is several
	// visits. Visits that are shorter than leastVisit are joined to the next.
	visitLength, leastVisit = 60, 10
	// visitMemory is the number of visits that the mean square remembers.
	visitMemory = 16
	// leastStep is the smallest step, as a part of the power at rest. Heat after load adds nearly
	// as much.
	leastStep = 0.003
)

// compare adds the difference of a sample from earlier visits, whose mean power is watts.
func (v *visits) compare(weight, off, watts, scatter float64) {
	v.compared += weight
	v.off += weight * off
	v.watts, v.scatter = watts, scatter
}

// ends reports whether the current visit ends with a sample, at rest or not.
func (v *visits) ends(resting bool) bool {
	return v.weight >= visitLength || !resting && v.weight >= leastVisit
}

// end ends the current visit. It returns the height of a step of the power at rest in W, or 0 if
// there is none. After a step, two visits in a row differ from earlier ones in the same direction,
// by more than the scatter of samples explains.
func (v *visits) end() (step float64) {
	sum, compared := v.off, v.compared
	v.weight, v.compared, v.off = 0, 0, 0
	if compared < leastVisit {
		return 0
	}
	off, noise := sum/compared, v.scatter/compared
	before := v.candidate
	v.candidate = 0
	large := math.Abs(off) > max(leastStep*v.watts, 4*math.Sqrt(noise))
	switch {
	case large && off*before > 0:
		return (before + off) / 2
	case large:
		v.candidate = off
	default:
		v.include(off*off - noise)
	}
	if before != 0 {
		v.include(before * before)
	}
	return 0
}

// include adds the square of a visit's difference to the mean square.
func (v *visits) include(square float64) {
	v.count = min(v.count+1, visitMemory)
	v.square += (square - v.square) / v.count
}

// variance returns the variance of the power at rest between visits, in W².
func (v *visits) variance() float64 { return max(v.square, 0) }

// visit compares a sample at rest with the samples of earlier visits in the same bin.
func (c *curve) visit(weight float64, s sample, b *curveBin) {
	resting := s.utilization <= c.lowest+together
	c.absent += s.seconds
	if resting {
		c.absent = 0
		c.visits.weight += weight
		if watts, n := b.before(); n >= fewestInBin {
			c.visits.compare(weight, s.watts-watts, watts, b.scatter())
		}
		b.recentN += weight
		b.recentP += weight * s.watts
	}
	if c.visits.ends(resting) {
		c.endVisit()
	}
}

// endVisit ends a visit, and follows a step if prompt counters measure the power of a machine that
// rests. The power under load also changes with the workload.
func (c *curve) endVisit() {
	step := c.visits.end()
	switch {
	case step == 0:
	case c.meter == promptCounter && c.lowest <= nearRest:
		c.move(step)
	default:
		c.visits.include(step * step)
	}
	if c.visits.candidate == 0 {
		for i := range c.bins {
			c.bins[i].recentN, c.bins[i].recentP = 0, 0
		}
	}
}

// move adds a step of the power at rest to all samples before the visits that showed it.
func (c *curve) move(step float64) {
	for i := range c.bins {
		b := &c.bins[i]
		if b.n == 0 {
			continue
		}
		n := b.n - b.recentN
		b.pp += step * (2*(b.p-b.recentP) + step*n)
		b.up += step * n * b.u / b.n
		if b.p += step * n; b.p < 0 || b.up < 0 || b.pp < 0 {
			*b = curveBin{}
		}
	}
	c.now.stepped = true
}
