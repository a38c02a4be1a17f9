// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// The hours of sleep that ten patients gained by two drugs: the example of Student's article of
// 1908 and, with the results below, of many textbooks (Student, The probable error of a mean,
// Biometrika 6, section IX; the data set "sleep" of R).
var (
	dextro = []float64{0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0}
	laevo  = []float64{1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4}
)

func TestASummaryIsThatOfStudentsExample(t *testing.T) {
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

func TestRatiosAreThePairedTestOfStudentsExample(t *testing.T) {
	exp := func(values []float64) (of []float64) {
		for _, v := range values {
			of = append(of, math.Exp(v))
		}
		return of
	}
	r := Ratios(exp(dextro), exp(laevo), 1e-9)
	assert.Equal(t, 10, r.Pairs)
	assert.InDelta(t, math.Exp(-1.58), r.Mean, 1e-9)
	assert.InDelta(t, math.Exp(-2.4598858), r.Low, 1e-7)
	assert.InDelta(t, math.Exp(-0.7001142), r.High, 1e-7)
	assert.True(t, r.Significant())
	assert.Equal(t, "B used 4.855 times the energy of A (95 % confidence: 2.014 to 11.7)", r.Verdict("used", "energy"))
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

func TestVerdicts(t *testing.T) {
	for want, r := range map[string]Ratio{
		"A used 23.1 % less energy than B: A/B is 0.769 (95 % confidence: 0.752 to 0.787)":                  {Pairs: 10, Mean: 0.769, Low: 0.752, High: 0.787},
		"A used 12.0 % more energy than B: A/B is 1.120 (95 % confidence: 1.010 to 1.242)":                  {Pairs: 5, Mean: 1.12, Low: 1.01, High: 1.242},
		"A used 12.3 times the energy of B (95 % confidence: 11.0 to 140)":                                  {Pairs: 5, Mean: 12.3, Low: 11, High: 140},
		"No significant difference in energy: A/B is 1.010, and may be 1 (95 % confidence: 0.980 to 1.041)": {Pairs: 5, Mean: 1.01, Low: 0.98, High: 1.041},
		"In one pair of runs, A used 10.0 % less energy than B: --runs tells what that is worth":            {Pairs: 1, Mean: 0.9},
		"A and B are not compared: their energy is too small":                                               {Left: 3},
		"A and B are not compared: there is no pair of runs":                                                {},
	} {
		assert.Equal(t, want, r.Verdict("used", "energy"))
	}
}

// The proportion of intervals that contain the true ratio is the confidence level.
func TestTheIntervalContainsTheTrueRatioIn95OfACentOfAllCases(t *testing.T) {
	for name, truth := range map[string]float64{"a command and itself": 1, "a command that uses less": 0.8} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(15, 95))
			const cases, pairs = 4000, 6
			contained, significant := 0, 0
			for range cases {
				r := simulate(random, pairs, truth)
				if r.Low <= truth && truth <= r.High {
					contained++
				}
				if r.Significant() {
					significant++
				}
			}
			assert.InDelta(t, Confidence, float64(contained)/cases, 0.01) // three standard deviations
			if truth == 1 {
				assert.Equal(t, cases-contained, significant)
			} else {
				assert.Greater(t, float64(significant)/cases, 0.99)
			}
		})
	}
}

// simulate returns the ratio of two commands whose energies vary by 5 %, while the machine's
// temperature makes the runs of each pair use up to a tenth more or less.
func simulate(random *rand.Rand, pairs int, truth float64) Ratio {
	a, b := make([]float64, pairs), make([]float64, pairs)
	for i := range pairs {
		machine := 100 * math.Exp(0.1*(2*random.Float64()-1))
		a[i] = truth * machine * math.Exp(0.05*random.NormFloat64())
		b[i] = machine * math.Exp(0.05*random.NormFloat64())
	}
	return Ratios(a, b, leastEnergy)
}

func TestASteadyDriftCancelsInPairs(t *testing.T) {
	var values [2][]float64
	at := 0.0
	for step := range (Plan{Runs: 10, Two: true}).Steps() {
		values[step.Command] = append(values[step.Command], math.Exp(0.02*at)) // 2 % more with each run
		at++
	}
	r := Ratios(values[0], values[1], leastEnergy)
	assert.InDelta(t, 1, r.Mean, 1e-12)
	assert.False(t, r.Significant())
}

