// SPDX-License-Identifier: Apache-2.0

package calibration

import (
	"math"
	"slices"
)

// Curve is power over X: straight lines between its points, and beyond the first and the last as
// the lines next to them.
type Curve []Knot

// Knot is a point of a Curve.
type Knot struct{ X, Y float64 }

// At returns the curve's value.
func (c Curve) At(x float64) float64 {
	if len(c) == 1 {
		return c[0].Y
	}
	i := 1
	for i < len(c)-1 && x > c[i].X {
		i++
	}
	a, b := c[i-1], c[i]
	return a.Y + (b.Y-a.Y)*(x-a.X)/(b.X-a.X)
}

// mergeWithin is how close two levels are to be one, as a share of the range.
const mergeWithin = 0.03

// distinct returns the different values of X, ascending.
func distinct(levels []Level) []float64 {
	all := make([]float64, len(levels))
	for i, l := range levels {
		all[i] = l.X
	}
	slices.Sort(all)
	if len(all) == 0 {
		return nil
	}
	within := mergeWithin * (all[len(all)-1] - all[0])
	var found []float64
	for group := all; len(group) > 0; {
		n := 1
		for n < len(group) && group[n]-group[0] <= within {
			n++
		}
		sum := 0.0
		for _, x := range group[:n] {
			sum += x
		}
		found, group = append(found, sum/float64(n)), group[n:]
	}
	return found
}

const (
	// mostKnots bounds the curve, and mostPlaces where its knots may be, so that all choices can be tried.
	mostKnots  = 6
	mostPlaces = 14
	// exact is an error, as a share of Y, below which no knot is worth it.
	exact = 0.0005
)

// Fit returns the monotone curve of straight lines with the smallest squared error, weighted by how
// long the levels lasted. It has as many knots as Bayes's information criterion allows. errs are
// the errors with which curves through the other levels predict each level, as shares of Y, in the
// order of the levels.
func Fit(levels []Level) (curve Curve, errs []float64) {
	best := math.Inf(1)
	n := float64(len(levels))
	for knots := 2; knots <= min(mostKnots, len(distinct(levels))); knots++ {
		parameters := float64(2*knots - 2) // the height of each, and where those within are
		if knots > 2 && parameters >= n {
			break
		}
		c := fitKnots(levels, knots)
		variance := squares(levels, c) / weights(levels)
		if criterion := n*math.Log(variance+exact*exact) + parameters*math.Log(n); criterion < best {
			curve, best = c, criterion
		}
	}
	return curve, leaveOneOut(levels, len(curve))
}

// placesOf returns where the levels' curve may have knots.
func placesOf(levels []Level) []float64 {
	places := distinct(levels)
	for len(places) > mostPlaces { // of the two that are closest the second goes, but the last stays
		at := 1
		for i := 1; i < len(places)-1; i++ {
			if places[i]-places[i-1] < places[at]-places[at-1] {
				at = i
			}
		}
		places = slices.Delete(places, at, at+1)
	}
	return places
}

// leaveOneOut returns the errors with which curves through the other levels predict each level, as shares of Y.
func leaveOneOut(levels []Level, knots int) []float64 {
	errs := make([]float64, len(levels))
	for i, l := range levels {
		others := slices.Delete(slices.Clone(levels), i, i+1)
		errs[i] = fitKnots(others, knots).At(l.X)/l.Y - 1
	}
	return errs
}

// fitKnots returns the best curve with so many knots, of which the first and the last are at the ends.
func fitKnots(levels []Level, knots int) Curve {
	places := placesOf(levels)
	knots = min(knots, len(places))
	var best Curve
	least := math.Inf(1)
	chosen := make([]float64, 0, knots)
	var choose func(from int)
	choose = func(from int) {
		if len(chosen) == knots-1 {
			c := through(levels, append(slices.Clone(chosen), places[len(places)-1]))
			if e := squares(levels, c); e < least {
				best, least = c, e
			}
			return
		}
		for i := from; i < len(places)-1; i++ {
			chosen = append(chosen, places[i])
			choose(i + 1)
			chosen = chosen[:len(chosen)-1]
			if from == 0 {
				return // the first place is always a knot
			}
		}
	}
	choose(0)
	return best
}

