// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

// simEvents counts the hardware events of a simulated machine: 3e9 cycles per second at the nominal clock rate, 1.5
// instructions per cycle times the task's intensity, and 5e6 cache misses per joule that the task causes in memory.
type simEvents struct {
	used     map[*hostsim.Task]time.Duration
	cgroups  map[string]map[weigh.Event]float64 // of tasks directly in the cgroup
	counters *weigh.Events
}

func (e *simEvents) observe(m *hostsim.Machine) {
	if e == nil {
		return
	}
	for _, t := range m.Tasks {
		ran := (t.Used - e.used[t]).Seconds()
		if e.used[t] = t.Used; ran == 0 {
			continue
		}
		counts := e.cgroups[t.Cgroup]
		if counts == nil {
			counts = map[weigh.Event]float64{}
			e.cgroups[t.Cgroup] = counts
		}
		cycles := 3e9 * ran * m.Sockets[t.Socket].Clock()
		counts[weigh.Cycles] += cycles
		counts[weigh.Instructions] += 1.5 * t.Intensity * cycles
		counts[weigh.CacheMisses] += 5e6 * t.Memory * ran
	}
}

func (e *simEvents) counted(event weigh.Event, of string) uint64 {
	sum := 0.0
	for path, counts := range e.cgroups {
		if strings.HasPrefix(path+"/", of+"/") {
			sum += counts[event]
		}
	}
	return uint64(sum)
}

// countEvents has the receiver count the events of the machine, before it is started.
func (l *simulator) countEvents() {
	l.events = &simEvents{used: map[*hostsim.Task]time.Duration{}, cgroups: map[string]map[weigh.Event]float64{}}
	l.events.counters = weigh.SimulatedEvents(l.events.counted)
}