func TestStepsAlternate(t *testing.T) {
	var order strings.Builder
	for step := range (Plan{Runs: 3, Warmup: 1, Two: true}).Steps() {
		if step.Warmup {
			order.WriteString("w")
		}
		order.WriteString([]string{"A", "B"}[step.Command])
	}
	assert.Equal(t, "wAwBABBAAB", order.String())
	assert.Equal(t, "warm-up run 1 of 2", Plan{Runs: 3, Warmup: 2}.Name(Step{Warmup: true}))
	assert.Equal(t, "run 3 of 3 of B", Plan{Runs: 3, Two: true}.Name(Step{Run: 2, Command: 1}))
	assert.Len(t, slices.Collect(Plan{Runs: 4, Warmup: 2}.Steps()), 6)
}

func TestARunThatFailsEndsThePlan(t *testing.T) {
	plan := Plan{Runs: 3, Warmup: 1, Two: true}
	calls := 0
	run := func(s Step) (measure.Result, error) {
		calls++
		if s.Run == 1 && s.Command == 1 && !s.Warmup {
			return measure.Result{Exit: 3}, nil
		}
		return measure.Result{}, nil
	}
	results, err := plan.Run(run)
	var failed *FailedError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, FailedError{Step: Step{Command: 1, Run: 1}, Exit: 3}, *failed)
	assert.EqualError(t, err, "the other command failed with exit status 3: --ignore-failure measures what fails, too")
	assert.Equal(t, []int{1, 1, 5}, []int{len(results[0]), len(results[1]), calls})

	plan.IgnoreFailure = true
	results, err = plan.Run(run)
	require.NoError(t, err)
	assert.Equal(t, []int{3, 3}, []int{len(results[0]), len(results[1])})

	broken := errors.New("no meter")
	_, err = plan.Run(func(Step) (measure.Result, error) { return measure.Result{}, broken })
	assert.ErrorIs(t, err, broken)
}

func result(packageJ, dramJ float64, wall time.Duration) measure.Result {
	e := func(j float64) units.Energy { return units.Energy(math.Round(j * 1e6)) }
	return measure.Result{Command: []string{"x"}, Wall: wall, CPU: 2 * wall, Zones: []measure.Zone{
		{Name: "platform", Source: "measured", Besides: "package", Used: e(2 * packageJ)},
		{Name: "package", Source: "measured", Used: e(packageJ)},
		{Name: "dram", Source: "measured", Used: e(dramJ)},
	}}
}

func TestDescribeAddsUpWhatIsNotInOtherZones(t *testing.T) {
	c := Describe([]measure.Result{result(10, 1, time.Second), result(12, 3, 3*time.Second)})
	assert.InDelta(t, 13, c.Energy.Mean, 1e-9)
	assert.InDelta(t, (11+5)/2.0, c.Power.Mean, 1e-9)
	assert.InDelta(t, 2, c.Wall.Mean, 1e-9)
	assert.InDelta(t, 4, c.CPU.Mean, 1e-9)
	require.Len(t, c.Zones, 3)
	assert.InDelta(t, 22, c.Zones[0].Energy.Mean, 1e-9)
	assert.InDelta(t, 11, c.Zones[1].Energy.Mean, 1e-9)
	assert.InDelta(t, 2, c.Zones[2].Energy.Mean, 1e-9)
	assert.Empty(t, c.Notes)
}

func TestPhasesOfSeveralRunsAddUp(t *testing.T) {
	a, b := result(10, 1, 10*time.Second), result(12, 3, 10*time.Second)
	phase := func(name string, wall time.Duration, platform, pack, dram units.Energy) measure.Phase {
		return measure.Phase{Name: name, Wall: wall, Used: []units.Energy{platform * units.Joule, pack * units.Joule, dram * units.Joule}}
	}
	a.Phases = []measure.Phase{phase("build", 4*time.Second, 8, 4, 1), phase("test", 6*time.Second, 12, 6, 0)}
	b.Phases = []measure.Phase{phase("build", 10*time.Second, 24, 12, 3)}
	c := Describe([]measure.Result{a, b})
	require.Len(t, c.Phases, 2)
	assert.InDelta(t, 10, c.Phases[0].Energy.Mean, 1e-9)
	assert.InDelta(t, 3, c.Phases[1].Energy.Mean, 1e-9)
	assert.InDelta(t, c.Energy.Mean, c.Phases[0].Energy.Mean+c.Phases[1].Energy.Mean, 1e-9)
	assert.InDelta(t, c.Wall.Mean, c.Phases[0].Wall.Mean+c.Phases[1].Wall.Mean, 1e-9)
}

