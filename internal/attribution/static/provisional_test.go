// SPDX-License-Identifier: Apache-2.0

package static_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
)

func TestAtRestTheProvisionalStaticPowerIsThePowerMeasured(t *testing.T) {
	model := static.NewCurve()
	assert.InDelta(t, 0, watts(model, 0.003, 142), 1e-9, "in the first sample")
	assert.InDelta(t, 142, model.StaticPower(0), 1e-9)
	assert.True(t, model.Provisional(0))
	assert.False(t, model.Trained(0))
	assert.InDelta(t, 30, watts(model, 0.9, 172), 1.5, "under load, rest is known already")
}

// A tenth of a second weighs a tenth of a sample, whose power is off by 10 %: 142 W * 0.1 / √0.1 =
// 45 W.
func TestTheStandardErrorOfOneSampleAtRestIsThatOfASample(t *testing.T) {
	model := counters()
	tenth := interval(0, 142)
	tenth.Energy, tenth.Busy, tenth.Total, tenth.Elapsed = tenth.Energy/100, tenth.Busy/100, tenth.Total/100, tenth.Elapsed/100
	model.Active(tenth)
	assert.InDelta(t, 142, model.StaticPower(0), 1e-3)
	assert.InDelta(t, 45, model.StandardError(0), 1)
	for range 99 {
		model.Active(tenth)
	}
	assert.True(t, model.Provisional(0))
	assert.InDelta(t, 4.5, model.StandardError(0), 0.1, "after 10 s")
	model = static.NewCurve()
	model.Active(interval(0, 142))
	assert.InDelta(t, 14.2, model.StandardError(0), 0.1, "after a sample of 10 s")
}

// The prior of 0.3 says that 30 of 100 W at full load are static, and more at half load.
func TestAtConstantLoadTheProvisionalStaticPowerIsThePriorsPart(t *testing.T) {
	prior := static.Prior{Ratio: 0.3, Deviation: 0.29}
	model := static.NewCurveWithPrior(prior)
	assert.InDelta(t, 70, watts(model, 1, 100), 1)
	assert.InDelta(t, 29, model.StandardError(0), 1)
	for range 1000 {
		model.Active(interval(1, 100))
	}
	assert.InDelta(t, 70, watts(model, 1, 100), 1, "however long the load lasts")
	assert.True(t, model.Provisional(0))
	model = static.NewCurveWithPrior(prior)
	assert.InDelta(t, 58, watts(model, 0.5, 100), 1)
}

// The prior without gemini-1, whose packages and DRAM have the highest ratios, is lower.
func TestThePriorReportsWhetherAMachineWasExcluded(t *testing.T) {
	all := static.MeasuredPrior()
	assert.InDelta(t, 0.36, all.Ratio, 0.005)
	without, excluded := static.PriorWithout("gemini-1")
	assert.True(t, excluded)
	assert.InDelta(t, 0.31, without.Ratio, 0.005)
	without, excluded = static.PriorWithout("Gemini 1")
	assert.False(t, excluded)
	assert.Equal(t, all, without)
}

func TestAPortionBeforeTheFirstSampleIsDividedByThePrior(t *testing.T) {
	model := static.NewCurveWithPrior(static.Prior{Ratio: 0.3, Deviation: 0.29})
	for load, active := range map[float64]float64{0: 0, 0.005: 0, 0.5: 580, 1: 700} {
		p := interval(load, 100)
		p.Partial = true
		assert.InDelta(t, active, model.Active(p).Joules(), 10, "load of %g", load)
	}
	assert.Negative(t, model.StandardError(0))
}

// 60 and 100 W at 30 and 90 %: a line through both ends near 31 W, and the prior alone says 48 W.
func TestWithoutRestTheProvisionalStaticPowerIsBetweenTheLineAndThePrior(t *testing.T) {
	model := static.NewCurveWithPrior(static.Prior{Ratio: 0.6, Deviation: 0.29})
	model.Active(interval(0.3, 60))
	assert.InDelta(t, 48, model.StaticPower(0), 1)
	for i := range 200 {
		model.Active(interval(0.3+0.6*float64(i%2), 60+40*float64(i%2)))
	}
	assert.InDelta(t, 44, model.StaticPower(0), 1)
	assert.True(t, model.Provisional(0))
}

