// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// sockets checks that each package is read once and follows the load of its own socket.
func (a *analysis) sockets() {
	var done []string
	packages := a.groups(power.Package)
	for _, g := range packages {
		of := map[int]*Zone{}
		for _, z := range g.zones {
			of[z.Socket] = z
		}
		switch missing := a.missing(of); {
		case g.zones[0].Socket < 0: // a sensor of all sockets together
		case len(missing) > 0:
			hint := ""
			if g.meter == "perf" {
				hint = ": its CPU is not in the cpumask of the power PMU"
			}
			a.blame(g.zones, "%s lacks socket %v of %d%s", g, missing, a.Machine.Sockets, hint)
		case len(g.zones) == a.Machine.Sockets:
			if len(g.zones) > 1 {
				a.socketsOf(g, of)
			}
			done = append(done, g.String())
		}
	}
	a.conclude(done, "Each socket is read, by its own meter", "No meter reads sockets one by one")
}

// missing returns the sockets without a zone.
func (a *analysis) missing(of map[int]*Zone) (missing []int) {
	for _, c := range a.Machine.CPUs {
		if of[c.Socket] == nil && !slices.Contains(missing, c.Socket) {
			missing = append(missing, c.Socket)
		}
	}
	return missing
}

// socketsOf compares the rise of each package under the load of one socket.
func (a *analysis) socketsOf(g *group, of map[int]*Zone) {
	rises := map[int]float64{}
	for _, s := range a.stepsOf(func(s *Step) bool { return s.Load == Spin }) {
		socket, ok := a.onlySocket(s)
		if !ok {
			continue
		}
		own := a.watts(s, of[socket]) - a.lowest(of[socket])
		rises[socket] = own
		for other, z := range of {
			rise := a.watts(s, z) - a.lowest(z)
			switch {
			case other == socket:
			case rise > 2*own && rise > 0.05*a.lowest(z):
				a.blame(g.zones, "%s: sockets %d and %d are swapped: the load of socket %d raised %s by %s and %s by %s",
					g, socket, other, socket, of[socket].ID, inWatts(own), z.ID, inWatts(rise))
				return
			case rise > 0.97*own && own > 0.05*a.lowest(of[socket]):
				a.blame(g.zones, "%s: %s and %s are the same counter: the load of socket %d raised both by %s", g, of[socket].ID, z.ID, socket, inWatts(own))
				return
			}
		}
	}
	least, most := math.NaN(), math.NaN()
	for _, rise := range rises {
		least, most = fmin(least, rise), -fmin(-most, -rise)
	}
	if most > 1.67*least {
		a.blame(g.zones, "%s: the sockets do not count alike: the same load raised one by %s and another by %s", g, inWatts(least), inWatts(most))
	}
}

// fmin returns the smaller number, ignoring NaN.
func fmin(x, y float64) float64 {
	if math.IsNaN(x) || y < x {
		return y
	}
	return x
}

// onlySocket returns the socket that a step loads fully while the others rest.
func (a *analysis) onlySocket(s *Step) (socket int, ok bool) {
	socket = a.Machine.cpu(s.CPUs[0]).Socket
	return socket, a.Machine.Sockets > 1 && slices.Equal(slices.Sorted(slices.Values(s.CPUs)), a.Machine.on(socket))
}

// The largest relative difference of two meters of one thing.
const (
	mostApart      = 0.03
	mostApartWhole = 0.2 // before and after the power supply
)

// agreement compares meters of the same thing.
func (a *analysis) agreement() {
	var done []string
	for _, kind := range []power.Kind{power.Package, power.DRAM, power.Core, power.Uncore, power.PSys, power.Platform} {
		groups := a.groups(kind)
		for i := 1; i < len(groups); i++ {
			ratio := a.ratio(groups[i], groups[0])
			most := mostApart
			if kind == power.Platform {
				most = mostApartWhole
			}
			if math.IsNaN(ratio) {
				continue
			}
			pair := fmt.Sprintf("%s against %s: %+.1f %%", groups[i], groups[0], 100*(ratio-1))
			if ratio > 1+most || ratio < 1/(1+most) {
				a.blame(groups[i].zones, "Two meters disagree: %s reads %.3g times as much as %s", groups[i], ratio, groups[0])
				continue
			}
			done = append(done, pair)
		}
	}
	a.conclude(done, "Meters of the same thing agree", "No two meters read the same thing")
}

