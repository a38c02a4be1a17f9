// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The hours of sleep that ten patients gained by two drugs: the example of Student's article of
// 1908 and, with the results below, of many textbooks (Student, The probable error of a mean,
// Biometrika 6, section IX; the data set "sleep" of R).
var (
	dextro = []float64{0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0}
	laevo  = []float64{1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4}
)

func TestASummaryMatchesStudentsExample(t *testing.T) {
	gains := make([]float64, len(dextro))
	for i := range gains {
		gains[i] = laevo[i] - dextro[i]
	}
	s := Summarize(gains)
	assert.InDelta(t, 1.58, s.Mean, 1e-12)
	assert.InDelta(t, 1.229995, s.StdDev, 1e-6)
	assert.InDelta(t, 0.7001142, s.Low, 1e-7)
	assert.InDelta(t, 2.4598858, s.High, 1e-7)
	assert.InDelta(t, 1.3, s.Median, 1e-12)
	assert.Equal(t, []float64{0, 4.6}, []float64{s.Min, math.Round(s.Max*1e9) / 1e9})
}

// exponentials returns values whose logarithms are the given ones.
func exponentials(values []float64) (of []float64) {
	for _, v := range values {
		of = append(of, math.Exp(v))
	}
	return of
}

func TestPairsMatchThePairedTestOfStudentsExample(t *testing.T) {
	r := Paired(exponentials(dextro), exponentials(laevo), 1e-9)
	assert.Equal(t, 10, r.Pairs)
	assert.InDelta(t, math.Exp(-1.58), r.Mean, 1e-9)
	assert.InDelta(t, math.Exp(-2.4598858), r.Low, 1e-7)
	assert.InDelta(t, math.Exp(-0.7001142), r.High, 1e-7)
	assert.True(t, r.Significant())
}

func TestSummariesOfFewRuns(t *testing.T) {
	assert.Equal(t, Summary{}, Summarize(nil))
	one := Summarize([]float64{3})
	assert.False(t, one.Spread())
	assert.Equal(t, Summary{Runs: 1, Mean: 3, Median: 3, Min: 3, Max: 3}, one)
	two := Summarize([]float64{1, 3}) // s = √2, t of 1 degree of freedom = tan(0.475π) = 12.7062
	assert.InDelta(t, math.Sqrt2, two.StdDev, 1e-12)
	assert.InDelta(t, 2-12.7062, two.Low, 1e-4)
	assert.InDelta(t, 2+12.7062, two.High, 1e-4)
	same := Summarize([]float64{5, 5, 5})
	assert.Equal(t, Summary{Runs: 3, Mean: 5, Median: 5, Min: 5, Max: 5, Low: 5, High: 5}, same)
}

func TestOutliers(t *testing.T) {
	for name, test := range map[string]struct {
		values []float64
		want   []int
	}{
		// Median 10.05, median absolute deviation 0.15, so 10 deviations are 2.2239.
		"beyond the bound": {[]float64{10, 10.1, 9.9, 10.2, 9.8, 12.28}, []int{5}},
		"within the bound": {[]float64{10, 10.1, 9.9, 10.2, 9.8, 12.27}, nil},
		"below":            {[]float64{7.5, 10.1, 9.9, 10.2, 9.8, 10}, []int{0}},
		"two of them":      {[]float64{30, 10, 10.1, 9.9, 10.2, 9.8, 10.05, 40}, []int{0, 7}},
		"four values":      {[]float64{10, 10.1, 9.9, 100}, nil},
		"most the same":    {[]float64{10, 10, 10, 10, 11}, nil},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, outliers(test.values)) })
	}
}

// Welch's test of the same example, as R's t.test(extra ~ group, data = sleep) computes it.
func TestUnpairedValuesMatchWelchsTest(t *testing.T) {
	r := Unpaired(exponentials(dextro), exponentials(laevo), 1e-9)
	assert.InDelta(t, math.Exp(-1.58), r.Mean, 1e-9)
	assert.InDelta(t, math.Exp(-3.3654832), r.Low, 1e-7)
	assert.InDelta(t, math.Exp(0.2054832), r.High, 1e-6)
	assert.False(t, r.Significant())

	one := Unpaired([]float64{2}, []float64{1, 1, 1}, 1e-3)
	assert.Equal(t, Ratio{Pairs: 1, Mean: 2}, one, "the spread of one value is unknown")
	assert.Equal(t, Ratio{Left: 1}, Unpaired([]float64{2}, []float64{0}, 1e-3))
	assert.Equal(t, Ratio{Pairs: 2, Mean: 2, Low: 2, High: 2}, Unpaired([]float64{2, 2}, []float64{1, 1}, 1e-3))
}

func TestAQuantileIsInterpolated(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	for p, want := range map[float64]float64{0: 1, 0.5: 2.5, 0.9: 3.7, 1: 4} {
		assert.InDelta(t, want, Quantile(values, p), 1e-12, p)
	}
	assert.True(t, math.IsNaN(Median(nil)))
	assert.Equal(t, []float64{4, 1, 3, 2}, values, "the values keep their order")
}
