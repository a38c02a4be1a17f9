// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"math"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

const noMeter = "This machine has no meter that can be read"

// each calls do with each measured zone and concludes. do reports whether it checked the zone.
func (a *analysis) each(ok, otherwise string, do func(*Zone) bool) {
	var done []string
	zones := a.measured()
	for _, z := range zones {
		if do(z) {
			done = append(done, z.String())
		}
	}
	if len(zones) == 0 {
		otherwise = noMeter
	}
	a.conclude(done, ok, otherwise)
}

// followsCPUs reports whether the power of a zone kind rises with the load of the CPUs.
func followsCPUs(kind power.Kind) bool {
	return kind == power.Package || kind == power.Core || kind == power.Platform || kind == power.PSys
}

// reads checks that reads of the meters succeed.
func (a *analysis) reads() {
	a.each("Reads do not fail", noMeter, func(z *Zone) bool {
		if z.Failed*100 > z.Reads {
			a.blame([]*Zone{z}, "%d of %d reads of %s failed", z.Failed, z.Reads, z)
		}
		return z.Reads > 0
	})
}

// zero checks that counters count. Graphics may use nothing, and many servers have a psys without a sensor.
func (a *analysis) zero() {
	a.each("Every meter reports energy", noMeter, func(z *Zone) bool {
		n := len(z.Points)
		if n < 2 || !followsCPUs(z.Kind) && z.Kind != power.DRAM {
			return false
		}
		if z.Points[n-1].Value <= z.Points[0].Value {
			if reason := harmlessZero(z); reason != "" {
				a.blamed[z] = true
				a.add(Note, "%s did not change: %s", z, reason)
				return false
			}
			hint := ""
			if z.Meter == "perf" {
				hint = fmt.Sprintf(". Before Linux 7.0 some reads of the power PMU silently give 0 (this is %s): use powercap", a.Machine.Kernel)
			}
			a.blame([]*Zone{z}, "%s reads a constant 0 W%s", z, hint)
		}
		return true
	})
}

// harmlessZero returns why a zone may report no energy without a fault, "" if it may not.
func harmlessZero(z *Zone) string {
	switch {
	case z.Kind == power.PSys:
		return "this machine has no sensor for it"
	case slices.Contains(described, z.Meter):
		return "its counter may be too coarse for this time"
	}
	return ""
}

// stillFor is the least time without a change after which a meter stands still, and stillUpdates the
// least number of its update periods.
const (
	stillFor     = 8.
	stillUpdates = 5
)

// standstill checks that readings go on changing.
func (a *analysis) standstill() {
	a.each("Readings change all the time", noMeter, func(z *Zone) bool {
		if !followsCPUs(z.Kind) && z.Kind != power.DRAM || z.Kind == power.Core {
			return false // cores and GPUs at rest may use nothing
		}
		changed := changes(z.Points)
		if len(changed) < 3 {
			return false
		}
		longest, since := 0., 0.
		changed = append(changed, Point{At: a.Steps[len(a.Steps)-1].To})
		for i := 1; i < len(changed); i++ {
			if gap := changed[i].At - changed[i-1].At; gap > longest {
				longest, since = gap, changed[i-1].At
			}
		}
		if longest > max(stillFor, stillUpdates*period(z.Points)) {
			a.blame([]*Zone{z}, "%s stood still for %.0f s, from %.0f s after the start", z, longest, since)
		}
		return true
	})
}

// The power per hardware thread, per GiB of memory, and of a whole machine that exists, in watts.
const (
	leastThread, mostThread = 0.05, 60.
	leastGiB, mostGiB       = 0.002, 10.
	leastMachine, mostExtra = 0.5, 10_000.
)

// bounds returns the range of possible powers of a zone under the highest load, and names its hardware.
func (a *analysis) bounds(z *Zone) (least, most float64, of string) {
	threads, memory := max(a.Machine.Threads, len(a.Machine.CPUs)), a.Machine.MemoryGiB
	if z.Socket >= 0 {
		sockets := max(a.Machine.Sockets, 1)
		threads, memory = threads/sockets, memory/float64(sockets)
	}
	switch z.Kind {
	case power.Package:
		return leastThread * float64(threads), mostThread * float64(threads), fmt.Sprintf("a package of %d threads", threads)
	case power.DRAM:
		if memory > 0 {
			return leastGiB * memory, mostGiB * memory, fmt.Sprintf("%.0f GiB of memory", memory)
		}
	case power.Platform, power.PSys:
		return leastMachine, mostThread*float64(threads) + mostExtra, fmt.Sprintf("a machine of %d threads", threads)
	}
	return 0, mostThread*float64(threads) + mostExtra, "this zone"
}

