// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"
)

// PMU counts the hardware events of the tasks of a Machine.
//
// No power model is exact with these events. Instructions per cycle (IPC) and energy per cache miss
// differ between programs; they are drawn from the seed and the path of the executable. The energy
// per miss also falls with the load of the socket. Cycles follow the clock rate.
type PMU struct {
	Seed uint64
	// Scale returns the number of counted misses per real miss at a time since boot. Nil is 1.
	Scale func(at time.Duration) float64

	programs map[string]program
}

// Events are numbers of hardware events.
type Events struct{ Cycles, Instructions, Misses float64 }

// The distributions of programs. Both are log-normal.
const (
	// ipc is the median IPC of programs (power-modelling, CloudSuite on five machines). The logarithm
	// has a deviation of 0.42 if Intensity has one of 0.21: half of it follows Intensity.
	// ipcDeviation is the other part.
	ipc, ipcDeviation = 0.65, 0.364
	// perMiss is the median energy of a miss at full load, in J, of 97 programs (Energy-Languages).
	// perMissDeviation is the standard deviation of its logarithm.
	perMiss, perMissDeviation = 46e-9, 0.41
	// lightMiss is the energy of a miss at no load, relative to full load (Energy-Languages, one CPU
	// at 800 MHz).
	lightMiss = 5
	// threaded is the IPC of a thread while its sibling is busy, relative to the IPC alone.
	threaded = 0.62
	// unread is memory power that causes misses in addition to Memory, in W per CPU, so that every
	// program has misses.
	unread = 0.005
)

// program holds the properties of an executable.
type program struct{ ipc, perMiss float64 }

func (p *PMU) of(exe string) program {
	of, ok := p.programs[exe]
	if !ok {
		if p.programs == nil {
			p.programs = map[string]program{}
		}
		h := fnv.New64a()
		_, _ = h.Write([]byte(exe))
		r := rand.New(rand.NewPCG(p.Seed, h.Sum64()))
		of.ipc = ipc * math.Exp(ipcDeviation*r.NormFloat64())
		of.perMiss = perMiss * math.Exp(perMissDeviation*r.NormFloat64())
		p.programs[exe] = of
	}
	return of
}

// count adds the events of a task in a step that begins at a time since boot.
func (p *PMU) count(t *Task, s *Socket, at time.Duration, seconds float64) {
	of := p.of(t.process.Exe)
	rate := of.ipc * t.Intensity * t.IPC
	cycles := t.run * seconds * nominal * 1e3 * s.Clock()
	cpus, together := t.Ran()
	if cpus > 0 {
		rate *= 1 - (1-threaded)*together/cpus
	}
	load := min(s.demand*s.rate/float64(s.CPUs), 1)
	misses := t.run * seconds * (t.Memory + unread) / (of.perMiss * math.Pow(lightMiss, 1-load))
	if p.Scale != nil {
		misses *= p.Scale(at)
	}
	t.Events.Cycles += cycles
	t.Events.Instructions += rate * cycles
	t.Events.Misses += misses
}

// counts returns the events in the order of proc.Events.
func (e *Events) counts() [3]uint64 {
	return [3]uint64{uint64(e.Cycles), uint64(e.Instructions), uint64(e.Misses)}
}
