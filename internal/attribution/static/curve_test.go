// SPDX-License-Identifier: Apache-2.0

package static_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// loadCurve is a machine's power by load.
type loadCurve struct {
	name string
	at   func(load float64) float64
}

// through returns the curve that is straight between points of load in percent and power in W, and flat beyond them.
func through(points ...float64) func(float64) float64 {
	return func(load float64) float64 {
		x := 100 * load
		for i := 2; i < len(points); i += 2 {
			if x <= points[i] {
				return points[i-1] + (points[i+1]-points[i-1])*max(x-points[i-2], 0)/(points[i]-points[i-2])
			}
		}
		return points[len(points)-1]
	}
}

// loadCurves are those of receiver/test/accuracy/testdata/load-curves.csv, which names their source, and
// others of many shapes.
var loadCurves = []loadCurve{
	{"Xeon E5-2620 v3", through(0.0, 15.91, 10.0, 30.74, 20.0, 38.20, 30.0, 44.72, 40.5, 62.18, 50.2, 61.49,
		60.0, 75.76, 69.9, 111.75, 80.8, 115.75, 89.7, 117.42, 99.6, 104.97)},
	{"Threadripper 1950X", through(2.8, 42.66, 13.9, 62.02, 23.2, 78.33, 36.4, 105.61, 44.8, 127.58, 53.1, 143.25,
		66.0, 172.51, 72.1, 170.36, 83.1, 169.24, 91.7, 166.89, 99.7, 167.09)},
	{"Xeon E3-1240 V2", through(2.5, 5.46, 12.5, 6.83, 21.8, 8.11, 32.5, 9.44, 41.2, 14.07, 51.3, 23.95,
		60.8, 29.50, 71.3, 44.50, 80.2, 47.16, 88.9, 48.37, 100.0, 49.41)},
	{"straight", func(u float64) float64 { return 40 + 80*u }},
	{"nothing at rest", func(u float64) float64 { return 100 * u }},
	{"concave", func(u float64) float64 { return 50 + 150*(2*u-math.Pow(u, 1.4)) }},
	{"very concave", func(u float64) float64 { return 50 + 150*math.Pow(u, 0.75) }},
	{"convex", func(u float64) float64 { return 30 + 20*u + 100*u*u }},
	{"very convex", func(u float64) float64 { return 10 + 90*u*u }},
	{"high idle floor", func(u float64) float64 { return 180 + 40*u }},
	{"high idle floor, concave", func(u float64) float64 { return 180 + 40*math.Pow(u, 0.8) }},
	{"straight pieces", through(0, 58, 10, 115, 20, 141, 30, 163, 40, 182, 50, 202, 60, 225, 70, 252, 80, 282, 90, 312, 100, 330)},
	{"early bend", through(0, 30, 15, 60, 100, 111)},
	{"late bend", through(0, 30, 70, 72, 85, 90, 100, 120)},
	{"hyperthreads", through(0, 30, 50, 80, 100, 95)},
	{"clock rate", func(u float64) float64 { return 20 + 20*u + 60*u*(0.3+0.7*math.Pow(min(max(1.25*u, 0.4), 1), 3)) }},
	{"cubic", func(u float64) float64 { return 20 + 30*u + 100*u*u*u }},
	{"logarithm", func(u float64) float64 { return 40 + 30*math.Log(1+10*u) }},
	{"slow knee", func(u float64) float64 { return 20 + 15*(1-math.Exp(-u/0.05)) + 80*u }},
}

// day returns a machine's load over 24 h: lowest at night, highest in the afternoon, and different from one 10 s to the
// next. It is never below floor.
func day(r *rand.Rand, floor, peak float64, each func(load float64)) {
	for at := range 24 * 360 {
		around := floor + (peak-floor)*(1-math.Cos(2*math.Pi*float64(at)/(24*360)))/2
		load := floor + (around-floor)*(1+0.5*r.NormFloat64()) + 0.01*r.ExpFloat64()
		if r.IntN(100) == 0 { // a batch job
			load += 0.3
		}
		each(min(max(load, floor), 1))
	}
}

// interval returns an interval of 10 s on 16 CPUs.
func interval(load, watts float64) attribution.Portion {
	const elapsed = 10 * time.Second
	return attribution.Portion{
		Energy: units.Energy(watts * elapsed.Seconds() * 1e6), Elapsed: elapsed, Zones: 1, Of: 1, OfAll: 1,
		Busy: units.CPUTime(load * 16 * float64(elapsed)), Total: units.CPUTime(16 * elapsed),
	}
}

