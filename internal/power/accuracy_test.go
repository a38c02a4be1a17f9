// SPDX-License-Identifier: Apache-2.0

package power_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	accuracyStep    = 10 * time.Millisecond // of the simulated machine
	accuracyBefore  = 3 * time.Minute       // how long it has run when it is first asked
	accuracyHorizon = 10 * time.Minute
)

// threadripper is the power of an AMD Ryzen Threadripper 1950X by load, by the load profiles of CodeCarbon
// (codecarbon/data/hardware/cpu_load_profiling, 2025-01-14).
var threadripper = model.Curve{
	{Utilization: .028, Watts: 42.66}, {Utilization: .139, Watts: 62.02}, {Utilization: .232, Watts: 78.33}, {Utilization: .364, Watts: 105.61},
	{Utilization: .448, Watts: 127.58}, {Utilization: .531, Watts: 143.25}, {Utilization: .66, Watts: 172.51}, {Utilization: .721, Watts: 170.36},
}

// trueEnergy is the energy of a simulated machine since its start, at every accuracyStep, in µJ.
type trueEnergy []float64

// load is the load of a simulated machine.
type load struct {
	name string
	// waves and noise are how far the demand of a service with 5 CPUs swings in one and a half
	// minutes, and by the tenth of a second, in CPUs.
	waves, noise float64
	// jobs are the demands that five jobs have by turns, for some seconds to a minute each,
	// minutely that of four seconds of every minute.
	jobs     []float64
	minutely float64
}

var (
	steadyLoad = load{name: "steady", waves: 0.8, noise: 0.5, jobs: []float64{0.5, 1, 1}, minutely: 1}
	busyLoad   = load{name: "busy", waves: 2, noise: 1.5, jobs: []float64{0, 0, 1, 4, 8}, minutely: 6}
)

// simulate returns the energy of a machine of 24 CPUs that draws 60 W beside them.
func (l *load) simulate(tb testing.TB, seed uint64) trueEnergy {
	rng := rand.New(rand.NewPCG(seed, 5))
	socket := &hostsim.Socket{CPUs: 24, Idle: threadripper[0].Watts, DRAMIdle: 8, Curve: threadripper}
	m := hostsim.NewMachine(tb.TempDir(), socket)
	task := func() *hostsim.Task {
		t := m.Init().Spawn()
		t.Memory = 0.4
		return t
	}
	service, minutely := task(), task()
	jobs := []*hostsim.Task{task(), task(), task(), task(), task()}
	next := make([]time.Duration, len(jobs))
	phase, minute := rng.Float64(), time.Duration(rng.Int64N(int64(time.Minute)))
	truth := trueEnergy{0}
	for at := time.Duration(0); at < accuracyBefore+accuracyHorizon+2*time.Minute; at += accuracyStep {
		if at%(100*time.Millisecond) == 0 {
			service.Demand = max(0, 5+l.waves*math.Sin(2*math.Pi*(at.Seconds()/97+phase))+l.noise*rng.NormFloat64())
		}
		minutely.Demand = 0
		if (at+minute)%time.Minute < 4*time.Second {
			minutely.Demand = l.minutely
		}
		for i, job := range jobs {
			if at >= next[i] {
				job.Demand = l.jobs[rng.IntN(len(l.jobs))]
				next[i] = at + time.Duration(rng.ExpFloat64()*float64(uint64(2)<<i)*float64(time.Second))
			}
		}
		m.Step(accuracyStep)
		truth = append(truth, 60e6*(at+accuracyStep).Seconds()+socket.Energy.Package+socket.Energy.DRAM)
	}
	return truth
}

// until returns the energy until a time, in µJ.
func (e trueEnergy) until(at time.Duration) float64 {
	i, part := int(at/accuracyStep), float64(at%accuracyStep)/float64(accuracyStep)
	return e[i] + part*(e[i+1]-e[i])
}

// watts returns the average power over the time before at, in W.
func (e trueEnergy) watts(at, average time.Duration) float64 {
	average = max(average, accuracyStep)
	return (e.until(at) - e.until(at-average)) / 1e6 / average.Seconds()
}

