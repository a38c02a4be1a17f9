// SPDX-License-Identifier: Apache-2.0

package static_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// watts returns the active power that a model finds in 10 s at a load.
func watts(model attribution.StaticPowerModel, load, watts float64) float64 {
	return model.Active(interval(load, watts)).Joules() / 10
}

func TestAFixedStaticPowerIsTakenOff(t *testing.T) {
	model := static.Fixed{Power: 30 * units.Joule}
	assert.InDelta(t, 45, watts(model, 0.5, 75), 0)
	assert.InDelta(t, 0, watts(model, 0.5, 20), 0, "less than that is all idle")
	p := interval(0.5, 75)
	p.Zones, p.Of, p.OfAll = 1, 1, 2
	assert.Equal(t, 600*units.Joule, model.Active(p), "one of two zones, of any domains, has half of it")
	p.Elapsed = 0
	assert.Zero(t, model.Active(p))
}

func TestTheMinimumIsTheLowestPowerAtAnyLoad(t *testing.T) {
	model := static.NewMinimum()
	assert.False(t, model.Trained(0))
	for _, c := range []struct{ load, watts, static float64 }{
		{0.2, 50, 50}, {0.5, 80, 50}, {0.1, 45, 45}, {0.9, 30, 30}, {0, 40, 30}, {1, 0, 30},
	} {
		active := watts(model, c.load, c.watts)
		assert.InDelta(t, c.static, model.StaticPower(0), 1e-9, "%+v", c)
		assert.InDelta(t, max(c.watts-c.static, 0), active, 1e-9, "%+v", c)
		assert.True(t, model.Trained(0))
		assert.InDelta(t, -1, model.StandardError(0), 0, "not known")
	}
}

func TestTheMinimumRisesWithTheMachineWithinAWeek(t *testing.T) {
	model := static.NewMinimum()
	model.Active(interval(0, 20))
	for range 6 * 24 * 360 {
		model.Active(interval(0, 25))
	}
	assert.InDelta(t, 20, model.StaticPower(0), 1e-9)
	for range 2 * 24 * 360 {
		model.Active(interval(0, 25))
	}
	assert.InDelta(t, 25, model.StaticPower(0), 1e-3)
}

// At rest ten samples of 40, 41, ... 49 W: the median is 44.5, the quartiles 42.25 and 46.75, so
// static is 44.5 - 1.5*4.5 = 37.75 W.
func TestTheRestingModelIsMedianLessOneAndAHalfRangesAtRest(t *testing.T) {
	model := static.NewResting(0.05)
	for i := range 10 {
		assert.False(t, model.Trained(0))
		assert.InDelta(t, -1, model.StandardError(0), 0)
		model.Active(interval(0.6, 120))
		model.Active(interval(0.02, 40+float64(i)))
	}
	assert.True(t, model.Trained(0))
	assert.InDelta(t, 37.75, model.StaticPower(0), 1e-9)
	assert.InDelta(t, 6.75, model.StandardError(0), 1e-9, "what it takes off the median")
	assert.InDelta(t, 120-37.75, watts(model, 0.6, 120), 1e-5)
	t.Attr("rest", fmt.Sprintf("%.2f W", model.StaticPower(0)))
}

// Samples of 50 and 54 W for 10 s each are 52 W over 20 s. Samples under load do not count.
func TestTheBaseModelIsTheMeanOfAnEmptyNode(t *testing.T) {
	model := static.NewBase(0.05, 20*time.Second)
	model.Active(interval(0.01, 50))
	model.Active(interval(0.3, 100))
	assert.False(t, model.Trained(0))
	assert.InDelta(t, -1, model.StandardError(0), 0)
	model.Active(interval(0.01, 54))
	assert.True(t, model.Trained(0))
	assert.InDelta(t, 52, model.StaticPower(0), 1e-9)
	assert.InDelta(t, 48, watts(model, 0.3, 100), 1e-9)
	assert.InDelta(t, 2, model.StandardError(0), 1e-9)
	t.Attr("base", fmt.Sprintf("%.0f W", model.StaticPower(0)))
}

