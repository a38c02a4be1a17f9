// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

// day runs the machine of a scenario, without its workloads, under a daily load: each socket's load rises and falls
// within 24 h, from nearly nothing at night to 70 %, and varies from one 10 s to the next. after is called every 10 s.
// With nights the load is at least that, and varies within the 10 s; see arriving. The windows of the receiver are then
// taken too, those of less than a second once a second.
func (l *simulator) day(length time.Duration, after func()) {
	const step, whole = 10 * time.Second, 24 * time.Hour
	demands := map[*hostsim.Task]float64{}
	for _, t := range l.machine.Tasks {
		demands[t], t.Demand = t.Demand, 0
	}
	var loads []*hostsim.Task
	for i := range l.machine.Sockets {
		t := l.machine.Init().Spawn()
		t.Exec("/usr/bin/day", "day")
		t.Socket = i
		loads = append(loads, t)
	}
	r := rand.New(rand.NewPCG(1, 1))
	arrivals := make([]arriving, len(loads))
	for at := time.Duration(0); at < length; at += step {
		night := (1 + math.Cos(2*math.Pi*float64(at)/float64(whole))) / 2 // 1 at midnight, 0 at noon
		if l.nights > 0 {
			around := l.nights*night + 0.7*(1-night)
			for i := range arrivals {
				arrivals[i].mean = max(around*math.Exp(0.25*r.NormFloat64()), l.nights) * float64(l.machine.Sockets[i].CPUs)
			}
			l.arrive(step, r, loads, arrivals)
			after()
			continue
		}
		around := 0.35 - 0.35*math.Cos(2*math.Pi*float64(at)/float64(whole))
		for i, t := range loads {
			t.Demand = min(max(around+0.2*r.NormFloat64(), 0), 1) * float64(l.machine.Sockets[i].CPUs)
		}
		l.machine.Step(step)
		after()
	}
	for _, t := range loads {
		t.Exit()
		t.Reap(false)
	}
	for t, demand := range demands {
		t.Demand = demand
	}
}

// arriving is the jobs on a socket. They arrive independently of each other, and each keeps one CPU busy for half a
// second on average, exponentially distributed. At low load there are moments without any.
type arriving struct {
	mean float64 // number
	jobs int
}

// interval is how often jobs arrive and end.
const interval = 100 * time.Millisecond

func (a *arriving) step(r *rand.Rand) {
	const ends = 0.2 // of a job in an interval
	left := 0
	for range a.jobs {
		if r.Float64() > ends {
			left++
		}
	}
	// A Poisson distributed number, as the product of uniform numbers until it is less than e^-mean.
	for product := r.Float64(); product > math.Exp(-a.mean*ends); product *= r.Float64() {
		left++
	}
	a.jobs = left
}

// arrive lets time pass in which jobs arrive, and takes the windows within it.
func (l *simulator) arrive(length time.Duration, r *rand.Rand, loads []*hostsim.Task, arrivals []arriving) {
	window := time.Duration(0)
	if l.r != nil && l.windows.length > 0 {
		window = max(l.windows.length, time.Second)
	}
	for at := interval; at <= length; at += interval {
		for i := range arrivals {
			arrivals[i].step(r)
			loads[i].Demand = float64(arrivals[i].jobs)
		}
		l.machine.Step(interval)
		if window > 0 && at%window == 0 && at < length {
			require.NoError(l.tb, l.machine.Render())
			l.windows.end()
		}
	}
}
