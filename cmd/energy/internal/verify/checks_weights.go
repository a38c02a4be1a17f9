// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"math"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// weighedClasses returns the measured packages and memory.
func weighedClasses(a *analysis) (found []*judgment) {
	for _, j := range classes(a) {
		if j.zones != nil && (j.class.Zone == power.Package || j.class.Zone == power.DRAM) {
			found = append(found, j)
		}
	}
	if len(found) > 0 && a.NoEvents != "" {
		return []*judgment{{}}
	}
	return found
}

// noDifference is the largest difference of misattributed energy, in points, between equal weights.
const noDifference = 1

// compareWeights compares two weights by memory-bound and spinning programs that run at once. The
// reference is the energy of the same programs alone, above the power at rest.
func compareWeights(j *judgment) {
	if j.NoEvents != "" {
		j.say(Unchecked, "Attribution weights were not compared: %s", j.NoEvents)
		return
	}
	for _, s := range j.steps(Mixed) {
		memory, spinning := j.alone(s, Memory), j.alone(s, Spin)
		reference := memory / (memory + spinning)
		plain := memoryShare(s, func(p *Program) float64 { return p.Energy[j.class].Joules() })
		events := memoryShare(s, func(p *Program) float64 { return p.ByEvents[j.class].Joules() })
		if !(memory >= 0 && spinning >= 0) || math.IsNaN(reference+plain+events) {
			continue
		}
		j.known = true
		plainOff, eventsOff := 100*math.Abs(plain-reference), 100*math.Abs(events-reference)
		plainWeight, eventWeight, usual := j.used(plainWeights), j.used(eventWeights), j.used(defaultWeights)
		text := fmt.Sprintf("%s: the share of memory-bound programs next to spinning ones is %.1f %% by their energies alone, "+
			"%.1f %% by %s, %.1f %% by %s", j.name, 100*reference, 100*plain, plainWeight, 100*events, eventWeight)
		best := usual
		switch {
		case eventsOff < plainOff-noDifference:
			best = eventWeight
		case plainOff < eventsOff-noDifference:
			best = plainWeight
		}
		if best != usual {
			j.say(Note, "%s. %s is better. To select it: attribution::weight::%s: %s", text, best, j.class.Zone, best)
			j.known = false
		}
		j.list("%s", text)
	}
}

// used returns the weight of the class in a receiver with these weights.
func (j *judgment) used(w weights) energyreceiver.Weight {
	used := w.of(j.class.Zone)
	if j.NoClocks && used == frequencyWeight {
		return "cpu_time"
	}
	return used
}

// alone returns the energy, above the power at rest, that the programs with a load would use
// without the other programs of a mixed step.
func (j *judgment) alone(mixed *Step, load Load) float64 {
	for _, s := range j.steps(load) {
		if slices.Equal(s.CPUs, mixed.parts()[load]) {
			watts := j.watts(s, j.zones...) - j.rest(j.zones...)
			return watts * (s.To - s.From) * cpuSeconds(mixed, load) / cpuSeconds(s, load)
		}
	}
	return math.NaN()
}

// cpuSeconds returns the CPU time of the programs with a load in a step.
func cpuSeconds(s *Step, load Load) (sum float64) {
	for _, p := range s.Programs {
		if p.Load == load {
			sum += p.Waited
		}
	}
	return sum
}

// memoryShare returns the share of the memory-bound programs in the energy of all programs of a
// step.
func memoryShare(s *Step, energy func(*Program) float64) float64 {
	memory, all := 0., 0.
	for i := range s.Programs {
		e := energy(&s.Programs[i])
		all += e
		if s.Programs[i].Load == Memory {
			memory += e
		}
	}
	return memory / all
}