// The line through u² at n points, h apart, has the height h²(n²-1)/12 - mean² at 0: 0.02979 - 0.24751.
// It is off by 2.6366 W, so the standard error of its intercept is
// 2.6366*√(12/10 * (1/12 + 0.4975²/(h²*12*143/12))) = 2.5438 W.
func TestTheRegressionModelIsTheInterceptOfALoadedNode(t *testing.T) {
	for name, c := range map[string]struct {
		degree              int
		at                  func(u float64) float64
		want, standardError float64
	}{
		"line":                     {1, func(u float64) float64 { return 40 + 80*u }, 40, 0},
		"line through a cubic":     {3, func(u float64) float64 { return 40 + 80*u }, 40, 0},
		"cubic":                    {3, func(u float64) float64 { return 30 + 120*u - 90*u*u + 40*u*u*u }, 30, 0},
		"falls below 0, clamped":   {1, func(u float64) float64 { return 100 * u * u }, 0, 2.5438},
		"rises towards 0, clamped": {3, func(u float64) float64 { return 50 - 10*u }, 47.775, 0},
		"line of a parabola":       {1, func(u float64) float64 { return 50 + 100*u*u }, 28.2286, 2.5438},
	} {
		model := static.NewRegression(c.degree, 3)
		for i := range 12 {
			u := 0.2225 + 0.05*float64(i)
			for range 3 {
				assert.False(t, model.Trained(0), "%s: bucket %d", name, i)
				assert.InDelta(t, -1, model.StandardError(0), 0, "%s: bucket %d", name, i)
				model.Active(interval(u, c.at(u)))
			}
		}
		for range 50 {
			model.Active(interval(0.95, 1000))
			model.Active(interval(0.1, 1))
		}
		require.True(t, model.Trained(0), name)
		assert.InDelta(t, c.want, model.StaticPower(0), 1e-3, name)
		assert.InDelta(t, c.standardError, model.StandardError(0), 1e-3, name)
		if name == "cubic" {
			t.Attr("bootstrap", fmt.Sprintf("%.0f W", model.StaticPower(0)))
		}
	}
}

func TestATrainedStaticPowerIsOfAllZones(t *testing.T) {
	model := static.NewBase(0.05, 10*time.Second)
	p := interval(0, 60)
	p.Zones, p.Of = 2, 2
	model.Active(p)
	p = interval(0.5, 50)
	p.Zones, p.Of = 1, 2
	assert.Equal(t, 200*units.Joule, model.Active(p), "one of two zones has half of it")
	p = interval(0, 10)
	p.Zones, p.Of = 1, 2
	model.Active(p)
	assert.InDelta(t, 60, model.StaticPower(0), 0, "one zone does not train the model")
	p = interval(0, 50)
	p.Zones, p.Of = 1, 1
	assert.Equal(t, 200*units.Joule, model.Active(p), "also where the other one is not known yet, as after a restart")
	assert.InDelta(t, 60, model.StaticPower(0), 0)
	p = interval(0.5, 100)
	p.Zones, p.Of = 3, 3
	assert.Equal(t, attribution.ByUtilization(p), model.Active(p), "of other zones nothing is known")
}

// A ticker of a second has windows slightly shorter than that, and a late one is followed by a much
// shorter window.
func TestWindowsOfAboutASecondAreASampleEach(t *testing.T) {
	for _, c := range []struct {
		window  time.Duration
		windows int // in a sample
	}{
		{time.Second, 1},
		{999_800 * time.Microsecond, 1},
		{950 * time.Millisecond, 1},
		{667 * time.Millisecond, 1},
		{666 * time.Millisecond, 2},
		{499 * time.Millisecond, 2},
		{99 * time.Millisecond, 10},
		{101 * time.Millisecond, 10},
	} {
		model := static.NewResting(0.1) // trained with ten samples
		p := interval(0, 5)
		p.Elapsed, p.Energy = c.window, units.Energy(5e6*c.window.Seconds())
		for range 10*c.windows - 1 {
			model.Active(p)
		}
		assert.False(t, model.Trained(0), c.window)
		model.Active(p)
		assert.True(t, model.Trained(0), c.window)
		assert.InDelta(t, 5, model.StaticPower(0), 1e-3, c.window)
	}
}

