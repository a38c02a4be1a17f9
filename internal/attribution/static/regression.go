// SPDX-License-Identifier: Apache-2.0

package static

import "math"

// NewRegression returns a model whose static power is the value of a polynomial, of degree 1 or 3,
// at a utilization of 0. The polynomial is fitted to the mean power of twelve buckets of
// utilization, from 20 to 80 %, once each bucket has the given number of samples. All buckets have
// the same weight, so frequent loads do not dominate. KubeWatt (Pijnacker, Setz and Andrikopoulos,
// 2025) uses this method on a node in use.
func NewRegression(degree, samples int) *Model {
	return newModel(func() estimator { return &regression{degree: degree, enough: float64(samples)} })
}

type regression struct {
	degree        int
	enough        float64
	buckets       [regressionBuckets]bucket
	polynom       [4]float64
	standardError float64 // standard error of polynom[0]
	fitted        bool
}

// bucket has the means of the samples in a range of utilizations.
type bucket struct{ n, u, p float64 }

const (
	regressionBuckets                = 12
	regressionFrom, regressionBucket = 0.2, 0.05
	// regressionMemory is the maximum weight of a bucket's samples. Older samples fade.
	regressionMemory = 1000
)

func (r *regression) observe(s sample) {
	i := int(math.Floor((s.utilization - regressionFrom) / regressionBucket))
	if i < 0 || i >= regressionBuckets {
		return
	}
	b := &r.buckets[i]
	b.n = min(b.n+1, regressionMemory)
	b.u += (s.utilization - b.u) / b.n
	b.p += (s.watts - b.p) / b.n
	r.fit()
}

func (r *regression) fit() {
	r.fitted = false
	for i := range r.buckets {
		if r.buckets[i].n < r.enough {
			return
		}
	}
	var a [4][5]float64 // the normal equations
	terms := r.degree + 1
	for i := range r.buckets {
		b := &r.buckets[i]
		var powers [4]float64
		for k, v := 0, 1.0; k < terms; k, v = k+1, v*b.u {
			powers[k] = v
		}
		for row := range terms {
			for column := range terms {
				a[row][column] += powers[row] * powers[column]
			}
			a[row][4] += powers[row] * b.p
		}
	}
	equations := a
	if r.polynom, r.fitted = solve(&equations, terms); !r.fitted {
		return
	}
	for row := range terms { // for the first element of the inverse
		a[row][4] = 0
	}
	a[0][4] = 1
	inverse, _ := solve(&a, terms)
	squares := 0.0
	for i := range r.buckets {
		off := r.off(&r.buckets[i])
		squares += off * off
	}
	r.standardError = math.Sqrt(max(inverse[0], 0) * squares / float64(regressionBuckets-terms))
}

// off returns the difference between a bucket's mean and the polynomial.
func (r *regression) off(b *bucket) float64 {
	off := b.p
	for k, v := 0, 1.0; k <= r.degree; k, v = k+1, v*b.u {
		off -= r.polynom[k] * v
	}
	return off
}

// solve solves the linear equations in the first n rows and columns by Gaussian elimination with
// pivoting. Column 4 is the right-hand side.
func solve(a *[4][5]float64, n int) (x [4]float64, ok bool) {
	for i := range n {
		pivot := i
		for row := i + 1; row < n; row++ {
			if math.Abs(a[row][i]) > math.Abs(a[pivot][i]) {
				pivot = row
			}
		}
		a[i], a[pivot] = a[pivot], a[i]
		if math.Abs(a[i][i]) < 1e-12 {
			return x, false
		}
		for row := i + 1; row < n; row++ {
			factor := a[row][i] / a[i][i]
			for column := i; column < 5; column++ {
				a[row][column] -= factor * a[i][column]
			}
		}
	}
	for i := n - 1; i >= 0; i-- {
		x[i] = a[i][4]
		for k := i + 1; k < n; k++ {
			x[i] -= a[i][k] * x[k]
		}
		x[i] /= a[i][i]
	}
	return x, true
}

// estimate returns an estimate between 0 and the power of the lowest bucket. Its standard error is
// the error of the intercept, without the error from a bend of the power below the lowest bucket.
func (r *regression) estimate() estimate {
	return estimate{
		watts: min(max(r.polynom[0], 0), r.buckets[0].p), standardError: r.standardError, usable: r.fitted, trained: r.fitted,
	}
}

func (r *regression) state() []float64 {
	s := make([]float64, 0, 3*regressionBuckets)
	for i := range r.buckets {
		b := &r.buckets[i]
		s = append(s, b.n, b.u, b.p)
	}
	return s
}

func (r *regression) restore(s []float64) bool {
	if len(s) != 3*regressionBuckets {
		return false
	}
	for i := range r.buckets {
		b := bucket{s[3*i], s[3*i+1], s[3*i+2]}
		if !plausible(regressionMemory, b.n) || !plausible(1, b.u) || !plausible(maxWatts, b.p) {
			return false
		}
		r.buckets[i] = b
	}
	r.fit()
	return true
}