// shape is how a kind of meter shows energy.
type shape struct {
	name  string
	every time.Duration // from one poll to the next
	// average is the time over which each reading is averaged, and reported the part of that time that
	// the meter reports.
	average, reported time.Duration
	// refresh is how often the meter has another reading; 0 is always. delay is how old its newest reading is.
	refresh, delay time.Duration
	answers        time.Duration // how long it takes to answer
	unit           float64       // of a power, in W, or of a counter, in J
	counter        bool
	// steady and busy are the largest errors over ten minutes under those loads, of the energy.
	// lagged is the largest against the energy of ten minutes that are as old as the readings.
	steady, busy, lagged float64
}

// lag is how much later than the power the readings are.
func (s *shape) lag() time.Duration {
	return s.delay + s.refresh/2 + max(s.average-s.every, 0)/2
}

// show returns what the meter shows at a time of the machine, which is now.
func (s *shape) show(zone *power.Zone, truth trueEnergy, at time.Duration, now time.Time) power.Shown {
	measured := at - s.delay
	if s.refresh > 0 {
		measured -= measured % s.refresh
	}
	if s.counter {
		joules := truth.until(measured) / 1e6
		return power.Shown{Zone: zone, At: now, Counter: units.Energy(math.Floor(joules/s.unit) * s.unit * 1e6)}
	}
	watts := math.Round(truth.watts(measured, s.average)/s.unit) * s.unit
	return power.Shown{Zone: zone, At: now, IsPower: true, Power: int64(watts * 1e6), Average: s.reported}
}

// accuracyError is how far an energy is from the truth: relative, relative to the truth as late as
// the meter is, and in units of a counter.
type accuracyError struct{ off, lagged, units float64 }

// measure has a Poller ask the meter for ten minutes.
func (s *shape) measure(t *testing.T, truth trueEnergy) (e accuracyError) {
	synctest.Test(t, func(t *testing.T) {
		zone := &power.Zone{ID: "platform", Kind: power.Platform, MaxWatts: power.MaxPlatformWatts}
		began := time.Now().Add(-accuracyBefore)
		source := sourceFunc(func() (power.Answer, error) {
			time.Sleep(s.answers)
			now := time.Now()
			return power.Answer{Shown: []power.Shown{s.show(zone, truth, now.Sub(began), now)}}, nil
		})
		p := power.Poll(source, power.PollOptions{Every: s.every})
		defer func() { require.NoError(t, p.Close()) }()
		var first, last power.Reading
		for at := time.Duration(0); at <= accuracyHorizon+2*time.Second; at += time.Second {
			readings, err := p.Read(t.Context(), power.Sample{})
			require.NoError(t, err)
			if len(readings) > 0 {
				last = readings[0]
				require.NoError(t, last.Err)
				if first.Zone == nil {
					first = last
				}
			}
			time.Sleep(time.Second)
		}
		from, to := first.At.Sub(began), last.At.Sub(began)
		got := float64(last.Total - first.Total)
		energy := func(lag time.Duration) float64 { return truth.until(to-lag) - truth.until(from-lag) }
		e.off, e.lagged = math.Abs(got/energy(0)-1), math.Abs(got/energy(s.lag())-1)
		e.units = math.Abs(got-energy(0)) / 1e6 / s.unit
	})
	return e
}

type sourceFunc func() (power.Answer, error)

func (f sourceFunc) Answer(context.Context, power.Sample) (power.Answer, error) { return f() }
func (sourceFunc) Close() error                                                 { return nil }

const (
	sec = time.Second
	ms  = time.Millisecond
)

