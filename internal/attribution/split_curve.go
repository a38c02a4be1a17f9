package attribution

import "math"

// NewLearnedSplit learns the power over utilization and takes for static what it is at a utilization of 0.
func NewLearnedSplit() *StaticSplit {
	return newStaticSplit(func() estimator { return new(curve) })
}

// curve learns the power over utilization, and takes for static power what it is at a utilization of 0: where the
// node was never that idle, what the lowest utilizations point to.
//
// Samples are gathered by utilization. A straight line is fitted to those from the lowest utilization up to as little
// as tells its height at 0 well enough, and to more of them the noisier they are: power is hardly ever
// straight over a wide range. Where it is clearly bent even there, and nothing is known near 0, a power law is fitted.
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
	curveBins = 45
	// curveMemory is how many samples a bin remembers: older ones fade as newer ones of the same utilization come.
	curveMemory = 1000
	// fading is after how many seconds all bins fade, also those of utilizations that no longer come, and curveHalfLife
	// after how many they are half.
	fading        = 60 * 60
	curveHalfLife = 2 * day
	// fewestInBin is how many samples a bin needs to be used.
	fewestInBin = 5
	// fewestInWindow is how many a line is fitted to at least: the scatter of fewer says too little.
	fewestInWindow = 60
)

// curveBinOf is finest near 0, where the static power is read from.
func curveBinOf(u float64) int {
	switch {
	case u < 0.02:
		return int(u / 0.0025)
	case u < 0.05:
		return 8 + int((u-0.02)/0.005)
	case u < 0.2:
		return 14 + int((u-0.05)/0.01)
	default:
		return min(29+int((u-0.2)/0.05), curveBins-1)
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

// plausible says whether the sums can be of so many samples, but for rounding.
func (b *curveBin) plausible() bool {
	n := b.n * (1 + 1e-6)
	return plausible(curveMemory+1, b.n) && plausible(n, b.u, b.uu) && plausible(n*maxWatts, b.p, b.up) &&
		plausible(n*maxWatts*maxWatts, b.pp)
}

func (b *curveBin) merge(o *curveBin) {
	b.n += o.n
	b.u += o.u
	b.p += o.p
	b.uu += o.uu
	b.up += o.up
	b.pp += o.pp
}

// line fits a straight line: its height at 0 and its slope, the standard error of the height, and the standard
// deviation of the samples around the line. It is not ok where the samples do not differ in utilization.
func (b *curveBin) line() (at0, slope, uncertain, around float64, ok bool) {
	meanU, meanP := b.u/b.n, b.p/b.n
	suu := max(b.uu-b.n*meanU*meanU, 0)
	spp := max(b.pp-b.n*meanP*meanP, 0)
	if meanU < 1e-6 {
		around = math.Sqrt(spp / b.n)
		return meanP, 0, around / math.Sqrt(b.n), around, true
	}
	if suu < 1e-12*b.n || b.n < 3 {
		return 0, 0, 0, 0, false
	}
	sup := b.up - b.n*meanU*meanP
	slope = sup / suu
	at0 = meanP - slope*meanU
	variance := max(spp-slope*sup, 0) / (b.n - 2)
	return at0, slope, math.Sqrt(variance * (1/b.n + meanU*meanU/suu)), math.Sqrt(variance), true
}

const (
	// wideWindow is up to which utilization above the lowest a line may be fitted.
	wideWindow = 0.15
	// goodEnough is how uncertain the height at 0 may be for a narrow window to be taken, and tooUncertain from when
	// it is not known, each as a part of what a load of 10 % adds.
	goodEnough, tooUncertain = 0.02, 0.1
	// negligible is a part of the power at the lowest utilization that never matters.
	negligible = 0.0005
	// tooFar is the lowest utilization from which nothing is told about 0.
	tooFar = 0.3
	// reestimate is after how many samples the estimate is made anew.
	reestimate = 10
)

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

// fit estimates the static power anew.
func (c *curve) fit() {
	c.pending = 0
	c.ok = false
	lowest := -1
	var window curveBin
	best := math.Inf(1)
	for i := range c.bins {
		b := &c.bins[i]
		if b.n < fewestInBin {
			continue
		}
		u := b.u / b.n
		if lowest < 0 {
			if u > tooFar {
				return
			}
			lowest = i
		}
		first := &c.bins[lowest]
		if i > lowest && u > first.u/first.n+wideWindow {
			break
		}
		window.merge(b)
		at0, slope, uncertain, _, ok := window.line()
		if !ok || window.n < fewestInWindow {
			continue
		}
		matters := max(0.1*slope, negligible/goodEnough*first.p/first.n)
		if relative := uncertain / matters; relative < best {
			best = relative
			c.watts = min(max(at0, 0), first.p/first.n)
			c.ok = best <= tooUncertain
		}
		if best <= goodEnough {
			break
		}
	}
	if lowest >= 0 && c.ok {
		c.bend(lowest)
	}
}

const (
	// nearRest is the utilization below which a straight line reaches 0 whatever the power's shape.
	nearRest = 0.015
	// bent is by how much better, as a ratio of squares, a power law must fit than a straight line.
	bent = 4
)

// exponents are those of the power laws that are tried, the straight line among them.
var exponents = [...]float64{0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3}

// bend fits static + factor * utilization^exponent where the lowest utilization is far from 0, and takes its static
// power if the power is clearly of that shape, and clearly not straight.
func (c *curve) bend(lowest int) {
	first := &c.bins[lowest]
	from := first.u / first.n
	if from < nearRest {
		return
	}
	to := max(3*from, from+0.1)
	best, straight, static := math.Inf(1), 0.0, 0.0
	for _, exponent := range exponents {
		var n, x, y, xx, xy, yy float64
		used := 0
		for i := lowest; i < curveBins; i++ {
			b := &c.bins[i]
			if b.n < fewestInBin {
				continue
			}
			u, p := b.u/b.n, b.p/b.n
			if u > to {
				break
			}
			_, _, _, around, ok := b.line()
			if !ok {
				continue
			}
			// What a bin's mean may be off by: its noise, and a little, as no machine is exactly of any shape.
			off := math.Hypot(around/math.Sqrt(b.n), negligible*p)
			w := 1 / (off * off)
			v := math.Pow(u, exponent)
			n, x, y, xx, xy, yy = n+w, x+w*v, y+w*p, xx+w*v*v, xy+w*v*p, yy+w*p*p
			used++
		}
		if used < 5 {
			return
		}
		mx, my := x/n, y/n
		factor := (xy - n*mx*my) / (xx - n*mx*mx)
		scatter := max(yy-n*my*my-factor*(xy-n*mx*my), 0) / float64(used-3)
		if exponent == 1 {
			straight = scatter
		}
		if scatter < best {
			best, static = scatter, my-factor*mx
		}
	}
	if best < 2 && straight > bent*max(best, 1) {
		c.watts = min(max(static, 0), first.p/first.n)
	}
}

// spread is the deviation of the samples around the line through those of about the same utilization.
func (c *curve) spread() float64 {
	var n, squares float64
	for i := range c.bins {
		b := &c.bins[i]
		if b.n < fewestInBin {
			continue
		}
		if _, _, _, around, ok := b.line(); ok {
			squares += b.n * around * around
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
