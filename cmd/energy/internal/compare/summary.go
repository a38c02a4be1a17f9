// SPDX-License-Identifier: Apache-2.0

// Package compare repeats the measurement of a command, or of two commands side by side, and says
// what the figures of all runs are worth: how far they vary, where their mean lies, and whether two
// commands differ.
package compare

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Confidence is that of all intervals: the share of them that contain the true value, were everything repeated often.
const Confidence = 0.95

// Summary describes one quantity over several runs.
type Summary struct {
	Runs              int
	Mean, Median      float64
	Min, Max          float64
	StdDev, Low, High float64 // the interval of the mean is from Low to High. 0 unless Spread
	Outliers          []int   // indices of runs, see outliers
}

// Spread reports whether the standard deviation and the interval are known. They are not of a single run.
func (s *Summary) Spread() bool { return s.Runs > 1 }

// Summarize describes values, one of each run. Without values it returns the zero Summary.
//
// The standard deviation is that of a sample, with n-1. The interval of the mean is mean ± t·s/√n,
// with t of Student's distribution with n-1 degrees of freedom (Student, The probable error of a
// mean, Biometrika 6, 1908).
func Summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	s := Summary{Runs: len(values), Median: median(values), Min: slices.Min(values), Max: slices.Max(values), Outliers: outliers(values)}
	s.Mean = stat.Mean(values, nil)
	if s.Spread() {
		s.Mean, s.StdDev = stat.MeanStdDev(values, nil)
		margin := studentsT(len(values)-1) * stat.StdErr(s.StdDev, float64(len(values)))
		s.Low, s.High = s.Mean-margin, s.Mean+margin
	}
	return s
}

// studentsT returns the t that a value of Student's distribution exceeds, in either direction, with
// a probability of 1-Confidence.
func studentsT(degrees int) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(degrees)}.Quantile((1 + Confidence) / 2)
}

// OutlierRule is the rule of outliers in words.
const OutlierRule = "more than 10 standard deviations from the median, these estimated from the median absolute deviation"

const (
	fewestForOutliers = 5
	// outlierDeviations is how far away an outlier is. Of normal values 3.5, as Iglewicz and
	// Hoaglin propose, would make an outlier in every fifth series of 5 runs; 10, as hyperfine has
	// it, does in every thirtieth.
	outlierDeviations = 10
	// madToStdDev makes a standard deviation of a median absolute deviation: 1/Φ⁻¹(3/4).
	madToStdDev = 1.4826
)

// outliers returns the indices of values that the others make implausible, by the modified Z-score
// of the median absolute deviation (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993).
// Less than 5 values have no outliers, and neither have values of which most are the same. Outliers
// are reported but never excluded: a mean without them would be another quantity.
func outliers(values []float64) []int {
	if len(values) < fewestForOutliers {
		return nil
	}
	center := median(values)
	distances := make([]float64, len(values))
	for i, v := range values {
		distances[i] = math.Abs(v - center)
	}
	deviation := madToStdDev * median(distances)
	if deviation == 0 {
		return nil
	}
	var found []int
	for i, d := range distances {
		if d > outlierDeviations*deviation {
			found = append(found, i)
		}
	}
	return found
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[half-1] + sorted[half]) / 2
	}
	return sorted[half]
}
