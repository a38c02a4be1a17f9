// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/stats"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// classes returns the classes of energy that the receiver attributes. A measured one has the zones of
// its preferred meter.
func classes(a *analysis) (found []*judgment) {
	for class := range a.Sums {
		j := &judgment{name: fmt.Sprintf("%s %s", class.Zone, class.Method), class: class}
		if groups := a.preferred(class.Zone); class.Method == power.Measured && len(groups) > 0 {
			j.zones = groups[0].zones
		}
		found = append(found, j)
	}
	slices.SortFunc(found, func(a, b *judgment) int { return cmp.Compare(a.name, b.name) })
	return found
}

// span returns the first and the last sums of the class within a time, and the seconds in between. The
// seconds are NaN without two collections.
func (j *judgment) span(from, to float64) (x, y Sums, seconds float64) {
	within := slices.DeleteFunc(slices.Clone(j.Sums[j.class]), func(s Sums) bool { return s.At < from || s.At > to })
	if len(within) < 2 {
		return x, y, math.NaN()
	}
	x, y = within[0], within[len(within)-1]
	return x, y, y.At - x.At
}

// totals compares the receiver's totals with its meters.
func totals(j *judgment) {
	x, y, seconds := j.span(0, math.Inf(1))
	if j.zones == nil || !j.zones[0].Chosen {
		return
	}
	meter := 0.
	for _, z := range j.zones {
		meter += rate(z.Points, x.At, min(y.At, lastAt(z.Points)))
	}
	receiver := (y.Active + y.Idle - x.Active - x.Idle).Joules() / seconds
	off, most := 100*(receiver/meter-1), 2+200*orZero(j.zones[0].Update)/seconds
	j.between(off, -most, most, "The receiver counts %s of %s, the meter itself %s",
		figure.Watts(receiver), j.name, figure.Watts(meter))
	j.list("%s %+.2f %%", j.name, off)
}

// symmetry checks that equal programs get equal energy. Only CPUs of one socket and kind are
// compared: others may draw different power. Programs without a series are left out.
func symmetry(j *judgment) {
	most := math.NaN()
	for _, s := range j.steps(Spin, Memory) {
		equal := map[[2]int][]Program{}
		for _, p := range s.Programs {
			if at := j.Machine.cpu(p.CPU); p.Energy[j.class] > 0 && len(s.CPUs) > 1 {
				equal[[2]int{at.Socket, at.Capacity}] = append(equal[[2]int{at.Socket, at.Capacity}], p)
			}
		}
		for _, programs := range equal {
			if len(programs) < 2 {
				continue
			}
			off, cpu := unequal(programs, j.class)
			j.between(off, -3, 3, "Equal programs get unequal energy of %s: the one on CPU %d gets %+.1f %% in step %q",
				j.name, cpu, off, s.Name)
			if !(math.Abs(off) <= most) {
				most = math.Abs(off)
			}
		}
	}
	j.list("%s within %.1f %%", j.name, most)
}

// unequal returns the largest deviation of the power of a program from the median in percent, and
// its CPU.
func unequal(programs []Program, class power.Class) (worst float64, cpu int) {
	var watts []float64
	for _, p := range programs {
		watts = append(watts, p.Energy[class].Joules()/p.Waited)
	}
	middle := stats.Median(watts)
	if len(watts) == 2 {
		middle = watts[0]
	}
	for i, w := range watts {
		if off := 100 * (w/middle - 1); math.Abs(off) >= math.Abs(worst) {
			worst, cpu = off, programs[i].CPU
		}
	}
	return worst, cpu
}

// static returns the static power of the class under the last load, the power at rest and the
// reported standard error.
func (j *judgment) static() (static, idle, uncertainty float64) {
	steps := j.steps(Spin, Memory)
	if len(steps) == 0 || j.zones == nil {
		return math.NaN(), math.NaN(), math.NaN()
	}
	s := steps[len(steps)-1]
	x, y, seconds := j.span(s.From+settle, s.To)
	return (y.Idle - x.Idle).Joules() / seconds, j.rest(j.zones...), y.Uncertainty
}

// timeSources returns the sources of CPU times.
func timeSources(*analysis) []*judgment { return []*judgment{{name: "BPF"}, {name: "procfs"}} }

// cpuTime compares the CPU times of the loads by a source with wait4(2).
func cpuTime(j *judgment) {
	if j.name == "BPF" && j.NoBPF != "" {
		j.say(Unchecked, "BPF was not compared: %s", j.NoBPF)
	}
	n := 0
	for _, s := range j.Steps {
		for _, p := range s.Programs {
			if seconds, ok := p.Counted[j.name]; ok {
				n++
				j.atMost(math.Abs(seconds-p.Waited), 0.01*p.Waited+0.1, "CPU times differ: %s counts %.2f s of a program "+
					"in step %q, the kernel %.2f s", j.name, seconds, s.Name, p.Waited)
			}
		}
	}
	j.list("%s: %d programs within 1 %% and 0.1 s", j.name, n)
}

// gpus returns the GPUs.
func gpus(a *analysis) (found []*judgment) {
	for i, id := range slices.Sorted(maps.Keys(a.GPUs)) {
		found = append(found, &judgment{name: fmt.Sprintf("GPU %d", i+1), gpu: id})
	}
	return found
}

// usedGPU checks that a GPU in use draws more power.
func usedGPU(j *judgment) {
	var rest, used []float64
	for _, g := range j.GPUs[j.gpu] {
		switch {
		case g.Utilization < 0.05:
			rest = append(rest, g.Watts)
		case g.Utilization > 0.5:
			used = append(used, g.Watts)
		}
	}
	if len(rest) < 5 || len(used) < 5 {
		j.say(Unchecked, "%s was not both used and idle: run a program on it during a part of the check", j.name)
		return
	}
	low, high := stats.Median(rest), stats.Median(used)
	j.atLeast(high/low, 1.1, "%s draws %s while it is used and %s at rest: its utilization and its energy do not match",
		j.name, figure.Watts(high), figure.Watts(low))
	j.list("%s at rest %s, used %s", j.name, figure.Watts(low), figure.Watts(high))
}