// A sample of a second and more counts as one, a shorter one by its length.
func TestTheTrainedCurveTakesTenthsOfASecondAsSamples(t *testing.T) {
	short := func() *static.Model {
		model := static.NewCurve()
		model.TakeShortSamples()
		return model
	}
	for _, c := range []struct {
		create  func() *static.Model
		window  time.Duration
		windows int // in a sample
		weight  float64
	}{
		{short, 10 * time.Second, 1, 1},
		{short, 250 * time.Millisecond, 1, 0.25},
		{short, 99 * time.Millisecond, 1, 0.099},
		{short, 10 * time.Millisecond, 10, 0.1},
		{static.NewCurve, 100 * time.Millisecond, 10, 1},
		{static.NewCurve, 10 * time.Second, 1, 1},
	} {
		model := c.create()
		p := interval(0, 5)
		p.Elapsed = c.window
		weight := func() (sum float64) {
			state, _ := model.State(0)
			for i := 0; i < len(state.Estimator); i += 6 {
				sum += state.Estimator[i]
			}
			return sum
		}
		for range c.windows {
			assert.Zero(t, weight(), c.window)
			model.Active(p)
		}
		assert.InDelta(t, c.weight, weight(), 1e-9, c.window)
	}
}

func TestALongGapDoesNotTrain(t *testing.T) {
	model := static.NewMinimum()
	p := interval(0, 5)
	p.Elapsed = time.Hour
	model.Active(p)
	assert.False(t, model.Trained(0))
}

// The zone is read over 10 of its 20 s: its 300 J are not 15 W over 20 s.
func TestADroppedZoneDoesNotTrain(t *testing.T) {
	model := static.NewBase(0.5, 10*time.Second)
	engine := ledger.New(ledger.Config{Rules: attribution.Rules{
		Models: [attribution.MaxKinds]attribution.StaticPowerModel{model},
	}}, time.Unix(0, 0))
	for i, zones := range [][]attribution.ZoneReading{
		{{OK: true}},
		{{Total: 300 * units.Joule}},
		{{Total: 300 * units.Joule}},
		{},
	} {
		engine.Add(engine.Sharer().Share(&attribution.Interval{
			At: time.Unix(10*int64(i), 0), Elapsed: 10 * time.Second,
			Domains: []attribution.Usage{{Busy: units.Second, Total: 10 * units.Second}}, Zones: zones,
		}))
	}
	k := engine.Kinds[0]
	assert.Equal(t, 300*units.Joule, k.Active+k.Idle)
	assert.False(t, model.Trained(0))
}

// allModels returns the constructors of the trained models, by name.
func allModels() map[string]func() *static.Model {
	return map[string]func() *static.Model{
		"minimum":    static.NewMinimum,
		"resting":    func() *static.Model { return static.NewResting(0.1) },
		"base":       func() *static.Model { return static.NewBase(0.1, time.Minute) },
		"regression": func() *static.Model { return static.NewRegression(3, 5) },
		"trained":    static.NewCurve,
	}
}

// varied is a load that takes all values from 0 to 100 %.
func varied(i int) (load, watts float64) {
	load = float64(i%101) / 100
	return load, 40 + 80*load + math.Sin(float64(i))
}