// ratio returns the energy of one group relative to another over the steps that both cover.
func (a *analysis) ratio(x, y *group) float64 {
	var ex, ey float64
	for _, s := range a.Steps {
		if wx, wy := a.groupWatts(s, x), a.groupWatts(s, y); !math.IsNaN(wx + wy) {
			ex, ey = ex+wx, ey+wy
		}
	}
	return ex / ey
}

// mostOver is by how much parts may exceed the whole: meters are not exact.
const mostOver = 0.03

// parts checks that the whole is no less than its parts in any step.
func (a *analysis) parts() {
	var done []string
	compare := func(whole *group, parts []*group) {
		if whole == nil || len(parts) == 0 {
			return
		}
		checked := false
		for _, s := range a.stepsOf(always) {
			all, sum := a.groupWatts(s, whole), a.groupWatts(s, parts...)
			checked = checked || !math.IsNaN(all+sum)
			if sum > all*(1+mostOver) {
				a.blame(whole.zones, "The parts exceed the whole: %s reads %s in step %q, %v read %s", whole, inWatts(all), s.Name, parts, inWatts(sum))
				return
			}
		}
		if checked {
			done = append(done, fmt.Sprintf("%s ≥ %v", whole, parts))
		}
	}
	for _, g := range a.groups(power.Package) {
		var inside []*group
		for _, kind := range []power.Kind{power.Core, power.Uncore} {
			for _, part := range a.groups(kind) {
				if part.meter == g.meter {
					inside = append(inside, part)
				}
			}
		}
		compare(g, inside)
	}
	for _, whole := range a.groups(power.PSys) { // not all of them contain the memory
		compare(whole, a.partsOf(power.Package))
	}
	for _, whole := range a.groups(power.Platform) {
		compare(whole, a.partsOf(power.Package, power.DRAM))
	}
	a.conclude(done, "No part exceeds its whole", "No meter reads both a whole and its parts")
}

// dram checks that DRAM follows memory accesses, and that the package does not include its energy.
func (a *analysis) dram() {
	var done []string
	g := a.first(power.DRAM)
	if g == nil {
		a.add(Unchecked, "No meter reads DRAM")
		return
	}
	accessed := a.mean(a.stepsOf(isMemory), g.zones...)
	idle, spinning := a.lowest(g.zones...), a.mean(a.stepsOf(a.isFull), g.zones...)
	switch {
	case math.IsNaN(accessed + idle + spinning):
	case accessed < 1.05*idle || accessed < 1.03*spinning:
		a.blame(g.zones, "%s does not follow memory accesses: %s at rest, %s with spinning CPUs, %s with memory-bound programs", g, inWatts(idle), inWatts(spinning), inWatts(accessed))
		return
	default:
		done = append(done, "it follows memory accesses")
	}
	share, deviation := a.dramShare(g)
	switch {
	case math.IsNaN(share) || deviation > 0.25:
		a.add(Unchecked, "Whether DRAM is counted inside the package is unknown: that needs a prompt meter of the whole machine")
	case share < 0.12:
		a.blame(g.zones, "DRAM is counted inside the package: the whole machine rises by the package alone. Do not add %s to the package", g)
	case share < 0.5:
		a.blame(g.zones, "%s counts about %.0f times too much, by the meter of the whole machine: its energy unit is wrong", g, 1/share)
	case share > 2:
		a.blame(g.zones, "%s counts about %.0f times too little, by the meter of the whole machine: its energy unit is wrong", g, share)
	default:
		done = append(done, "the package does not include it")
	}
	if len(done) > 0 {
		a.conclude(done, "DRAM is plausible", "")
	}
}

