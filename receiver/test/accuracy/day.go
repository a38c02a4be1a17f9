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

// day runs the machine of a scenario, without its workloads, under a daily load. Each socket's load
// rises and falls within 24 h, from almost 0 at night to 70 %, and varies randomly every 10 s. day
// calls after every 10 s.
//
// If nights is set, it is the minimum load, and the load also varies within the 10 s; see arrive.
// The receiver then ends its windows during the day, but at most one per second.
//
// If the cards are measured, the load is on the cards instead of the sockets, and the day lasts for
// length.
func (l *simulator) day(length time.Duration, after func()) {
	const step = 10 * time.Second
	whole := 24 * time.Hour
	if l.driver != "" {
		whole = length
	}
	loads, restore := l.dayLoads()
	r := rand.New(rand.NewPCG(1, 1))
	for at := time.Duration(0); at < length; at += step {
		height := math.Cos(2 * math.Pi * float64(at) / float64(whole)) // 1 at midnight, -1 at noon
		for i := range loads {
			load := &loads[i]
			if l.nights > 0 {
				night := (1 + height) / 2
				around := l.nights*night + 0.7*(1-night)
				load.mean = max(around*math.Exp(0.25*r.NormFloat64()), l.nights) * load.most
			} else {
				*load.demand = min(max(0.35-0.35*height+0.2*r.NormFloat64(), 0), 1) * load.most
			}
		}
		switch {
		case l.nights > 0:
			l.arrive(step, r, loads)
		case l.driver != "":
			l.passOnCards(step)
		default:
			l.machine.Step(step)
		}
		after()
	}
	restore()
}

// dayLoad is the load of a socket or of a card: the demand of a task, up to most.
type dayLoad struct {
	task   *hostsim.Task
	demand *float64
	most   float64
	// mean is the mean number of jobs, jobs the current number. Jobs arrive independently of each
	// other. Each keeps one CPU busy for half a second on average, exponentially distributed. At
	// low load there are moments without a job.
	mean float64
	jobs int
}

// dayLoads replaces the demands of all tasks, or of all users of cards if the cards are measured.
// restore restores the demands.
func (l *simulator) dayLoads() (loads []dayLoad, restore func()) {
	demands := map[*float64]float64{}
	replace := func(demand *float64) { demands[demand], *demand = *demand, 0 }
	begin := func() *hostsim.Task {
		t := l.machine.Init().Spawn()
		t.Exec("/usr/bin/day", "day")
		return t
	}
	if l.driver == "" {
		for _, t := range l.machine.Tasks {
			replace(&t.Demand)
		}
		for i, s := range l.machine.Sockets {
			t := begin()
			t.Socket = i
			loads = append(loads, dayLoad{task: t, demand: &t.Demand, most: float64(s.CPUs)})
		}
	} else {
		for _, g := range l.machine.GPUs {
			for _, c := range g.Contexts {
				replace(&c.Demand[0])
			}
			t := begin()
			loads = append(loads, dayLoad{task: t, demand: &t.OpenGPU(g).Demand[0], most: 1})
		}
	}
	return loads, func() {
		for _, load := range loads {
			load.task.Exit()
			load.task.Reap(false)
		}
		for demand, was := range demands {
			*demand = was
		}
	}
}

// interval is how often jobs arrive and end.
const interval = 100 * ms

// step lets jobs arrive and end.
func (load *dayLoad) step(r *rand.Rand) {
	const ends = 0.2 // probability that a job ends in an interval
	left := 0
	for range load.jobs {
		if r.Float64() > ends {
			left++
		}
	}
	// A Poisson distributed number: the count of uniform numbers until their product is below
	// e^-mean.
	for product := r.Float64(); product > math.Exp(-load.mean*ends); product *= r.Float64() {
		left++
	}
	load.jobs = left
}

// arrive lets time pass while jobs arrive, and ends the receiver's windows in that time.
func (l *simulator) arrive(length time.Duration, r *rand.Rand, loads []dayLoad) {
	window := time.Duration(0)
	if l.r != nil && l.windows.length > 0 {
		window = max(l.windows.length, time.Second)
	}
	for at := interval; at <= length; at += interval {
		for i := range loads {
			loads[i].step(r)
			*loads[i].demand = float64(loads[i].jobs)
		}
		l.machine.Step(interval)
		if window > 0 && at%window == 0 && at < length {
			require.NoError(l.tb, l.machine.Render())
			l.windows.end()
		}
	}
}
