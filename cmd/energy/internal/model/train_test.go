// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func train(t *testing.T, r *Record) (*Trained, string) {
	t.Helper()
	result, err := r.Train(2*time.Minute, noon)
	require.NoError(t, err)
	var out strings.Builder
	result.WriteText(&out)
	return result, out.String()
}

// bounds checks the mean and the largest error of all zones over all utilizations.
func (s *simulatedPower) bounds(t *testing.T, result *Trained) {
	t.Helper()
	for k, truth := range map[power.Kind]func(float64) float64{power.Package: s.packages.Watts, power.DRAM: s.dram.Watts, power.Platform: s.whole} {
		curve, mean, worst := result.Model.Zones[k].Curve, 0.0, 0.0
		const n = 1000
		for i := range n + 1 {
			u := float64(i) / n
			e := math.Abs(curve.Watts(u)/truth(u) - 1)
			mean, worst = mean+e/(n+1), max(worst, e)
		}
		assert.Less(t, mean, 0.02, k)
		assert.Less(t, worst, 0.06, k)
	}
}

// docs/power-models.md states these bounds.
func TestThreeHoursOfLoadRecoverThePowerCurves(t *testing.T) {
	for seed := range uint64(5) {
		s := fleet(seed)
		result, _ := train(t, s.record(3*3600))
		s.bounds(t, result)
		for k, z := range result.Model.Zones {
			assert.InDelta(t, 0.01, z.Error, 0.01, "%s, seed %d", k, seed)
		}
	}
	s := fleet(1)
	s.restarts = []int{1234, 4321, 4400, 9005}
	result, _ := train(t, s.record(3*3600))
	s.bounds(t, result)
}

// steps returns a load with n different levels of two minutes, from a lowest level in equal steps.
func steps(lowest, step float64, n int) func(int) float64 {
	return func(second int) float64 { return lowest + step*float64(second/120*11%n) }
}

func TestATrainedModelIsPrintedAndEqualToTheFileOf010(t *testing.T) {
	result, text := train(t, fleet(1).record(3*3600))
	golden.Equal(t, "train.golden", text)
	data, err := os.ReadFile("testdata/train.json")
	require.NoError(t, err)
	want, err := trained.Parse(data)
	require.NoError(t, err)
	assert.Equal(t, *want, result.Model)
}

func TestASteadyLoadOfARoundPercentageIsOneLoad(t *testing.T) {
	s := fleet(1)
	exact := steps(0, 0.1, 10)
	s.load = func(second int) float64 { return max(0, exact(second)+0.003*s.random.NormFloat64()) }
	result, _ := train(t, s.record(3600))
	assert.Equal(t, 10, result.zones[0].bins)
}

func TestExtrapolationIsReported(t *testing.T) {
	s := fleet(1)
	s.load = steps(0.2, 0.05, 10)
	_, text := train(t, s.record(3600))
	assert.Contains(t, text, "package: the load was never below 20 %, where power rises steeply: the idle power may be far off\n"+
		"package: the load was never above 65 %: the curve is extrapolated\n")
	s = fleet(1)
	s.load = steps(0, 0.25, 5)
	_, text = train(t, s.record(3600))
	assert.Contains(t, text, "package: only 5 different loads")
}

func TestWhyAZoneIsNotTrained(t *testing.T) {
	for want, c := range map[string]struct {
		seconds int
		change  func(*simulatedPower)
	}{
		"too little time: ": {240, func(*simulatedPower) {}},
		"too few different loads: 2, at least 4 are needed": {3600, func(s *simulatedPower) { s.load = steps(0, 0.5, 2) }},
		"its meter reported no energy":                      {3600, func(s *simulatedPower) { s.packages = curve(0, 0, 1, 0) }},
	} {
		s := fleet(1)
		c.change(s)
		result, _ := s.record(c.seconds).Train(2*time.Minute, noon)
		require.NotNil(t, result, want)
		require.ErrorContains(t, result.zones[0].err, want)
	}
}

func TestARecordThatCannotBeTrainedSaysWhatIsMissing(t *testing.T) {
	r := fleet(1).record(600)
	for _, step := range []struct {
		removed func(counter) bool
		want    error
	}{
		{func(c counter) bool { return strings.HasSuffix(c.id, " measured") }, errUntrained},
		{func(c counter) bool { return c.kind == sumOfZones }, errNoZones},
		{func(c counter) bool { return c == utilization }, errNoUtilization},
	} {
		maps.DeleteFunc(r.series, func(c counter, _ []point) bool { return step.removed(c) })
		_, err := r.Train(time.Minute, noon)
		require.ErrorIs(t, err, step.want)
	}
	r = fleet(1).record(600)
	r.Machine = nil
	_, err := r.Train(time.Minute, noon)
	require.ErrorIs(t, err, errNoMachine)
}

// loads returns windows of 10 s that pass all loads from one to another, several times.
func loads(from, to float64, watts func(u float64) float64) (windows []window) {
	for range 5 {
		for i := range 100 {
			u := from + (to-from)*float64(i)/99
			windows = append(windows, window{Seconds: 10, Load: u, Watts: watts(u)})
		}
	}
	return windows
}

func TestACurveContinuesItsLinesAndIsNeverNegative(t *testing.T) {
	z := trainedZone{}
	err := z.fit(loads(0.2, 0.8, func(u float64) float64 { return 50 + 200*u }))
	require.NoError(t, err)
	for _, u := range []float64{0, 0.1, 0.35, 0.7, 0.9, 1} {
		assert.InDelta(t, 50+200*u, z.Curve.Watts(u), 0.05, "at %v", u)
	}
	assert.Zero(t, z.Error)
	z = trainedZone{}
	err = z.fit(loads(0.5, 1, func(u float64) float64 { return 400 * (u - 0.45) }))
	require.NoError(t, err)
	assert.Zero(t, z.Curve.Watts(0))
}

// Noise without correlation is predicted as well as can be; a drift from hour to hour is not.
func TestTheErrorIsCrossValidated(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	z := trainedZone{}
	err := z.fit(loads(0, 1, func(u float64) float64 { return (100 + 200*u) * (1 + 0.1*random.NormFloat64()) }))
	require.NoError(t, err)
	assert.InDelta(t, 0.1*math.Sqrt(2/math.Pi), z.Error, 0.01)
	drifting := loads(0, 1, func(u float64) float64 { return 100 + 200*u })
	for i := range drifting {
		drifting[i].Watts *= 1 + 0.4*float64(i)/float64(len(drifting))
	}
	z = trainedZone{}
	err = z.fit(drifting)
	require.NoError(t, err)
	assert.Greater(t, z.Error, 0.08)

	bursts := loads(0, 1, func(float64) float64 { return 1 + 3000*float64(random.IntN(30)/29) })
	err = (&trainedZone{}).fit(bursts)
	require.ErrorIs(t, err, errUnrelated)
}
