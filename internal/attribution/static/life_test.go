// SPDX-License-Identifier: Apache-2.0

package static_test

import (
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// measuredCurves returns those of testdata/load-curves.csv, which names their sources.
func measuredCurves() (curves []loadCurve) {
	f, err := os.Open("testdata/load-curves.csv")
	if err != nil {
		panic(err)
	}
	defer func() { _ = f.Close() }()
	r := csv.NewReader(f)
	r.Comment = '#'
	rows, err := r.ReadAll()
	if err != nil {
		panic(err)
	}
	points := map[string][]float64{}
	for _, row := range rows[1:] {
		name := row[0]
		if points[name] == nil {
			curves = append(curves, loadCurve{name: name})
		}
		for _, field := range row[1:] {
			number, err := strconv.ParseFloat(field, 64)
			if err != nil {
				panic(err)
			}
			points[name] = append(points[name], number)
		}
	}
	for i := range curves {
		c := &curves[i]
		c.at = through(points[c.name]...)
		firstLoads[c.name] = points[c.name][0]
	}
	return curves
}

// allCurves returns all curves of these tests.
var allCurves = sync.OnceValue(func() []loadCurve { return append(measuredCurves(), loadCurves...) })

type portion = attribution.Portion

// life is a machine on which jobs arrive at random, each of which keeps one CPU busy. A day of it
// takes 1000 s: at night the mean load is floor, in the afternoon 60 %.
type life struct {
	cpus   int
	floor  float64
	window time.Duration
}

func (l life) String() string {
	return fmt.Sprintf("%d CPUs, %.0f %% at night, windows of %v", l.cpus, 100*l.floor, l.window)
}

const (
	lifeDay = 1000.0 // s
	// shortJob is the mean length of half of the jobs in s. The others are ten times as long. The
	// lengths vary.
	shortJob = 0.02
)

// portions calls each with all windows of a day. They are seen as a receiver sees them: the energy
// counter moves once a millisecond, CPU times are read up to 0.2 ms later, and a running job's time
// is up to 4 ms old.
func (l life) portions(r *rand.Rand, c loadCurve, each func(portion)) {
	var (
		now      float64   // s
		jobs     []float64 // when each running job ends
		energy   float64   // J until now
		busy     float64   // s of CPU time until now
		lastE    float64
		lastB    float64
		lastAt   float64
		boundary = l.window.Seconds()
		cpus     = float64(l.cpus)
	)
	length := func() float64 {
		if r.IntN(2) == 0 {
			return 10 * shortJob * r.ExpFloat64()
		}
		return shortJob * r.ExpFloat64()
	}
	rate := func() float64 {
		load := l.floor + (0.6-l.floor)*(1-math.Cos(2*math.Pi*now/lifeDay))/2
		return load * cpus / (5.5 * shortJob)
	}
	watts := func() float64 { return c.at(float64(len(jobs)) / cpus) }
	arrival := r.ExpFloat64() / rate()
	for now < lifeDay {
		next, ends := min(arrival, boundary), -1
		for i, end := range jobs {
			if end < next {
				next, ends = end, i
			}
		}
		energy += watts() * (next - now)
		busy += float64(len(jobs)) * (next - now)
		now = next
		switch {
		case ends >= 0:
			jobs[ends] = jobs[len(jobs)-1]
			jobs = jobs[:len(jobs)-1]
		case next == boundary:
			readE := energy - watts()*0.001*r.Float64()
			readB := busy + float64(len(jobs))*0.0002*r.Float64()
			for range jobs {
				readB -= 0.004 * r.Float64()
			}
			total := units.CPUTime(l.cpus) * units.CPUTime(l.window)
			used := max(readB-lastB, 0)
			each(portion{
				Energy: units.Energy(max(readE-lastE, 0) * 1e6), Elapsed: time.Duration((now - lastAt) * 1e9),
				Busy: min(units.CPUTime(used*1e9), total), Total: total, Zones: 1, Of: 1, OfAll: 1,
			})
			lastE, lastB, lastAt = readE, max(readB, lastB), now
			boundary += l.window.Seconds()
		default:
			if len(jobs) < l.cpus {
				jobs = append(jobs, now+length())
			}
			arrival = now + r.ExpFloat64()/rate()
		}
	}
}

// trained returns a model that was trained for a day.
func (l life) trained(c loadCurve) *static.Model {
	model := static.NewCurve()
	model.TakeShortSamples()
	l.portions(rand.New(rand.NewPCG(1, 2)), c, func(p portion) { model.Active(p) })
	return model
}

// momentsOfRest are days in which 16 CPUs rest now and then.
var momentsOfRest = []life{
	{16, 0.03, 100 * time.Millisecond},
	{16, 0.05, 100 * time.Millisecond},
	{16, 0.1, 100 * time.Millisecond},
	{16, 0.03, time.Second},
	{16, 0.05, time.Second},
}

// lifeCases returns models after these days, on all curves.
var lifeCases = sync.OnceValue(func() (cases []*trainedCase) {
	for _, l := range momentsOfRest {
		for _, c := range allCurves() {
			model := l.trained(c)
			e, at := worst(model.Active, c)
			cases = append(cases, &trainedCase{c, l.floor, 0, model, e, at})
		}
	}
	return cases
})

// The mean load says little of how often a machine rests: at 5 % on 16 CPUs, none is busy in a
// third of all tenths of a second.
func TestShortWindowsSeeMomentsOfRest(t *testing.T) {
	for i, l := range momentsOfRest {
		most := 0.0
		for _, c := range lifeCases()[i*len(allCurves()):][:len(allCurves())] {
			assert.True(t, c.model.Trained(0), "%v: %v", l, c)
			assert.LessOrEqual(t, math.Abs(c.off), 0.1, "%v: %v", l, c)
			most = max(most, math.Abs(c.off))
		}
		t.Logf("%v: up to %.1f %%", l, 100*most)
	}
}

// randomCurve returns a curve of straight pieces that bends by a half at random loads, most of them
// low ones.
func randomCurve(seed uint64) loadCurve {
	r := rand.New(rand.NewPCG(seed, 5))
	rest := math.Pow(10, 0.5+1.8*r.Float64())
	full := rest * math.Pow(10, -0.5+1.5*r.Float64())
	bends := []float64{100}
	for range 4 + r.IntN(5) {
		bends = append(bends, math.Pow(10, 0.3+1.7*r.Float64()))
	}
	slices.Sort(bends)
	points, load, watts := []float64{0, 0}, 0.0, 0.0
	for _, bend := range bends {
		watts += (bend - load) * math.Exp(0.5*r.NormFloat64())
		load = bend
		points = append(points, load, watts)
	}
	for i := 1; i < len(points); i += 2 {
		points[i] = rest + full*points[i]/watts
	}
	return loadCurve{fmt.Sprintf("random curve %d", seed), through(points...)}
}

func TestRandomCurvesAreTrained(t *testing.T) {
	var steady, short float64
	var held [3]int // by the standard error, of steady nights at 1 %, moments of rest, steady nights at 5 %
	steadyDay := make([]float64, 0, 40)
	for seed := range uint64(40) {
		c := randomCurve(seed)
		near, rests, far := trainedOver(c, seed, 0.01, 0.6, 0.003), life{16, 0.05, 100 * time.Millisecond}.trained(c), trainedOver(c, seed, 0.05, 0.6, 0.003)
		e, at := worst(near.Active, c)
		assert.LessOrEqual(t, math.Abs(e), 0.1, "%s, nights at 1 %%, at a load of %.2f", c.name, at)
		steady = max(steady, math.Abs(e))
		e, at = worst(rests.Active, c)
		assert.LessOrEqual(t, math.Abs(e), 0.1, "%s, moments of rest, at a load of %.2f", c.name, at)
		short = max(short, math.Abs(e))
		e, _ = worst(far.Active, c)
		assert.False(t, far.Trained(0), "%s, nights at 5 %%, steady", c.name)
		steadyDay = append(steadyDay, math.Abs(e))
		for i, model := range []*static.Model{near, rests, far} {
			if math.Abs(model.StaticPower(0)-c.at(0)) <= model.StandardError(0) {
				held[i]++
			}
		}
	}
	slices.Sort(steadyDay)
	t.Logf("nights at 1 %%: up to %.1f %%; at 5 %% in windows of 100 ms: up to %.1f %%; at 5 %%, steady: half within %.0f %%", 100*steady, 100*short,
		100*steadyDay[len(steadyDay)/2])
	t.Logf("within the standard error, of 40: %d, %d, %d", held[0], held[1], held[2])
	assert.GreaterOrEqual(t, min(held[0], held[1]), 24, "the standard error is not calibrated on these curves")
	assert.GreaterOrEqual(t, held[2], 20, "far from rest a half is what can be had")
}

// measuredFromRest returns the measured curves that begin at rest.
func measuredFromRest() (curves []loadCurve) {
	for _, c := range allCurves() {
		if first, measured := firstLoads[c.name]; measured && first <= 0.6 {
			curves = append(curves, c)
		}
	}
	return curves
}

// bends are how the power may rise from rest to a load of 10 %, as parts of both.
var bends = []struct {
	name   string
	at     func(part float64) float64
	shows  bool    // in what the levels nearest to rest say alone
	little bool    // so little that the model is trained after nights at 1 and 2 %
	most   float64 // error with moments of rest of 64 CPUs
}{
	{"load^0.75", func(part float64) float64 { return math.Pow(part, 0.75) }, true, true, 0.15},
	{"load^0.5", func(part float64) float64 { return math.Pow(part, 0.5) }, true, false, 0.15},
	{"load^0.4", func(part float64) float64 { return math.Pow(part, 0.4) }, false, false, 0.25},
	{"load / (load + 2 %)", func(part float64) float64 { return 1.2 * part / (part + 0.2) }, false, false, 0.25},
}

// Measurements at every 10 % do not show how the power bends in between, and the tests' curves are
// straight there. With another bend below the first 10 % only moments of rest show the static
// power: the night's load decides. Some bends show in the levels nearest to rest: the model is
// then not trained if its static power is far off.
func TestABendBelowThePointsOfAMeasurement(t *testing.T) {
	for _, bend := range bends {
		tally := func(name string, after func(loadCurve) *static.Model) (trained int, called, most float64) {
			within := 0
			for _, c := range measuredFromRest() {
				c = c.bent(bend.at)
				model := after(c)
				e, _ := worst(model.Active, c)
				most = max(most, math.Abs(e))
				if model.Trained(0) {
					trained++
					called = max(called, math.Abs(e))
				}
				if math.Abs(model.StaticPower(0)-c.at(0)) <= model.StandardError(0) {
					within++
				}
			}
			t.Logf("%s, %s: up to %.1f %%; %d of %d trained, up to %.1f %%; within the standard error %d", bend.name, name, 100*most, trained,
				len(measuredFromRest()), 100*called, within)
			return trained, called, most
		}
		for _, night := range []float64{0, 0.01, 0.02, 0.05} {
			trained, _, most := tally(fmt.Sprintf("steady nights at %.0f %%", 100*night), func(c loadCurve) *static.Model {
				return trainedOver(c, 1, night, 0.6, 0.003)
			})
			switch {
			case night == 0:
				assert.Equal(t, len(measuredFromRest()), trained, bend.name)
				assert.Less(t, most, 0.06, bend.name)
			case night > 0.03:
				assert.Zero(t, trained, bend.name)
			case bend.little:
				assert.Equal(t, len(measuredFromRest()), trained, bend.name)
				assert.Less(t, most, 0.1, "%s, nights at %g", bend.name, night)
			case bend.shows:
				assert.Zero(t, trained, "%s, nights at %g", bend.name, night)
			default:
				assert.Greater(t, most, 0.15, "%s, nights at %g", bend.name, night)
			}
		}
		for cpus, limit := range map[int]float64{16: 0.03, 64: bend.most} {
			trained, called, most := tally(fmt.Sprintf("moments of rest of %d CPUs", cpus), life{cpus, 0.05, 100 * time.Millisecond}.trained)
			assert.Less(t, most, limit, "%s, %d CPUs", bend.name, cpus)
			if cpus == 16 {
				assert.Equal(t, len(measuredFromRest()), trained, bend.name)
			} else if bend.shows {
				assert.Less(t, called, 0.12, bend.name)
			}
		}
	}
}

// bent returns a curve with the same power at rest and at 10 %, and a bend in between.
func (c loadCurve) bent(bend func(float64) float64) loadCurve {
	of := c.at
	c.at = func(load float64) float64 {
		if load >= 0.1 {
			return of(load)
		}
		return of(0) + (of(0.1)-of(0))*bend(load/0.1)
	}
	return c
}

// On more CPUs, or in longer windows, some job runs at any time. A trained model is right
// even then.
func TestWithFewMomentsOfRestTheCurveIsRightOrNotTrained(t *testing.T) {
	for _, l := range []life{
		{16, 0.1, time.Second}, {64, 0.05, 100 * time.Millisecond}, {64, 0.05, time.Second}, {64, 0.1, 100 * time.Millisecond},
	} {
		trained, n, most := 0, 0, 0.0
		for i, c := range allCurves() {
			if i%4 > 0 {
				continue // it takes a while
			}
			n++
			model := l.trained(c)
			if !model.Trained(0) {
				continue
			}
			trained++
			e, at := worst(model.Active, c)
			assert.LessOrEqual(t, math.Abs(e), 0.15, "%v: %s, at a load of %.2f, %.2f W at rest and not %.2f", l, c.name, at,
				model.StaticPower(0), c.at(0))
			most = max(most, math.Abs(e))
		}
		t.Logf("%v: %d of %d trained, up to %.0f %%", l, trained, n, 100*most)
	}
}