// unit checks that powers are possible.
func (a *analysis) unit() {
	a.each("All powers are possible", noMeter, func(z *Zone) bool {
		highest := math.NaN()
		for _, s := range a.Steps {
			if w := a.watts(s, z); math.IsNaN(highest) || w > highest {
				highest = w
			}
		}
		least, most, of := a.bounds(z)
		if highest >= least && highest <= most || math.IsNaN(highest) {
			return !math.IsNaN(highest)
		}
		fit := ""
		for _, factor := range []float64{1e-6, 1e-3, 1e3, 1e6} {
			if w := highest * factor; w >= 2*least && w <= most/2 && fit == "" {
				fit = fmt.Sprintf(". The unit may be swapped: it would be %s if it read %g times as much", inWatts(w), factor)
			}
		}
		a.blame([]*Zone{z}, "%s reads %s at most, which %s cannot draw%s", z, inWatts(highest), of, fit)
		return true
	})
}

// sameTemperature is the largest median difference of a power in W and a temperature in °C.
const sameTemperature = 0.03

// temperature checks that no power is a temperature.
func (a *analysis) temperature() {
	a.each("No power equals a temperature", "No power sensor was compared with a temperature sensor", func(z *Zone) bool {
		if len(z.Raw) > 0 || len(a.Temperatures) == 0 {
			return false // a counter of energy
		}
		changed := changes(z.Points)
		for _, t := range a.Temperatures {
			var off, values []float64
			for i := 1; i < len(changed); i++ {
				middle, gap := (changed[i].At+changed[i-1].At)/2, changed[i].At-changed[i-1].At
				if celsius := valueAt(t, middle); celsius > 0 && gap > 0 {
					off = append(off, math.Abs((changed[i].Value-changed[i-1].Value)/gap/celsius-1))
					values = append(values, celsius)
				}
			}
			if len(off) >= 5 && median(off) < sameTemperature {
				a.blame([]*Zone{z}, "%s reads a temperature in °C as a power: it equals a temperature sensor of this machine (about %.0f °C)", z, median(values))
				return true
			}
		}
		return true
	})
}

// registerCounts is how many counts a register has before it wraps.
const registerCounts = 1 << 32

// unitOf returns the energy of one count of a register in joules: the largest power of two of which
// all values in whole microjoules are multiples, NaN if there is none. The kernel rounds the unit
// down to nanojoules (drivers/powercap/intel_rapl_common.c, rapl_check_unit_core).
func unitOf(raw []Point) float64 {
	changed := changes(raw)
	if len(changed) < 20 {
		return math.NaN()
	}
	for k := 0; k <= 17; k++ { // smaller units cannot be distinguished from microjoules
		exact := math.Ldexp(1, -k)
		for _, unit := range []float64{math.Floor(exact*1e9) / 1e9, exact} {
			if !slices.ContainsFunc(changed, func(p Point) bool { return math.Abs(p.Value-math.Round(p.Value/unit)*unit) > 1.1e-6 }) {
				return unit
			}
		}
	}
	return math.NaN()
}

// wrap checks the range of counters, and each step back.
func (a *analysis) wrap() {
	a.each("Counters do not step back other than by a wrap, and the range fits the resolution", "No meter has a counter", func(z *Zone) bool {
		if len(z.Raw) < 2 {
			return false
		}
		unit := unitOf(z.Raw)
		a.figures[z].Unit = unit
		for _, p := range z.Raw {
			if z.Range > 0 && p.Value > z.Range*(1+1e-6) {
				a.blame([]*Zone{z}, "%s wraps at the wrong range: it reads %.0f J, above its stated range of %.0f J", z, p.Value, z.Range)
				return true
			}
		}
		if back := a.backstep(z); back != "" {
			a.blame([]*Zone{z}, "%s", back)
		} else if full := unit * registerCounts; z.Range > 0 && math.Abs(z.Range/full-1) > 0.001 {
			a.blame([]*Zone{z}, "%s wraps at the wrong range: its unit of %.1f µJ gives a range of %.0f J, but it states %.0f J. Energy is wrong after each wrap",
				z, 1e6*unit, full, z.Range)
		}
		return true
	})
}

// backstep describes a step back that is no wrap at the stated range, "" if there is none.
func (a *analysis) backstep(z *Zone) string {
	for i := 2; i < len(z.Raw); i++ {
		before, last, now := z.Raw[i-2], z.Raw[i-1], z.Raw[i]
		if now.Value >= last.Value {
			continue
		}
		expected := (last.Value - before.Value) / (last.At - before.At) * (now.At - last.At)
		if expected < 0 { // the previous one stepped back
			continue
		}
		slack := 5 + expected
		full := last.Value + expected - now.Value
		if z.Range > 0 && math.Abs(z.Range-full) < slack {
			continue
		}
		_, exponent := math.Frexp(full)
		for _, e := range []int{exponent - 1, exponent} {
			if register := math.Ldexp(1, e); z.Range > 0 && math.Abs(full-register) < slack {
				return fmt.Sprintf("%s wraps at the wrong range: it wrapped at about %.0f J, but states %.0f J", z, register, z.Range)
			}
		}
		return fmt.Sprintf("%s stepped back from %.0f J to %.0f J, which is no wrap: the counter was reset", z, last.Value, now.Value)
	}
	return ""
}

