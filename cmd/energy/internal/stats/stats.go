// SPDX-License-Identifier: Apache-2.0

// Package stats describes measurements that were repeated: their mean, their spread, and the ratio
// of two of them.
package stats

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Confidence is the level of all intervals: the share of them that would contain the true value if
// the measurement were repeated often.
const Confidence = 0.95

// Summary describes the values of one quantity.
type Summary struct {
	Runs              int
	Mean, Median      float64
	Min, Max          float64
	StdDev, Low, High float64 // the interval of the mean is from Low to High. 0 unless Spread
	Outliers          []int   // indices of values, see outliers
}

// Spread reports whether the standard deviation and the interval are set. They require two values.
func (s *Summary) Spread() bool { return s.Runs > 1 }

// Summarize describes values. Without values it returns the zero Summary.
//
// The standard deviation is the estimate of a sample, with n-1. The interval of the mean is mean ±
// t·s/√n, with t of Student's distribution with n-1 degrees of freedom (Student, The probable error
// of a mean, Biometrika 6, 1908).
func Summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	s := Summary{
		Runs: len(values), Mean: stat.Mean(values, nil), Median: Median(values),
		Min: slices.Min(values), Max: slices.Max(values), Outliers: outliers(values),
	}
	if s.Spread() {
		s.Mean, s.StdDev = stat.MeanStdDev(values, nil)
		margin := studentsT(float64(len(values)-1)) * stat.StdErr(s.StdDev, float64(len(values)))
		s.Low, s.High = s.Mean-margin, s.Mean+margin
	}
	return s
}

// studentsT returns the t that a value of Student's distribution exceeds, in either direction, with
// a probability of 1-Confidence.
func studentsT(degrees float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: degrees}.Quantile((1 + Confidence) / 2)
}

// Median returns the median of values, the mean of the two in the middle if their number is even.
// It is NaN without values.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile returns the p-quantile of values, from the smallest value at p = 0 to the largest at
// p = 1. It interpolates linearly between the two nearest values. It is NaN without values.
func Quantile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := p * float64(len(sorted)-1)
	below := int(math.Floor(at))
	if below+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[below] + (at-float64(below))*(sorted[below+1]-sorted[below])
}

// OutlierRule is the rule of outliers in words.
const OutlierRule = "more than 10 standard deviations from the median, these estimated from the median absolute deviation"

const (
	fewestForOutliers = 5
	// outlierDeviations is the distance of an outlier. If values are normally distributed, 3.5, the
	// proposal of Iglewicz and Hoaglin, would report an outlier in every fifth series of 5 runs. 10,
	// the value of hyperfine, does so in every thirtieth.
	outlierDeviations = 10
	// madToStdDev converts a median absolute deviation to a standard deviation: 1/Φ⁻¹(3/4).
	madToStdDev = 1.4826
)

// outliers returns the indices of values that the others make implausible, by the modified Z-score
// of the median absolute deviation (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993).
// Fewer than 5 values have no outliers. If most values are equal, there is no outlier either. Outliers
// are reported but never excluded: a mean without them would be another quantity.
func outliers(values []float64) (found []int) {
	if len(values) < fewestForOutliers {
		return nil
	}
	center := Median(values)
	distances := make([]float64, len(values))
	for i, v := range values {
		distances[i] = math.Abs(v - center)
	}
	deviation := madToStdDev * Median(distances)
	for i, d := range distances {
		if deviation > 0 && d > outlierDeviations*deviation {
			found = append(found, i)
		}
	}
	return found
}

// Ratio is the ratio of one quantity of two commands, A/B.
type Ratio struct {
	// Pairs were compared. Left pairs were not, because one of their values is too small to be
	// divided by.
	Pairs, Left int
	// Mean is the ratio of the geometric means. It is 0 without a pair.
	Mean float64
	// Low and High are the interval of the mean, 0 unless Spread.
	Low, High float64
}

// Spread reports whether the interval is set.
func (r Ratio) Spread() bool { return r.Low > 0 }

// Significant reports whether A and B differ with Confidence: whether the interval excludes 1.
func (r Ratio) Significant() bool { return r.Spread() && (r.Low > 1 || r.High < 1) }

// Above reports whether the mean exceeds a limit and A and B differ significantly. The interval may
// include the limit.
func (r Ratio) Above(limit float64) bool { return r.Significant() && r.Mean > limit }

// Paired compares the values of A and B, pair by pair. Slow changes of temperature or load are the
// same in both runs of a pair, and cancel. Pairs with a value below least, which must be above 0,
// are left out.
//
// It is the paired t-test of the logarithms (Student 1908). With dᵢ = ln(aᵢ/bᵢ), the geometric mean
// is exp(mean d), and its interval exp(mean d ± t·s/√n). Geometric means of ratios: Fleming and
// Wallace, How not to lie with statistics, CACM 29, 1986.
func Paired(a, b []float64, least float64) (r Ratio) {
	var logs []float64
	for i := range min(len(a), len(b)) {
		if a[i] < least || b[i] < least {
			r.Left++
			continue
		}
		logs = append(logs, math.Log(a[i]/b[i]))
	}
	if r.Pairs = len(logs); r.Pairs == 0 {
		return r
	}
	s := Summarize(logs)
	r.Mean = math.Exp(s.Mean)
	if s.Spread() {
		r.Low, r.High = math.Exp(s.Low), math.Exp(s.High)
	}
	return r
}

// Unpaired compares the values of A and B, which were measured at different times. Values
// below least, which must be above 0, are left out. Pairs is the smaller number of values.
//
// It is Welch's t-test of the logarithms (Welch, The generalization of "Student's" problem when
// several different population variances are involved, Biometrika 34, 1947). The interval requires
// two values on each side.
func Unpaired(a, b []float64, least float64) (r Ratio) {
	logsA, logsB := logs(a, least), logs(b, least)
	r.Pairs = min(len(logsA), len(logsB))
	if r.Left = min(len(a), len(b)) - r.Pairs; r.Pairs == 0 {
		return r
	}
	meanA, varA := stat.MeanVariance(logsA, nil)
	meanB, varB := stat.MeanVariance(logsB, nil)
	r.Mean = math.Exp(meanA - meanB)
	if r.Pairs < 2 {
		return r
	}
	nA, nB := float64(len(logsA)), float64(len(logsB))
	a2, b2 := varA/nA, varB/nB
	margin := 0.0
	if a2+b2 > 0 {
		margin = studentsT((a2+b2)*(a2+b2)/(a2*a2/(nA-1)+b2*b2/(nB-1))) * math.Sqrt(a2+b2)
	}
	r.Low, r.High = math.Exp(meanA-meanB-margin), math.Exp(meanA-meanB+margin)
	return r
}

// logs returns the logarithms of values that are at least least.
func logs(values []float64, least float64) (of []float64) {
	for _, v := range values {
		if v >= least {
			of = append(of, math.Log(v))
		}
	}
	return of
}
