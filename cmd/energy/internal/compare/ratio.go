// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"
)

// Ratio compares a quantity of two commands that ran in pairs.
type Ratio struct {
	// Pairs were compared. Left pairs were not: one of their values is too small to be divided by.
	Pairs, Left int
	// Mean is the geometric mean of A/B. 0 without a pair.
	Mean float64
	// Low and High are the interval of the mean. 0 unless Spread.
	Low, High float64
}

// Spread reports whether the interval is known. It is not of a single pair.
func (r Ratio) Spread() bool { return r.Pairs > 1 }

// Significant reports whether A and B differ with Confidence: whether the interval leaves out 1.
func (r Ratio) Significant() bool { return r.Spread() && (r.Low > 1 || r.High < 1) }

// Ratios compares the values of A with those of B, pair by pair: what changes slowly, such as
// temperature and load, is the same in both runs of a pair, and cancels. Pairs with a value below
// least, which must be above 0, are left out.
//
// It is the paired t-test of the logarithms: with dᵢ = ln(aᵢ/bᵢ), the geometric mean is exp(mean
// d), and its interval exp(mean d ± t·s/√n) (Student 1908, whose first example is of pairs; of
// ratios: Fleming and Wallace, How not to lie with statistics: the correct way to summarize
// benchmark results, CACM 29, 1986).
func Ratios(a, b []float64, least float64) Ratio {
	var r Ratio
	var logs []float64
	for i := range min(len(a), len(b)) {
		if a[i] < least || b[i] < least {
			r.Left++
			continue
		}
		logs = append(logs, math.Log(a[i]/b[i]))
	}
	r.Pairs = len(logs)
	if r.Pairs == 0 {
		return r
	}
	s := Summarize(logs)
	r.Mean = math.Exp(stat.Mean(logs, nil))
	if r.Spread() {
		r.Low, r.High = math.Exp(s.Low), math.Exp(s.High)
	}
	return r
}

// Verdict describes the ratio of a quantity in words. verb is the past tense of what the commands
// did with the quantity: "used", "took".
func (r Ratio) Verdict(verb, quantity string) string {
	switch {
	case r.Pairs == 0 && r.Left > 0:
		return fmt.Sprintf("A and B are not compared: their %s is too small", quantity)
	case r.Pairs == 0:
		return "A and B are not compared: there is no pair of runs"
	case !r.Spread():
		return fmt.Sprintf("In one pair of runs, %s: --runs tells what that is worth", difference(r.Mean, verb, quantity))
	case !r.Significant():
		return fmt.Sprintf("No significant difference in %s: A/B is %s, and may be 1 (95 %% confidence: %s to %s)",
			quantity, factor(r.Mean), factor(r.Low), factor(r.High))
	}
	text := difference(r.Mean, verb, quantity)
	switch {
	case r.Mean >= 2:
		return fmt.Sprintf("%s (95 %% confidence: %s to %s)", text, factor(r.Low), factor(r.High))
	case r.Mean <= 0.5:
		return fmt.Sprintf("%s (95 %% confidence: %s to %s)", text, factor(1/r.High), factor(1/r.Low))
	}
	return fmt.Sprintf("%s: A/B is %s (95 %% confidence: %s to %s)", text, factor(r.Mean), factor(r.Low), factor(r.High))
}

// difference says how much more or less a ratio is: in percent, and where one is twice the other or more as a multiple.
func difference(ratio float64, verb, quantity string) string {
	switch {
	case ratio >= 2:
		return fmt.Sprintf("A %s %s times the %s of B", verb, factor(ratio), quantity)
	case ratio <= 0.5:
		return fmt.Sprintf("B %s %s times the %s of A", verb, factor(1/ratio), quantity)
	case ratio < 1:
		return fmt.Sprintf("A %s %.1f %% less %s than B", verb, 100*(1-ratio), quantity)
	}
	return fmt.Sprintf("A %s %.1f %% more %s than B", verb, 100*(ratio-1), quantity)
}

// factor returns a ratio with at least three digits.
func factor(ratio float64) string {
	switch {
	case ratio >= 100:
		return fmt.Sprintf("%.0f", ratio)
	case ratio >= 10:
		return fmt.Sprintf("%.1f", ratio)
	case ratio >= 0.1:
		return fmt.Sprintf("%.3f", ratio)
	}
	return fmt.Sprintf("%.3g", ratio)
}