// worst returns the largest error of the active energy at loads from 10 to 100 %, relative to the measured energy above
// idle.
func worst(active func(attribution.Portion) units.Energy, c loadCurve) (worst, at float64) {
	for load := 0.1; load < 1.001; load += 0.05 {
		truth := c.at(load) - c.at(0)
		got := active(interval(load, c.at(load))).Joules() / 10
		if e := got/truth - 1; math.Abs(e) > math.Abs(worst) {
			worst, at = e, load
		}
	}
	return worst, at
}

// firstLoads is where the measurement of the curves that are measured begins, in percent of load.
var firstLoads = map[string]float64{"Xeon E5-2620 v3": 0, "Threadripper 1950X": 2.8, "Xeon E3-1240 V2": 2.5}

// trainedOver returns a model that was trained for a day.
func trainedOver(c loadCurve, seed uint64, floor, peak, noise float64) *static.Model {
	r := rand.New(rand.NewPCG(seed, 2))
	model := static.NewCurve()
	day(r, floor, peak, func(load float64) {
		model.Active(interval(load, c.at(load)*(1+noise*r.NormFloat64())))
	})
	return model
}

// trainedCase is a model that was trained for a day on a curve.
type trainedCase struct {
	loadCurve
	floor, noise float64
	model        *static.Model
	off          float64 // worst error of the active energy
	at           float64 // the load with it
}

func (c *trainedCase) String() string {
	return fmt.Sprintf("%s, %.0f %% at night, noise of %g: at a load of %.2f, %.2f W at rest and not %.2f", c.name, 100*c.floor,
		c.noise, c.at, c.model.StaticPower(0), c.loadCurve.at(0))
}

// isFlatAtFirst reports whether the measurement of the curve begins at a load that never occurs in
// the case, so that what is below it is flat.
func (c *trainedCase) isFlatAtFirst() bool { return c.floor > 0 && firstLoads[c.name] > 0.6 }

// trainedCases returns models after days of steady intervals with nights at these loads, on all curves.
var trainedCases = sync.OnceValue(func() (cases []*trainedCase) {
	for _, c := range allCurves() {
		for _, floor := range nights {
			for seed, noise := range []float64{0, 0.01} {
				if floor == 0.1 && noise == 0 {
					continue // it takes a while, and shows the same
				}
				model := trainedOver(c, uint64(seed), floor, 0.5+0.2*float64(seed), noise)
				e, at := worst(model.Active, c)
				cases = append(cases, &trainedCase{c, floor, noise, model, e, at})
			}
		}
	}
	return cases
})

var nights = []float64{0, 0.01, 0.02, 0.03, 0.05, 0.1}

func TestTheTrainedCurveIsWithin10PercentAfterADayWithNightsNearRest(t *testing.T) {
	for _, c := range trainedCases() {
		if c.floor > 0.02 {
			continue
		}
		most := 0.1
		if c.isFlatAtFirst() {
			most = 0.17 // with nights at 2 %, where the measurement begins at 1.3 %
		}
		assert.True(t, c.model.Trained(0), c)
		assert.LessOrEqual(t, math.Abs(c.off), most, c)
	}
}

// Curves that are flat at first are those whose measurement begins at 1.3 to 5 % load: below it the
// tests assume the power at its first load. The model has no samples there, and is not trained.
func TestTheTrainedCurveIsWithin15PercentAfterADayWithNightsAt5Percent(t *testing.T) {
	for _, c := range trainedCases() {
		if c.floor > 0.05 || c.isFlatAtFirst() {
			continue
		}
		most := 0.15
		if slices.Contains([]string{"straight", "nothing at rest", "high idle floor", "late bend", "hyperthreads"}, c.name) {
			most = 0.07
		}
		assert.LessOrEqual(t, math.Abs(c.off), most, c)
	}
}

// What lies below a load that the node never left is not known, however smooth the power is above.
func TestTheCurveIsNotTrainedFarFromRest(t *testing.T) {
	logErrors(t)
	for _, c := range trainedCases() {
		assert.Equal(t, c.floor < 0.03, c.model.Trained(0), c)
		assert.True(t, c.model.StandardError(0) > 0 || c.floor > 0.05, c)
	}
}