// dramShare returns how much a watt of DRAM adds to the whole machine relative to a watt of the
// package, and the standard error.
func (a *analysis) dramShare(dram *group) (share, deviation float64) {
	whole, pkg := a.first(power.Platform), a.first(power.Package)
	if whole == nil || pkg == nil {
		return math.NaN(), math.NaN()
	}
	var p, d, w []float64
	for _, s := range a.stepsOf(always) {
		x, y, z := a.groupWatts(s, pkg), a.groupWatts(s, dram), a.groupWatts(s, whole)
		if !math.IsNaN(x + y + z) {
			p, d, w = append(p, x), append(d, y), append(w, z)
		}
	}
	if len(p) < 6 {
		return math.NaN(), math.NaN()
	}
	mp, md, mw := average(p), average(d), average(w)
	var pp, pd, dd, pw, dw, ww float64
	for i := range p {
		x, y, z := p[i]-mp, d[i]-md, w[i]-mw
		pp, pd, dd, pw, dw, ww = pp+x*x, pd+x*y, dd+y*y, pw+x*z, dw+y*z, ww+z*z
	}
	det := pp*dd - pd*pd
	b, c := (pw*dd-dw*pd)/det, (dw*pp-pw*pd)/det
	variance := max(ww-b*pw-c*dw, 0) / float64(len(p)-3)
	return c / b, math.Sqrt(variance*pp/det) / math.Abs(b)
}

func average(values []float64) (sum float64) {
	for _, v := range values {
		sum += v / float64(len(values))
	}
	return sum
}

// By how much the whole machine rises when its parts rise by a watt: supplies and regulators lose
// energy, and fans turn faster.
const leastSlope, mostSlope = 0.9, 2.

// closure checks that the meter of the whole machine and those of its parts see the same changes.
func (a *analysis) closure() {
	var done []string
	parts := a.partsOf(power.Package, power.DRAM)
	for _, whole := range a.groups(power.Platform) {
		var x, y []float64
		for _, s := range a.stepsOf(always) {
			x, y = append(x, a.groupWatts(s, parts...)), append(y, a.groupWatts(s, whole))
		}
		slope, unexplained := line(x, y)
		switch {
		case a.first(power.Package) == nil || math.IsNaN(slope):
		case slope < leastSlope || slope > mostSlope || unexplained > 0.5:
			a.blame(whole.zones, "The balance does not close: when %v rise by 1 W, %s rises by %.2f W (%.1f to %.1f is possible)", parts, whole, slope, leastSlope, mostSlope)
		default:
			done = append(done, fmt.Sprintf("%s rises by %.2f W for 1 W of %v", whole, slope, parts))
		}
	}
	a.conclude(done, "The balance closes", "No meters read both the whole machine and its parts")
}

// sums checks the sums that the receiver guarantees in each collection, to the microjoule.
func (a *analysis) sums() {
	n := 0
	for _, e := range a.Ledger.Entries {
		for _, kind := range slices.Sorted(maps.Keys(e.Kinds)) {
			k := e.Kinds[kind]
			if a.kinds[kind] {
				continue
			}
			if off := k.Processes + k.Unattributed - k.Active; math.Abs(off) > 2e-6 {
				a.kinds[kind] = true
				a.add(Fault, "%s: processes and unattributed energy are %+.6f J off the active energy, %.0f s after the start", kind, off, e.At)
			} else if off := k.Active + k.Idle - k.Zones; math.Abs(off) > 2e-6 {
				a.kinds[kind] = true
				a.add(Fault, "%s: active and idle energy are %+.6f J off the energy of the zones, %.0f s after the start", kind, off, e.At)
			}
			n++
		}
	}
	var done []string
	if n > 0 {
		done = []string{fmt.Sprintf("%d sums", n)}
	}
	a.conclude(done, "The receiver's sums hold to the microjoule", "The receiver reported no energy")
}

// span returns the increase of a class over the collections within a time, and the time that it covers.
func (a *analysis) span(kind string, from, to float64) (first, last Entry, ok bool) {
	for _, e := range a.Ledger.Entries {
		if _, has := e.Kinds[kind]; !has || e.At < from || e.At > to {
			continue
		}
		if !ok {
			first, ok = e, true
		}
		last = e
	}
	return first, last, ok && last.At > first.At
}

const mostMissed = 0.02

