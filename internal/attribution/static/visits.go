// SPDX-License-Identifier: Apache-2.0

package static

import "math"

// visits measures how much the idle power varies between visits. A visit is a period during which
// the machine is idle. The mean power of each visit is compared with the power of earlier visits.
// The samples of one visit are not independent, because temperature, fans and background programs
// change slowly.
type visits struct {
	weight    float64 // weight of the samples of the current visit
	compared  float64 // weight of the samples that could be compared with earlier visits
	off       float64 // weighted sum of the differences of their power from the power of earlier visits
	watts     float64 // power of earlier visits that the last sample was compared with
	scatter   float64 // variance of a sample, in W²
	count     float64 // number of visits, up to visitMemory
	square    float64 // mean square of the visits' differences beyond the scatter of samples, in W²
	candidate float64 // difference of the last visit in W if it was large enough for a step, otherwise 0
}

const (
	// visitLength is the maximum weight of the samples of a visit: a longer idle period is several
	// visits. A visit with a weight below leastVisit continues in the next idle period.
	visitLength, leastVisit = 60, 10
	// visitMemory is the maximum number of visits in the mean square. Older visits fade.
	visitMemory = 16
	// leastStep is the minimum height of a step, relative to the idle power. Heat after load adds
	// nearly as much.
	leastStep = 0.003
)

// compare adds the difference of a sample from earlier visits, whose mean power is watts.
func (v *visits) compare(weight, off, watts, scatter float64) {
	v.compared += weight
	v.off += weight * off
	v.watts, v.scatter = watts, scatter
}

// ends reports whether the current visit ends after a sample. resting reports whether the sample is
// idle.
func (v *visits) ends(resting bool) bool {
	return v.weight >= visitLength || !resting && v.weight >= leastVisit
}

// end ends the current visit. It returns the height of a step of the idle power in W, or 0 without
// a step. There is a step if two consecutive visits differ from earlier visits in the same
// direction, by more than the scatter of samples explains.
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

// variance returns the variance of the idle power between visits, in W².
func (v *visits) variance() float64 { return max(v.square, 0) }

// visit compares an idle sample with the samples of earlier visits in the same bin. After any
// sample, it ends the current visit if the visit is complete.
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

// endVisit ends a visit. It adopts a step only if prompt counters measure the power and the machine
// is idle, because the power under load also depends on the workload.
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

// move adds a step of the idle power to all samples except the samples of the visits that showed
// the step.
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