func TestTheFirstEstimateReplacesTheProvisionalOne(t *testing.T) {
	model := static.NewCurve()
	for i := range 300 {
		model.Active(interval(varied(i)))
	}
	assert.False(t, model.Provisional(0))
	assert.True(t, model.Trained(0))
	assert.InDelta(t, 40, model.StaticPower(0), 1)
}

// visit passes 50 samples at rest and 50 at a load of 50 %, 30 W above.
func visit(model *static.Model, rest float64) {
	for i := range 100 {
		load := 0.5 * float64(i/50)
		model.Active(interval(load, rest+60*load))
	}
}

func counters() *static.Model {
	model := static.NewCurve()
	model.TakeShortSamples()
	return model
}

func TestAStepOfThePowerAtRestIsFollowedOnCounters(t *testing.T) {
	for _, step := range []float64{2.3, -2.3} {
		model, other := counters(), static.NewCurve()
		for range 20 {
			visit(model, 142)
			visit(other, 142)
		}
		assert.InDelta(t, 142, model.StaticPower(0), 0.1)
		for range 2 {
			visit(model, 142+step)
			visit(other, 142+step)
		}
		assert.InDelta(t, 142+step, model.StaticPower(0), 0.3)
		assert.InDelta(t, 142, other.StaticPower(0), 1, "other meters are followed within days")
		state, _ := model.State(0)
		after := counters()
		assert.True(t, after.Restore(0, state))
		assert.InDelta(t, model.StaticPower(0), after.StaticPower(0), 0)
		assert.InDelta(t, model.StandardError(0), after.StandardError(0), 0.05)
	}
}

// On a machine that never rests, the power at the lowest load depends on the workload.
func TestAnotherWorkloadIsNoStep(t *testing.T) {
	model := counters()
	for i := range 4000 {
		load := 0.15 + 0.2*float64(i/50%3)
		model.Active(interval(load, 40+100*load))
	}
	assert.InDelta(t, 40, model.StaticPower(0), 2)
	for i := range 1000 {
		load := 0.15 + 0.2*float64(i/50%3)
		model.Active(interval(load, 40+150*load))
	}
	assert.InDelta(t, 40, model.StaticPower(0), 2)
}

// Heat after load adds 0.4 W for 45 s of each visit.
func TestHeatAfterLoadIsNoStep(t *testing.T) {
	model := counters()
	for range 50 {
		for i := range 240 {
			p := interval(0.5*float64(i/120), 142+60*0.5*float64(i/120))
			if i < 45 {
				p = interval(0, 142.4)
			}
			p.Elapsed /= 10
			p.Energy /= 10
			p.Busy /= 10
			p.Total /= 10
			model.Active(p)
		}
		assert.InDelta(t, 142.15, model.StaticPower(0), 0.2)
	}
}

func TestModelsOfPowerSensorsAreNeverTrained(t *testing.T) {
	model := static.NewCurve()
	model.TakePowerSensors()
	for i := range 5000 {
		model.Active(interval(varied(i)))
	}
	assert.False(t, model.Trained(0))
	assert.False(t, model.Provisional(0))
	assert.InDelta(t, 40, model.StaticPower(0), 1)
	assert.Greater(t, model.StandardError(0), 0.4)
}

func TestTheStandardErrorIncludesTheDifferencesBetweenVisitsToRest(t *testing.T) {
	same, different := counters(), counters()
	for i := range 20 {
		visit(same, 142)
		visit(different, 142+0.3*float64(i%2))
	}
	assert.Less(t, same.StandardError(0), 0.12)
	assert.Greater(t, different.StandardError(0), 0.15)
	assert.Less(t, different.StandardError(0), 0.3)
}