// logErrors logs the range of the worst errors of each kind of nights.
func logErrors(t *testing.T) {
	for _, floor := range nights {
		for _, flat := range []bool{false, true} {
			n, inUse := 0, 0
			least, most := 0.0, 0.0
			for _, c := range trainedCases() {
				if c.floor != floor || c.isFlatAtFirst() != flat {
					continue
				}
				if n++; c.model.StandardError(0) >= 0 {
					inUse++
					least, most = min(least, c.off), max(most, c.off)
				}
			}
			if n > 0 {
				t.Logf("nights at %.0f %%, flat at first: %v: %d of %d in use, %+.0f to %+.0f %%", 100*floor, flat, inUse, n, 100*least, 100*most)
			}
		}
	}
}

// Static power does not drift on these curves, but the standard error allows for drift. On measured machines
// it is exceeded more often: see receiver/test/replay.
func TestTheTruthIsWithinTheStandardErrorInMoreThanTwoOfThreeCases(t *testing.T) {
	within := func(name string, cases []*trainedCase, of func(*trainedCase) bool) (n, in float64) {
		for _, c := range cases {
			if of(c) {
				n++
				if math.Abs(c.model.StaticPower(0)-c.loadCurve.at(0)) <= c.model.StandardError(0) {
					in++
				}
			}
		}
		t.Logf("%s: %.0f of %.0f cases, %.0f %%", name, in, n, 100*in/n)
		return n, in
	}
	for _, measured := range []bool{false, true} {
		part := func(c *trainedCase) bool {
			_, is := firstLoads[c.name]
			return c.model.Trained(0) && is == measured
		}
		n, in := within(fmt.Sprintf("steady, measured curves: %v", measured), trainedCases(), part)
		more, moreIn := within(fmt.Sprintf("moments of rest, measured curves: %v", measured), lifeCases(), part)
		assert.GreaterOrEqual(t, (in+moreIn)/(n+more), 0.675, "measured curves: %v", measured)
	}
	for _, floor := range nights[3:] {
		n, in := within(fmt.Sprintf("steady, nights at %.0f %%, not trained", 100*floor), trainedCases(), func(c *trainedCase) bool {
			return c.floor == floor && !c.model.Provisional(0)
		})
		assert.GreaterOrEqual(t, in/n, 0.6, "nights at %v", floor)
	}
}

// A node for batch jobs is at rest or at full load, and hardly ever in between.
func TestTheTrainedCurveNeedsNoLoadsInBetween(t *testing.T) {
	for _, c := range loadCurves {
		r := rand.New(rand.NewPCG(1, 2))
		model := static.NewCurve()
		for i := range 2000 {
			load := 0.0005 * r.Float64()
			if i/100%3 == 1 {
				load = 0.95 + 0.05*r.Float64()
			}
			model.Active(interval(load, c.at(load)*(1+0.002*r.NormFloat64())))
		}
		assert.True(t, model.Trained(0), c.name)
		e, _ := worst(model.Active, c)
		assert.Less(t, math.Abs(e), 0.12, c.name)
	}
}

func TestTheTrainedCurveDoesNotTrustAFewSamples(t *testing.T) {
	c := loadCurves[3]
	model := static.NewCurve()
	for i := range 50 {
		load := 0.01 * float64(i%5)
		model.Active(interval(load, c.at(load)))
	}
	assert.False(t, model.Trained(0))
}

// A machine that draws 5 W more from one day on is followed within a few days, without a jump.
func TestTheTrainedCurveDriftsWithTheMachine(t *testing.T) {
	c := loadCurves[3]
	model := trainedOver(c, 1, 0, 0.7, 0.01)
	r := rand.New(rand.NewPCG(3, 4))
	before := model.StaticPower(0)
	for range 5 {
		day(r, 0, 0.7, func(load float64) {
			model.Active(interval(load, (c.at(load)+5)*(1+0.01*r.NormFloat64())))
			now := model.StaticPower(0)
			assert.Less(t, math.Abs(now-before), 0.1, "W in 10 s")
			before = now
		})
	}
	assert.InDelta(t, 45, before, 1)
}