// totals compares the receiver's totals with the meters.
func (a *analysis) totals() {
	var done []string
	end := math.Inf(1)
	for _, kind := range power.Kinds {
		class := classID(kind, power.Measured)
		first, last, ok := a.span(class, 0, end)
		g := a.first(kind)
		if !ok || a.kinds[class] || g == nil || !g.zones[0].Chosen {
			continue
		}
		meter := 0.
		for _, z := range g.zones {
			meter += rate(z.Points, first.At, min(last.At, z.Points[len(z.Points)-1].At))
		}
		x, y := first.Kinds[class], last.Kinds[class]
		receiver := (y.Active + y.Idle - x.Active - x.Idle) / (last.At - first.At)
		slack := mostMissed + 2*zeroIfNaN(a.figures[g.zones[0]].Update)/(last.At-first.At)
		switch {
		case math.IsNaN(meter):
		case math.Abs(receiver/meter-1) > slack:
			a.kinds[class] = true
			a.add(Fault, "The receiver counts %s of %s, the meter itself %s", inWatts(receiver), kind, inWatts(meter))
		default:
			done = append(done, fmt.Sprintf("%s %+.2f %%", kind, 100*(receiver/meter-1)))
		}
	}
	a.conclude(done, "The receiver and the meters count the same energy", "The receiver reads no meter")
}

const mostUnequal = 0.03

// symmetry checks that equal programs get equal energy. Only CPUs of one kind and socket are
// compared: others may draw different power.
func (a *analysis) symmetry() {
	var done []string
	for _, s := range a.stepsOf(func(s *Step) bool { return s.Load != Idle && len(s.CPUs) > 1 }) {
		for _, class := range slices.Sorted(maps.Keys(a.classesOf(s))) {
			if a.kinds[class] {
				continue
			}
			worst, of := 0., 0
			for _, equal := range a.equals(s, class) {
				var perSecond []float64
				for _, p := range equal {
					perSecond = append(perSecond, p.Joules[class]/p.Waited)
				}
				middle := median(perSecond)
				if len(equal) == 2 {
					middle = perSecond[0]
				}
				for i, w := range perSecond {
					if off := w/middle - 1; math.Abs(off) > math.Abs(worst) {
						worst, of = off, equal[i].CPU
					}
				}
			}
			if math.Abs(worst) > mostUnequal {
				a.kinds[class] = true
				a.add(Fault, "Equal programs get unequal energy of %s: that on CPU %d %+.1f %% in step %q", class, of, 100*worst, s.Name)
			} else {
				done = append(done, fmt.Sprintf("%s in step %q within %.1f %%", class, s.Name, 100*math.Abs(worst)))
			}
		}
	}
	a.conclude(done, "Equal programs get equal energy per CPU second", "No step that can be evaluated has two equal programs with energy")
}

func (a *analysis) classesOf(s *Step) map[string]bool {
	classes := map[string]bool{}
	for _, p := range s.Programs {
		for class, joules := range p.Joules {
			if joules > 0 {
				classes[class] = true
			}
		}
	}
	return classes
}

// equals returns the programs of a step with energy of a class by socket and kind of CPU. The
// receiver limits the number of series, so some may have none.
func (a *analysis) equals(s *Step, class string) map[[2]int][]Program {
	equal := map[[2]int][]Program{}
	for _, p := range s.Programs {
		if p.Joules[class] <= 0 {
			continue
		}
		at := a.Machine.cpu(p.CPU)
		key := [2]int{at.Socket, at.Capacity}
		equal[key] = append(equal[key], p)
	}
	return equal
}

const mostStaticOff = 0.1

// static compares trained static power with the measured power at rest.
func (a *analysis) static() {
	var done, untrained []string
	a.eachStatic(func(class string, trained, idle, _ float64) {
		if !a.Ledger.Trained[class] {
			untrained = append(untrained, fmt.Sprintf("%s: the receiver assumes %s, the machine draws %s at rest", class, inWatts(trained), inWatts(idle)))
		} else if off := trained/idle - 1; math.Abs(off) > mostStaticOff {
			a.kinds[class] = true
			a.add(Fault, "The trained static power of %s is %s, but the machine draws %s at rest (%+.0f %%)", class, inWatts(trained), inWatts(idle), 100*off)
		} else {
			done = append(done, fmt.Sprintf("%s %s, at rest %s", class, inWatts(trained), inWatts(idle)))
		}
	})
	if len(untrained) > 0 {
		a.add(Unchecked, "The static power model is not trained in so short a time. %s", strings.Join(untrained, "; "))
		if len(done) == 0 {
			return
		}
	}
	a.conclude(done, "Trained static power is the power at rest", "No static power is known of a meter")
}