func TestTheStandardErrorGrowsWhileTheMachineDoesNotRest(t *testing.T) {
	model := counters()
	for range 10 {
		visit(model, 142)
	}
	rested := model.StandardError(0)
	gap := interval(0, 142)
	gap.Elapsed = 300 * 24 * time.Hour
	model.Active(gap)
	for range 40 {
		model.Active(interval(0.5, 172))
	}
	assert.Greater(t, model.StandardError(0), rested+1, "W after ten months")
	visit(model, 142)
	visit(model, 142)
	assert.InDelta(t, rested, model.StandardError(0), 0.1)
}

// On measured machines under constant load, the prior of all others is worse than the utilization
// rule at full load, where that rule is best, and better below.
func TestUnderConstantLoadTheProvisionalEstimateIsWithinTwoStandardErrors(t *testing.T) {
	for _, load := range []float64{0.5, 0.75, 1} {
		var off, rule []float64
		within, n := 0, 0
		for _, c := range measuredCurves() {
			machine := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(c.name, " package"), " DRAM"), " some cores"), " with cores")
			prior, excluded := static.PriorWithout(machine)
			require.True(t, excluded, machine)
			model := static.NewCurveWithPrior(prior)
			for range 10 {
				model.Active(interval(load, c.at(load)))
			}
			p := interval(load, c.at(load))
			truth := c.at(load) - c.at(0)
			off = append(off, math.Abs(model.Active(p).Joules()/10/truth-1))
			rule = append(rule, math.Abs(attribution.ByUtilization(p).Joules()/10/truth-1))
			n++
			if math.Abs(model.StaticPower(0)-c.at(0)) <= 2*model.StandardError(0) {
				within++
			}
		}
		slices.Sort(off)
		slices.Sort(rule)
		t.Logf("load of %.0f %%: median %.0f %%, worst %.0f %%; utilization rule: median %.0f %%, worst %.0f %%; within two standard errors %d of %d",
			100*load, 100*off[n/2], 100*off[n-1], 100*rule[n/2], 100*rule[n-1], within, n)
		assert.GreaterOrEqual(t, float64(within), 0.9*float64(n))
	}
}

// busy passes days of a constant load of 50 %, 30 W above rest, in windows of 5 minutes.
func busy(model *static.Model, rest float64, days int) {
	p := interval(0.5, rest+30)
	p.Energy, p.Elapsed = 30*p.Energy, 30*p.Elapsed
	for range days * 24 * 12 {
		model.Active(p)
	}
}

// The samples at rest fade in 16 days, so that the estimator alone has a provisional estimate.
func TestAProvisionalEstimateDoesNotReplaceARestoredStaticPower(t *testing.T) {
	model := counters()
	for range 20 {
		visit(model, 142)
	}
	busy(model, 142, 20)
	before := model.StaticPower(0)
	assert.InDelta(t, 142, before, 0.5)
	assert.False(t, model.Provisional(0))
	state, ok := model.State(0)
	require.True(t, ok)
	after := counters()
	require.True(t, after.Restore(0, state))
	for range 2 { // samples
		assert.InDelta(t, before, after.StaticPower(0), 1e-9)
		assert.InDelta(t, model.StandardError(0), after.StandardError(0), 0.5)
		assert.False(t, after.Provisional(0))
		after.Active(interval(0.5, 172))
	}
	state.Provisional = true
	require.True(t, after.Restore(0, state))
	assert.True(t, after.Provisional(0))
	after.Active(interval(0.5, 172))
	assert.Less(t, after.StaticPower(0), 100.0, "a provisional estimate follows the samples")
}

func TestAModelStartsOverWhenAnotherMeterReadsItsZones(t *testing.T) {
	model := counters()
	for range 20 {
		visit(model, 142)
	}
	assert.True(t, model.Trained(0))
	model.TakeShortSamples()
	assert.True(t, model.Trained(0), "the same meter")
	model.TakePowerSensors()
	assert.Zero(t, model.StaticPower(0))
	for range 20 {
		visit(model, 150)
	}
	assert.False(t, model.Trained(0))
	assert.InDelta(t, 150, model.StaticPower(0), 1)
}