// Lags beyond which a meter is late. A prompt meter reads the moment of the read.
const (
	mostPromptLag, mostLag = 1.5, 3.
	leastAverage           = 5.
)

// lag fits when a change of load shows in each zone.
func (a *analysis) lag() {
	a.each("No meter is late", "The load did not change long enough to measure a lag", func(z *Zone) bool {
		if !followsCPUs(z.Kind) {
			return false
		}
		f := a.figures[z]
		f.Lag, f.Average = a.delay(z)
		most := mostLag
		if z.Prompt {
			most = mostPromptLag
		}
		switch {
		case f.Lag > most:
			a.add(Fault, "%s is %.1f s late%s", z, f.Lag, lagSetting(z.Meter, f.Lag))
		case f.Average >= leastAverage:
			a.add(Note, "%s averages over about %.0f s: changes of load show late and smoothed%s", z, f.Average, lagSetting(z.Meter, f.Average/2))
		}
		return !math.IsNaN(f.Lag)
	})
}

// lagSetting returns the setting that corrects a lag.
func lagSetting(meter string, lag float64) string {
	switch meter {
	case "ipmi", "redfish", "hwmon":
		return fmt.Sprintf(". To correct it: meters::%s::lag: %.0fs", meter, lag)
	case "http":
		return fmt.Sprintf(". To correct it: lag: %.0fs in the section of the meter", lag)
	}
	return ""
}

// grid is the resolution of lags in seconds, and mostUnexplained the largest share of the variance
// that busy CPUs do not explain if power follows them at all.
const (
	grid            = 0.5
	mostUnexplained = 0.5
)

// delay returns the delay and the averaging time in seconds with which the busy time of the CPUs
// explains the power of a zone best, NaN if nothing explains it.
func (a *analysis) delay(z *Zone) (delay, average float64) {
	update := a.figures[z].Update
	if len(a.Busy) == 0 || len(a.stepsOf(isIdle)) == 0 || math.IsNaN(update) {
		return math.NaN(), math.NaN()
	}
	end := min(a.Steps[len(a.Steps)-1].To, z.Points[len(z.Points)-1].At)
	load, energy := sampled(a.busyTotal(), end), sampled(z.Points, end)
	bin := max(1, int(math.Ceil(update/grid)))
	longest := min(int(40/grid), len(energy)/4)
	misfit := func(delay, average int) float64 {
		var x, y []float64
		for i := longest + bin; i+bin < len(energy); i += bin {
			from := max(i-delay-average, 0)
			x = append(x, (load[i+bin-delay]-load[from])/float64(i+bin-delay-from))
			y = append(y, energy[i+bin]-energy[i])
		}
		slope, unexplained := line(x, y)
		if slope < 0 {
			return 1
		}
		return unexplained
	}
	none := misfit(0, 0)
	best := none
	for _, seconds := range []float64{0, 2, 5, 10, 15, 20, 30, 60} {
		over := int(seconds / grid)
		for d := 0; d+over/2 <= longest; d++ {
			if m := misfit(d, over); m < 0.98*best { // the smaller one unless another is clearly better
				best, delay, average = m, float64(d)*grid, seconds
			}
		}
	}
	switch {
	case math.IsNaN(best) || best > mostUnexplained:
		return math.NaN(), math.NaN()
	case best > 0.7*none:
		return 0, 0
	}
	return delay, average
}

// sampled returns the values of a series on the grid.
func sampled(points []Point, end float64) (values []float64) {
	for at := 0.; at <= end; at += grid {
		values = append(values, valueAt(points, at))
	}
	return values
}

// busyTotal returns the busy time of all CPUs together.
func (a *analysis) busyTotal() []Point {
	var total []Point
	for _, cpu := range a.Machine.all() {
		for i, p := range a.Busy[cpu] {
			if i == len(total) {
				total = append(total, Point{At: p.At})
			}
			total[i].Value += p.Value
		}
	}
	return total
}

// line fits a straight line of y over x and returns the unexplained share of the variance of y.
func line(x, y []float64) (slope, unexplained float64) {
	var n, sx, sy, sxx, sxy, syy float64
	for i := range x {
		if math.IsNaN(x[i]) || math.IsNaN(y[i]) {
			continue
		}
		n, sx, sy = n+1, sx+x[i], sy+y[i]
		sxx, sxy, syy = sxx+x[i]*x[i], sxy+x[i]*y[i], syy+y[i]*y[i]
	}
	vx, vy, vxy := sxx-sx*sx/n, syy-sy*sy/n, sxy-sx*sy/n
	if n < 3 || vx <= 0 || vy <= 0 {
		return math.NaN(), math.NaN()
	}
	return vxy / vx, 1 - vxy*vxy/(vx*vy)
}

