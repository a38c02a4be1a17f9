// SPDX-License-Identifier: Apache-2.0

package static_test

import (
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
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
	defer f.Close()
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

// life is a machine on which jobs arrive at random, each of which keeps one CPU busy. A day of it takes half an hour: at night
// the mean load is floor, in the afternoon 60 %.
type life struct {
	cpus   int
	floor  float64
	window time.Duration
}

func (l life) String() string {
	return fmt.Sprintf("%d CPUs, %.0f %% at night, windows of %v", l.cpus, 100*l.floor, l.window)
}

const (
	lifeDay = 1800.0 // s
	// shortJob is the mean length of half of the jobs in s. The others are ten times as long. The lengths vary.
	shortJob = 0.02
)

// portions calls each with all windows of a day. They are seen as a receiver sees them: the energy counter moves once a
// millisecond, CPU times are read up to 0.2 ms later, and a running job's time is up to 4 ms old.
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

// learned returns a learned model after a day.
func (l life) learned(c loadCurve) *static.Model {
	model := static.NewCurve()
	model.TakeShortSamples()
	l.portions(rand.New(rand.NewPCG(1, 2)), c, func(p portion) { model.Active(p) })
	return model
}

// The mean load says little of how often a machine rests: at 5 % on 16 CPUs, none is busy in a third of all tenths of a second.
func TestShortWindowsSeeMomentsOfRest(t *testing.T) {
	var n, within float64
	for _, l := range []life{
		{16, 0.03, 100 * time.Millisecond},
		{16, 0.05, 100 * time.Millisecond},
		{16, 0.1, 100 * time.Millisecond},
		{16, 0.03, time.Second},
		{16, 0.05, time.Second},
	} {
		most := 0.0
		for _, c := range allCurves() {
			model := l.learned(c)
			e, at := worst(model.Active, c)
			assert.True(t, model.Trained(0), "%v: %s", l, c.name)
			assert.LessOrEqual(t, math.Abs(e), 0.1, "%v: %s, at a load of %.2f, %.2f W at rest and not %.2f", l, c.name, at,
				model.StaticPower(0), c.at(0))
			most = max(most, math.Abs(e))
			n++
			if math.Abs(model.StaticPower(0)-c.at(0)) <= model.Doubt(0) {
				within++
			}
		}
		t.Logf("%v: up to %.0f %%", l, 100*most)
	}
	t.Logf("%.0f %% within the doubt", 100*within/n)
	assert.InDelta(t, 0.675, within/n, 0.075, "part of the cases in which the truth is within the doubt")
}

// On more CPUs, or in longer windows, some job runs at any time.
func TestWithoutMomentsOfRestTheCurveIsNotCalledLearned(t *testing.T) {
	for _, l := range []life{{16, 0.1, time.Second}, {64, 0.05, time.Second}} {
		for i, c := range allCurves() {
			if i%4 > 0 {
				continue // it takes a while
			}
			assert.False(t, l.learned(c).Trained(0), "%v: %s", l, c.name)
		}
	}
}