func TestATrainedModelSurvivesARestart(t *testing.T) {
	for name, create := range allModels() {
		before := create()
		_, ok := before.State(0)
		assert.False(t, ok, name)
		for i := range 5000 {
			before.Active(interval(varied(i)))
		}
		state, ok := before.State(0)
		require.True(t, ok, name)
		after := create()
		require.True(t, after.Restore(0, state), name)
		assert.True(t, after.Trained(0), name)
		for i := range 500 {
			p := interval(varied(i))
			require.InDelta(t, float64(before.Active(p)), float64(after.Active(p)), 0.02*float64(p.Energy), name)
		}
		again, _ := after.State(0)
		assert.Len(t, again.Estimator, len(state.Estimator), name)
		assert.False(t, create().Restore(0, static.State{Zones: 1, Estimator: make([]float64, 999)}), name)
	}
}

// Versions before the unreleased one stored the same sums. What was trained before is in use, and
// judged anew.
func TestAStoredCurveOfAnEarlierVersionIsTaken(t *testing.T) {
	for _, c := range []struct {
		lowest  float64
		trained bool
	}{{0, true}, {0.06, false}} {
		before := static.NewCurve()
		for i := range 5000 {
			load, watts := varied(i)
			before.Active(interval(max(load, c.lowest), watts+80*max(c.lowest-load, 0)))
		}
		state, _ := before.State(0)
		stored := static.State{Zones: 1, Static: 41, InUse: true, Estimator: state.Estimator}
		after := static.NewCurve()
		require.True(t, after.Restore(0, stored))
		assert.InDelta(t, 41, after.StaticPower(0), 0)
		assert.Equal(t, c.trained, after.Trained(0))
		assert.Greater(t, after.StandardError(0), 0.9, "the estimate is about 40 W")
	}
}

func TestAnImpossibleStoredModelIsRejected(t *testing.T) {
	for name, create := range allModels() {
		before := create()
		for i := range 5000 {
			before.Active(interval(varied(i)))
		}
		state, _ := before.State(0)
		for i := range state.Estimator {
			for _, wrong := range []float64{-1, 1e30, math.NaN(), math.Inf(1)} {
				if name == "base" && i == 0 && wrong == 1e30 {
					continue // not a power but a time
				}
				right := state.Estimator[i]
				state.Estimator[i] = wrong
				assert.False(t, create().Restore(0, state), "%s: %g for number %d", name, wrong, i)
				state.Estimator[i] = right
			}
		}
		assert.True(t, create().Restore(0, state), name)
		state.Static = 1e7
		assert.False(t, create().Restore(0, state), name)
	}
}

// More than a day, so that everything occasional happens: a new estimate, fading, the lowest power
// of another day.
func TestTrainingAllocatesNothing(t *testing.T) {
	for name, create := range allModels() {
		model := create()
		i := 0
		step := func() {
			i++
			model.Active(interval(varied(i)))
		}
		for range 1000 {
			step()
		}
		assert.True(t, model.Trained(0), name)
		assert.Zero(t, allocs.Count(9000, step), name)
	}
}

// of returns a portion of a domain that has one of two zones.
func of(domain int, load, watts float64) attribution.Portion {
	p := interval(load, watts)
	p.Domain, p.OfAll = domain, 2
	return p
}

func TestEachDomainHasAStaticPowerOfItsOwn(t *testing.T) {
	for name, create := range allModels() {
		both, first, second := create(), create(), create()
		for i := range 5000 {
			load, watts := varied(i)
			one, two := of(1, load, watts), of(2, 1-load, 60+watts)
			assert.Equal(t, first.Active(one), both.Active(one), name)
			assert.Equal(t, second.Active(two), both.Active(two), name)
		}
		assert.InDelta(t, first.StaticPower(1), both.StaticPower(1), 0, name)
		assert.InDelta(t, second.StaticPower(2), both.StaticPower(2), 0, name)
		assert.InDelta(t, second.StandardError(2), both.StandardError(2), 0, name)
		assert.True(t, both.Trained(1) && both.Trained(2), name)
		assert.False(t, both.Trained(0), "%s: it has no zone", name)
		assert.Greater(t, math.Abs(both.StaticPower(2)-both.StaticPower(1)), 5.0, name)
	}
}