func (l *Level) weight() float64 { return l.To - l.From }

func weights(levels []Level) float64 {
	sum := 0.0
	for i := range levels {
		sum += levels[i].weight()
	}
	return sum
}

func squares(levels []Level, c Curve) float64 {
	sum := 0.0
	for i := range levels {
		d := c.At(levels[i].X)/levels[i].Y - 1
		sum += levels[i].weight() * d * d
	}
	return sum
}

// through returns the monotone curve with knots at the places. It solves the normal equations of
// the hat functions, in errors as shares of Y, and then evens out what falls.
func through(levels []Level, at []float64) Curve {
	n := len(at)
	m := make([][]float64, n) // the equations, with the right side last
	for i := range m {
		m[i] = make([]float64, n+1)
	}
	for i := range levels {
		l := &levels[i]
		k := 1
		for k < n-1 && l.X > at[k] {
			k++
		}
		share := (l.X - at[k-1]) / (at[k] - at[k-1])
		w := l.weight() / (l.Y * l.Y)
		for _, a := range []struct {
			i int
			h float64
		}{{k - 1, 1 - share}, {k, share}} {
			m[a.i][k-1] += w * a.h * (1 - share)
			m[a.i][k] += w * a.h * share
			m[a.i][n] += w * a.h * l.Y
		}
	}
	weights := make([]float64, n)
	for i := range m {
		weights[i] = max(m[i][i], 1e-12)
	}
	y := solve(m)
	c := make(Curve, n)
	for i, v := range rising(y, weights) {
		c[i] = Knot{at[i], v}
	}
	return c
}

// solve solves linear equations by elimination. An unknown that nothing determines is 0.
func solve(m [][]float64) []float64 {
	n := len(m)
	for i := range n {
		pivot := i
		for j := i + 1; j < n; j++ {
			if math.Abs(m[j][i]) > math.Abs(m[pivot][i]) {
				pivot = j
			}
		}
		m[i], m[pivot] = m[pivot], m[i]
		if math.Abs(m[i][i]) < 1e-15 {
			continue
		}
		for j := range n {
			if j == i {
				continue
			}
			f := m[j][i] / m[i][i]
			for k := i; k <= n; k++ {
				m[j][k] -= f * m[i][k]
			}
		}
	}
	v := make([]float64, n)
	for i := range n {
		if math.Abs(m[i][i]) >= 1e-15 {
			v[i] = m[i][n] / m[i][i]
		}
	}
	return v
}

// rising returns the values that are closest to v by weighted squares and never fall (pool adjacent violators).
func rising(v, weights []float64) []float64 {
	type pool struct {
		value, weight float64
		n             int
	}
	var pools []pool
	for i := range v {
		pools = append(pools, pool{v[i], weights[i], 1})
		for n := len(pools); n > 1 && pools[n-1].value < pools[n-2].value; n = len(pools) {
			a, b := pools[n-2], pools[n-1]
			w := a.weight + b.weight
			pools = append(pools[:n-2], pool{(a.value*a.weight + b.value*b.weight) / w, w, a.n + b.n})
		}
	}
	var out []float64
	for _, p := range pools {
		for range p.n {
			out = append(out, p.value)
		}
	}
	return out
}

// Line is y = offset + factor x.
type Line struct{ Factor, Offset float64 }

// FitLine returns the straight line with the smallest squared error, and the errors of its
// predictions of each level from the others, as shares of Y.
func FitLine(levels []Level) (line Line, errs []float64) {
	c := fitKnots(levels, 2)
	line.Factor = (c[1].Y - c[0].Y) / (c[1].X - c[0].X)
	line.Offset = c[0].Y - line.Factor*c[0].X
	return line, leaveOneOut(levels, 2)
}

// MedianAndP90 returns the median and the ninth decile of the errors' sizes.
func MedianAndP90(errs []float64) (med, p90 float64) {
	sizes := make([]float64, len(errs))
	for i, e := range errs {
		sizes[i] = math.Abs(e)
	}
	return quantile(sizes, 0.5), quantile(sizes, 0.9)
}
