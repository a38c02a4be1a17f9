// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/stats"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// unitOf returns the energy of one count of a register in joules, or NaN. It is the largest power of
// two that divides all values, which are in whole microjoules. The kernel rounds the unit down to
// nanojoules (drivers/powercap/intel_rapl_common.c, rapl_check_unit_core).
func unitOf(raw []Point) float64 {
	changed := changes(raw)
	if len(changed) < 20 {
		return math.NaN()
	}
	for k := 0; k <= 17; k++ { // smaller units cannot be distinguished from microjoules
		exact := math.Ldexp(1, -k)
		for _, unit := range []float64{math.Floor(exact*1e9) / 1e9, exact} {
			isOff := func(p Point) bool { return math.Abs(p.Value-math.Round(p.Value/unit)*unit) > 1.1e-6 }
			if !slices.ContainsFunc(changed, isOff) {
				return unit
			}
		}
	}
	return math.NaN()
}

// backstep returns the values before and after a step back that is no wrap at the stated range.
// register is a power of two if the counter wrapped there, and 0 if it was reset.
func backstep(z *Zone) (last, now, register float64) {
	for i := 2; i < len(z.Raw); i++ {
		p, q, r := z.Raw[i-2], z.Raw[i-1], z.Raw[i]
		expected := (q.Value - p.Value) / (q.At - p.At) * (r.At - q.At)
		full, slack := q.Value+expected-r.Value, 5+expected
		if r.Value >= q.Value || expected < 0 || z.Range > 0 && math.Abs(z.Range-full) < slack {
			continue
		}
		_, exponent := math.Frexp(full)
		for _, e := range []int{exponent, exponent - 1} {
			if size := math.Ldexp(1, e); z.Range > 0 && math.Abs(full-size) < slack {
				register = size
			}
		}
		return q.Value, r.Value, register
	}
	return 0, 0, 0
}

// grid is the resolution of lags in seconds, and mostUnexplained the largest share of the variance
// that busy CPUs do not explain if power follows them at all.
const (
	grid            = 0.5
	mostUnexplained = 0.5
)

// delay returns the delay and the averaging time of a zone in seconds. With them, the busy time of
// the CPUs explains its power best. They are NaN if it does not explain the power.
func (a *analysis) delay(z *Zone) (delay, average float64) {
	if len(a.steps(Idle)) == 0 || math.IsNaN(z.Update) {
		return math.NaN(), math.NaN()
	}
	end := min(a.Steps[len(a.Steps)-1].To, lastAt(z.Points))
	energy, load := sampled(z.Points, end), make([]float64, int(end/grid)+1)
	for _, c := range a.Machine.CPUs {
		for i, busy := range sampled(a.Busy[c.Number], end) {
			load[i] += busy
		}
	}
	bin := max(1, int(math.Ceil(z.Update/grid)))
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

// line returns the slope of a straight line of y over x, and the unexplained share of the variance.
func line(x, y []float64) (slope, unexplained float64) {
	if len(x) < 3 {
		return math.NaN(), math.NaN()
	}
	_, slope = stat.LinearRegression(x, y, nil, false)
	r := stat.Correlation(x, y, nil)
	return slope, 1 - r*r
}

// noiseOf returns the relative standard deviation of the power of a second, or of an update period
// if it is longer. It compares adjacent times under full load. They are long enough that the time
// of an update between two reads hardly matters.
func (a *analysis) noiseOf(z *Zone) float64 {
	length := max(4, z.Update)
	var off, watts []float64
	for _, s := range a.full() {
		from, to := s.From+orZero(z.Lag)+settle+orZero(z.Average), s.To+orZero(z.Lag)
		for _, p := range changes(z.Points) {
			middle, end := p.At+length, p.At+2*length
			if x, y := rate(z.Points, p.At, middle), rate(z.Points, middle, end); p.At >= from && end <= to {
				off, watts = append(off, math.Abs(y-x)), append(watts, x)
			}
		}
	}
	if len(off) < 5 {
		return math.NaN()
	}
	// 1.4826 times the median is the standard deviation, without outliers.
	return 1.4826 * stats.Median(off) / stats.Median(watts) * math.Sqrt(length/max(1, z.Update)/2)
}

// dramShare returns the power that a watt of DRAM adds to the whole machine, relative to a watt of
// the package, and its standard error. It is a regression of the whole machine over both.
func (a *analysis) dramShare(dram []*Zone) (share, deviation float64) {
	whole, pkg := a.preferred(power.Platform), a.preferred(power.Package)
	if len(whole) == 0 || len(pkg) == 0 {
		return math.NaN(), math.NaN()
	}
	var p, d, w []float64
	for _, s := range a.steps(Idle, Spin, Memory) {
		watts := []float64{a.watts(s, pkg[0].zones...), a.watts(s, dram...), a.watts(s, whole[0].zones...)}
		if !math.IsNaN(watts[0] + watts[1] + watts[2]) {
			p, d, w = append(p, watts[0]), append(d, watts[1]), append(w, watts[2])
		}
	}
	if len(w) < 6 {
		return math.NaN(), math.NaN()
	}
	ofPackage, _ := line(residual(p, d), residual(w, d))
	ofDRAM, unexplained := line(residual(d, p), residual(w, p))
	return ofDRAM / ofPackage, math.Abs(ofDRAM/ofPackage) * math.Sqrt(unexplained/(1-unexplained)/float64(len(w)-3))
}

// residual returns the part of y that a straight line over x does not explain. Lines of such parts have
// the slopes of a regression over both variables (Frisch and Waugh, Econometrica 1, 1933).
func residual(y, x []float64) (rest []float64) {
	offset, slope := stat.LinearRegression(x, y, nil, false)
	for i := range y {
		rest = append(rest, y[i]-offset-slope*x[i])
	}
	return rest
}