// standardError compares the error of static power with the standard error that the receiver reports.
func (a *analysis) standardError() {
	var done []string
	a.eachStatic(func(class string, trained, idle, uncertainty float64) {
		switch off := math.Abs(trained - idle); {
		case uncertainty <= 0 || !a.Ledger.Trained[class]:
		case off > 3*uncertainty+0.02*idle:
			a.add(Fault, "The standard error of %s is too small: static power is off by %s, the receiver reports %s", class, inWatts(off), inWatts(uncertainty))
		default:
			done = append(done, fmt.Sprintf("%s: off by %s, standard error %s", class, inWatts(off), inWatts(uncertainty)))
		}
	})
	a.conclude(done, "The standard error covers the deviation", "The receiver reported no standard error in this time")
}

// eachStatic calls do with each class: its static power under the last load, the
// measured power at rest and the reported standard error.
func (a *analysis) eachStatic(do func(class string, static, idle, uncertainty float64)) {
	steps := a.stepsOf(func(s *Step) bool { return s.Load != Idle })
	for _, kind := range power.Kinds {
		class := classID(kind, power.Measured)
		g := a.first(kind)
		if g == nil || a.kinds[class] || len(steps) == 0 {
			continue
		}
		s := steps[len(steps)-1]
		first, last, ok := a.span(class, s.From+settle, s.To)
		idle := a.lowest(g.zones...)
		if !ok || math.IsNaN(idle) {
			continue
		}
		x, y := first.Kinds[class], last.Kinds[class]
		do(class, (y.Idle-x.Idle)/(last.At-first.At), idle, y.Uncertainty)
	}
}

// cpuTime compares the CPU times of the loads by BPF, procfs and wait4(2).
func (a *analysis) cpuTime() {
	worst, n := 0., 0
	for _, s := range a.Steps {
		for _, p := range s.Programs {
			for source, seconds := range map[string]float64{"BPF": p.BPF, "procfs": p.Procfs} {
				if seconds < 0 {
					continue
				}
				n++
				off := seconds - p.Waited
				worst = max(worst, math.Abs(off)/p.Waited)
				if math.Abs(off) > 0.01*p.Waited+0.1 {
					a.add(Fault, "CPU times differ: %s counts %.2f s of a program in step %q, the kernel %.2f s", source, seconds, s.Name, p.Waited)
					return
				}
			}
		}
	}
	if n > 0 && a.Ledger.NoBPF != "" {
		a.add(Unchecked, "BPF was not compared: %s", a.Ledger.NoBPF)
	}
	var done []string
	if n > 0 {
		done = []string{fmt.Sprintf("%d times, within %.2f %%", n, 100*worst)}
	}
	a.conclude(done, "CPU times of the sources agree with the kernel's own", "No load ran")
}

// gpu checks that a GPU that is used draws more power.
func (a *analysis) gpu() {
	rest, used := map[string][]float64{}, map[string][]float64{}
	for _, e := range a.Ledger.Entries {
		for id, g := range e.GPUs {
			switch {
			case g.Utilization < 0.05:
				rest[id] = append(rest[id], g.Watts)
			case g.Utilization > 0.5:
				used[id] = append(used[id], g.Watts)
			}
		}
	}
	otherwise := "This machine has no GPU that can be read"
	if len(rest)+len(used) > 0 {
		otherwise = "No program used the GPU and left it again: run one during the check"
	}
	var done []string
	for _, id := range slices.Sorted(maps.Keys(used)) {
		low, high := median(rest[id]), median(used[id])
		switch {
		case len(rest[id]) < 5 || len(used[id]) < 5:
		case high < 1.1*low:
			a.add(Fault, "GPU %s draws %s while it is used and %s at rest: its time and its energy do not belong together", id, inWatts(high), inWatts(low))
		default:
			done = append(done, fmt.Sprintf("%s at rest %s, used %s", id, inWatts(low), inWatts(high)))
		}
	}
	a.conclude(done, "GPU power follows GPU time", otherwise)
}