// A machine that draws 20 W more from one day on, and never rests from then on, is followed within two weeks.
func TestTheTrainedCurveForgetsLoadsThatNoLongerCome(t *testing.T) {
	c := loadCurves[3]
	model := trainedOver(c, 1, 0, 0.7, 0.01)
	r := rand.New(rand.NewPCG(3, 4))
	for range 14 {
		day(r, 0.06, 0.7, func(load float64) {
			model.Active(interval(load, (c.at(load)+20)*(1+0.01*r.NormFloat64())))
		})
	}
	assert.InDelta(t, 60, model.StaticPower(0), 1)
	assert.False(t, model.Trained(0), "what is below 6 % is long ago")
	assert.Less(t, math.Abs(model.StaticPower(0)-60), model.StandardError(0))
}

func TestWithoutLoadToTellApartAllEnergyIsStatic(t *testing.T) {
	flat := loadCurve{"flat", func(float64) float64 { return 4 }}
	for seed, noise := range []float64{0, 0.001, 0.01} {
		model := trainedOver(flat, uint64(seed), 0.01, 0.6, noise)
		assert.InDelta(t, 4, model.StaticPower(0), 0.02)
	}
}

func TestStaticPowerIsNeitherNegativeNorAboveThatAtTheLowestLoad(t *testing.T) {
	steep := loadCurve{"steep", through(0, 0, 5, 0, 100, 950)}
	assert.Zero(t, trainedOver(steep, 1, 0.06, 0.6, 0).StaticPower(0))
	falling := loadCurve{"falling", through(0, 100, 100, 50)}
	assert.InDelta(t, falling.at(0.06), trainedOver(falling, 1, 0.06, 0.6, 0).StaticPower(0), 0.5)
}

// With nights at 5 % the estimate is in use before the model is trained. A moment of rest is enough
// for that, and a month without one makes it doubtful again.
func TestTheCurveIsTrainedWhileItKnowsRest(t *testing.T) {
	c := loadCurves[3]
	model := trainedOver(c, 1, 0.05, 0.6, 0.003)
	assert.False(t, model.Trained(0))
	assert.InDelta(t, c.at(0), model.StaticPower(0), 0.5)
	p := interval(0.2, c.at(0.2))
	assert.InDelta(t, 16, model.Active(p).Joules()/10, 0.5, "16 W are above rest, and not 20 % of 56 W")
	far := model.StandardError(0)
	r := rand.New(rand.NewPCG(5, 6))
	for range 60 {
		load := 0.004 * r.Float64()
		model.Active(interval(load, c.at(load)*(1+0.003*r.NormFloat64())))
	}
	assert.True(t, model.Trained(0))
	assert.Less(t, model.StandardError(0), far/2)
	for range 30 {
		day(r, 0.05, 0.6, func(load float64) {
			model.Active(interval(load, c.at(load)*(1+0.003*r.NormFloat64())))
		})
	}
	assert.False(t, model.Trained(0))
	assert.Greater(t, model.StandardError(0), far/2)
}

// Before, the static power in use is 5 W too high. Ten minutes of rest would not be enough to follow.
func TestTheFirstTrainedEstimateIsInUseAtOnce(t *testing.T) {
	c := loadCurve{"steep knee", func(u float64) float64 { return 40 + 5*(1-math.Exp(-u/0.005)) + 80*u }}
	model := trainedOver(c, 1, 0.05, 0.6, 0)
	assert.False(t, model.Trained(0))
	assert.InDelta(t, 45, model.StaticPower(0), 0.5)
	for i := 0; i < 1000 && !model.Trained(0); i++ {
		load := 0.001 * float64(i%5)
		model.Active(interval(load, c.at(load)))
	}
	assert.True(t, model.Trained(0))
	assert.InDelta(t, 40, model.StaticPower(0), 0.5)
}

// Otherwise it would come and go on a machine whose nights are at the limit.
func TestATrainedCurveMayBecomeWorseThanOneThatIsNotTrainedYet(t *testing.T) {
	c := loadCurves[3]
	model := trainedOver(c, 1, 0.02, 0.6, 0.003)
	assert.True(t, model.Trained(0))
	r := rand.New(rand.NewPCG(5, 6))
	for range 30 {
		day(r, 0.03, 0.6, func(load float64) {
			model.Active(interval(load, c.at(load)*(1+0.003*r.NormFloat64())))
		})
	}
	assert.True(t, model.Trained(0), "trained before")
	assert.False(t, trainedOver(c, 1, 0.03, 0.6, 0.003).Trained(0), "not trained before")
}