var shapes = []shape{
	{name: "ACPI, 1 s average", every: sec, average: sec, reported: sec, unit: 1,
		steady: .0005, busy: .0005, lagged: .0005},
	{name: "Grace, 50 ms average", every: 50 * ms, average: 50 * ms, reported: 50 * ms, unit: 1,
		steady: .0005, busy: .0005, lagged: .0005},
	{name: "Grace, each second", every: sec, average: 50 * ms, reported: 50 * ms, unit: 1,
		steady: .005, busy: .005, lagged: .005},
	{name: "INA, instantaneous, each second", every: sec, unit: .025,
		steady: .005, busy: .005, lagged: .005},
	{name: "DCMI, 1 s average, each second", every: sec, average: sec, reported: sec, unit: 1, answers: 20 * ms,
		steady: .0005, busy: .0005, lagged: .0005},
	{name: "DCMI, 1 s average", every: 5 * sec, average: sec, reported: sec, unit: 1, answers: 20 * ms,
		steady: .006, busy: .01, lagged: .01},
	{name: "DCMI, 5 s average", every: 5 * sec, average: 5 * sec, reported: 5 * sec, unit: 1, answers: 20 * ms,
		steady: .0005, busy: .0005, lagged: .0005},
	{name: "DCMI, 60 s average", every: 5 * sec, average: time.Minute, reported: time.Minute, unit: 1, answers: 20 * ms,
		steady: .005, busy: .012, lagged: .005},
	{name: "Redfish, 60 s average, 10 s old", every: 15 * sec, average: time.Minute, reported: time.Minute, delay: 10 * sec, unit: 1,
		answers: 300 * ms, steady: .005, busy: .012, lagged: .005},
	{name: "Redfish, 20 s average every 20 s", every: 15 * sec, average: 20 * sec, refresh: 20 * sec, unit: 1,
		answers: 300 * ms, steady: .0065, busy: .015, lagged: .01},
	{name: "Redfish, 60 s average every 60 s", every: 15 * sec, average: time.Minute, refresh: time.Minute, unit: 1,
		answers: 300 * ms, steady: .005, busy: .018, lagged: .005},
	{name: "plug, 0.1 W, 1 s average", every: sec, average: sec, reported: sec, unit: .1, answers: 50 * ms,
		steady: .0005, busy: .0005, lagged: .0005},
	{name: "plug, 0.1 W, every 5 s", every: 5 * sec, average: sec, unit: .1, answers: 50 * ms,
		steady: .006, busy: .01, lagged: .01},
	{name: "counter, 1 J", every: 5 * sec, unit: 1, counter: true, answers: 50 * ms},
	{name: "counter, 0.1 Wh", every: 5 * sec, unit: 360, counter: true, answers: 50 * ms},
	{name: "counter, 0.001 kWh", every: 5 * sec, unit: 3600, counter: true, answers: 50 * ms},
}

// TestMetersAreAccurate compares ten minutes of each kind of meter with the truth. With -v it prints the table of
// docs/hardware.md: the largest error of ten runs under each load.
func TestMetersAreAccurate(t *testing.T) {
	seeds := uint64(10)
	if testing.Short() {
		seeds = 2
	}
	var worst [2]map[string]accuracyError
	for i, l := range []*load{&steadyLoad, &busyLoad} {
		worst[i] = map[string]accuracyError{}
		for seed := range seeds {
			truth := l.simulate(t, seed)
			for _, s := range shapes {
				e := s.measure(t, truth)
				w := worst[i][s.name]
				worst[i][s.name] = accuracyError{max(w.off, e.off), max(w.lagged, e.lagged), max(w.units, e.units)}
			}
		}
	}
	for _, s := range shapes {
		steady, busy := worst[0][s.name], worst[1][s.name]
		t.Logf("| %s | %v | %.2f %% | %.2f %% | %.2f %% |", s.name, s.every, 100*steady.off, 100*busy.off, 100*max(steady.lagged, busy.lagged))
		if s.counter {
			assert.Less(t, max(steady.units, busy.units), 1., "%s: at most one unit, once", s.name)
			continue
		}
		assert.LessOrEqual(t, steady.off, s.steady, s.name)
		assert.LessOrEqual(t, busy.off, s.busy, s.name)
		assert.LessOrEqual(t, max(steady.lagged, busy.lagged), s.lagged, "%s, lagged", s.name)
		if s.name == "Redfish, 60 s average every 60 s" {
			t.Attr("redfish-interval", fmt.Sprintf("%.1f %% steady, %.1f %% varying", 100*steady.off, 100*busy.off))
		}
	}
}