func TestNotesOfRuns(t *testing.T) {
	runs := []measure.Result{result(90, 0, time.Second)}
	for i := range 5 {
		runs = append(runs, result(10+0.1*float64(i), 0, time.Second))
	}
	runs[1].Notes, runs[2].Notes = []string{"The last 1.5 s are missing"}, []string{"The last 0.123 s are missing", "modeled"}
	runs[3].Exit = 1
	runs[4].Zones = runs[4].Zones[:2]
	runs[2].Left = []measure.Process{{Name: "gpg-agent"}, {Name: "dbus"}}
	runs[5].Left = []measure.Process{{Name: "dbus"}}
	c := Describe(runs)
	assert.Equal(t, []string{"The last 1.5 s are missing", "modeled"}, c.RunNotes)
	assert.Equal(t, []string{
		"1 of 6 runs failed: their exit status is not 0",
		"Zone dram is missing in 1 of 6 runs, which count with 0 J of it",
		"2 of 6 runs left processes behind, which are no longer measured: dbus, gpg-agent",
		"Outliers in energy: run 1, more than 10 standard deviations from the median, these estimated from the median absolute deviation. " +
			"The first run may have filled caches: --warmup 1 leaves it out",
	}, c.Notes)
}

func TestTypicalIsTheRunOfMedianEnergy(t *testing.T) {
	runs := []measure.Result{result(9, 0, 1), result(1, 0, 2), result(5, 0, 3), result(7, 0, 4)}
	assert.Equal(t, 2, Describe(runs).Typical())
	assert.Equal(t, 0, Describe(runs[:1]).Typical())
}

func TestCommandsWithoutEnergyAreNotCompared(t *testing.T) {
	var none, some []measure.Result
	for i := range 4 {
		none = append(none, result(0, 0, time.Second))
		some = append(some, result(1+0.01*float64(i), 0, time.Second))
	}
	c := Compare(Describe(none), Describe(some))
	assert.Equal(t, Ratio{Left: 4}, c.Energy)
	assert.Equal(t, Ratio{Left: 4}, c.Power)
	assert.InDelta(t, 1, c.Wall.Mean, 1e-12)
	assert.False(t, c.Wall.Significant())
	assert.Equal(t, []string{"4 of 4 pairs are not compared: an energy below 1 mJ is too little to be divided by"}, c.Notes)

	assert.Equal(t, Ratio{Left: 4}, Compare(Describe(some), Describe(none)).Energy)

	none[1] = result(2, 0, time.Second)
	c = Compare(Describe(none), Describe(some))
	assert.Equal(t, 1, c.Energy.Pairs)
	assert.InDelta(t, 2/1.01, c.Energy.Mean, 1e-9)
	for _, v := range []float64{c.Energy.Mean, c.Energy.Low, c.Energy.High, c.Power.Mean} {
		assert.False(t, math.IsNaN(v) || math.IsInf(v, 0))
	}
}

func TestWords(t *testing.T) {
	for line, want := range map[string][]string{
		"gzip -9 file":            {"gzip", "-9", "file"},
		"  a\t b  ":               {"a", "b"},
		`a 'b c' "d e" f\ g ''`:   {"a", "b c", "d e", "f g", ""},
		`a"b"'c'd "\"\\" '$x' \*`: {"abcd", `"\`, "$x", "*"},
		"cc --std=c11 a~ b#c x{}": {"cc", "--std=c11", "a~", "b#c", "x{}"},
		"gzip < f":                nil,
		"X=1 make":                nil,
		"cat *.go":                nil,
		"echo $HOME":              nil,
		`echo "$HOME"`:            nil,
		"a | b":                   nil,
		"cat ~/f":                 nil,
		"! true":                  nil,
		"a 'b":                    nil,
		`a b\`:                    nil,
		`a "\x"`:                  nil,
		"a\nb":                    nil,
		`'a\b' c`:                 {`a\b`, "c"},
	} {
		words, byShell, err := Words(line)
		require.NoError(t, err, line)
		if want == nil {
			assert.True(t, byShell, line)
			want = []string{"sh", "-c", line}
		}
		assert.Equal(t, want, words, line)
	}
	for _, line := range []string{"", "  \t", "\n"} {
		_, _, err := Words(line)
		assert.ErrorIs(t, err, ErrNoCommand)
	}
}