const mostNoise = 0.05

// noise checks that readings are steady under a constant load.
func (a *analysis) noise() {
	a.each("Readings are steady under a constant load", "The steps of constant load are too short", func(z *Zone) bool {
		if !followsCPUs(z.Kind) {
			return false
		}
		f := a.figures[z]
		estimate := a.noiseOfCounter
		if f.Update > 0.8 {
			estimate = a.noiseOfValues
		}
		if f.Noise = estimate(z); f.Noise > mostNoise {
			a.blame([]*Zone{z}, "%s has a noise of %.0f %% under a constant load", z, 100*f.Noise)
		}
		return !math.IsNaN(f.Noise)
	})
}

// deviation returns the standard deviation of values with a mean of 0, robust against outliers, NaN
// if there are few.
func deviation(values []float64) float64 {
	if len(values) < 5 {
		return math.NaN()
	}
	for i, v := range values {
		values[i] = math.Abs(v)
	}
	return 1.4826 * median(values)
}

// steady returns the time of a step in which a zone shows its load.
func (a *analysis) steady(s *Step, z *Zone) (from, to float64) {
	f := a.figures[z]
	return s.From + zeroIfNaN(f.Lag) + settle + zeroIfNaN(f.Average), s.To + zeroIfNaN(f.Lag)
}

// noiseOfValues returns the noise of a slow meter, relative to its power, from one value to the next.
func (a *analysis) noiseOfValues(z *Zone) float64 {
	var steps, powers []float64
	changed := changes(z.Points)
	for _, s := range a.stepsOf(a.isFull) {
		from, to := a.steady(s, z)
		last := math.NaN()
		for i := 1; i < len(changed); i++ {
			if changed[i-1].At < from || changed[i].At > to {
				continue
			}
			w := rate(changed, changed[i-1].At, changed[i].At)
			if !math.IsNaN(last) {
				steps = append(steps, w-last)
			}
			last = w
			powers = append(powers, w)
		}
	}
	return deviation(steps) / math.Sqrt2 / median(powers)
}

// noiseOfCounter returns the noise of the power of seconds, relative to the power. A counter that is
// read between two updates adds an error that does not depend on how much time passes, so times of 1
// s and 4 s are compared: in the difference of two energies the variance of noise grows with the time.
func (a *analysis) noiseOfCounter(z *Zone) float64 {
	var differences [2][]float64
	var powers []float64
	for _, s := range a.stepsOf(a.isFull) {
		from, to := a.steady(s, z)
		for i, seconds := range []float64{1, 4} {
			for at := from; at+2*seconds <= to; at += 0.25 {
				first, second := rate(z.Points, at, at+seconds), rate(z.Points, at+seconds, at+2*seconds)
				if !math.IsNaN(first + second) {
					differences[i] = append(differences[i], (second-first)*seconds)
					powers = append(powers, first)
				}
			}
		}
	}
	short, long := deviation(differences[0]), deviation(differences[1])
	return math.Sqrt(max(long*long-short*short, 0)/6) / median(powers)
}

// leastRise is by how much power rises at least from rest to full load.
const leastRise = 0.05

// following checks that power rises with the load.
func (a *analysis) following() {
	full := a.stepsOf(a.isFull)
	a.each("Power follows the load", "The machine was not at rest and under full load", func(z *Zone) bool {
		idle, busy := a.lowest(z), a.mean(full, z)
		if math.IsNaN(idle) || math.IsNaN(busy) || !followsCPUs(z.Kind) {
			return false
		}
		if busy < idle*(1+leastRise) {
			a.blame([]*Zone{z}, "%s does not follow the load: %s at rest, %s with all CPUs busy", z, inWatts(idle), inWatts(busy))
			return true
		}
		for _, s := range a.stepsOf(func(s *Step) bool { return s.Load == Spin }) {
			if w := a.watts(s, z); w > busy*1.25 || w < idle*0.9 {
				a.blame([]*Zone{z}, "%s does not follow the load: %s in step %q, %s at rest and %s with all CPUs busy", z, inWatts(w), s.Name, inWatts(idle), inWatts(busy))
				return true
			}
		}
		return true
	})
}

// inWatts formats a power.
func inWatts(w float64) string {
	switch {
	case math.IsNaN(w):
		return "-"
	case math.Abs(w) >= 10_000:
		return fmt.Sprintf("%.0f kW", w/1000)
	case math.Abs(w) < 0.1 && w != 0:
		return fmt.Sprintf("%.3g mW", 1000*w)
	}
	return fmt.Sprintf("%.3g W", w)
}
