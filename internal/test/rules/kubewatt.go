// SPDX-License-Identifier: Apache-2.0

package rules

import "slices"

// KubeWatt is the rule of KubeWatt (estimator/ContainerPowerEstimator.java,
// initializer/BootstrapInitializer.java). Static power is the constant of a straight line through
// samples of power and CPU use. The line needs samples in every tenth of the utilization from 20 to
// 80 %: at least half as many as in the tenth with the most. Dynamic power goes to containers by
// their CPU use, every 15 s here. KubeWatt reads a BMC; here it gets the energy counters instead.
// It handles containers only, so every workload counts as one.
type KubeWatt struct {
	Machine Machine

	samples    []sample
	static     Energy // W
	calibrated bool
}

type sample struct {
	used  float64 // CPUs
	watts Energy
}

// round is the number of samples between two checks for enough samples: 30 minutes at 15 s.
const round = 120

// Observe returns the dynamic energies. They are zero before static power is calibrated.
func (k *KubeWatt) Observe(i *Interval) Report {
	r := Report{Parts: make([]Energy, len(i.Users))}
	if !k.calibrated {
		k.samples = append(k.samples, sample{i.sum(cpu) / i.Seconds, i.Energy().Times(1 / i.Seconds)})
		if len(k.samples)%round != 0 || !k.suffice() {
			return r
		}
		k.static, k.calibrated, k.samples = line(k.taken()), true, nil
		return r
	}
	e, static := i.Energy(), k.static.Sum()*i.Seconds
	// The power of the node is one figure. Package and DRAM get parts in proportion to their
	// energy.
	dynamic := e.Times(over(max(e.Sum()-static, 0), e.Sum()))
	return Report{Whole: dynamic.Sum(), Parts: i.shared(dynamic, cpu)}
}

// suffice reports whether the buckets are filled evenly enough.
func (k *KubeWatt) suffice() bool {
	var buckets [6]int
	most := 0
	for _, s := range k.samples {
		b := int(10*s.used/float64(k.Machine.CPUs)) - 2
		if b >= 0 && b < len(buckets) {
			buckets[b]++
			most = max(most, buckets[b])
		}
	}
	for _, n := range buckets {
		if n < most/2 {
			return false
		}
	}
	return most > 0
}

// taken returns the samples for the line. With two threads per core it drops samples with more than
// half of the CPUs in use.
func (k *KubeWatt) taken() []sample {
	if k.Machine.Threads < 2 {
		return k.samples
	}
	return slices.DeleteFunc(k.samples, func(s sample) bool { return s.used > float64(k.Machine.CPUs/2) })
}

// line returns the constants of the straight lines of least squares.
func line(samples []sample) Energy {
	n := float64(len(samples))
	var x, xx float64
	var y, xy Energy
	for _, s := range samples {
		x, xx = x+s.used, xx+s.used*s.used
		y, xy = y.Plus(s.watts), xy.Plus(s.watts.Times(s.used))
	}
	slope := xy.Times(n).Plus(y.Times(-x)).Times(over(1, n*xx-x*x))
	return y.Plus(slope.Times(-x)).Times(1 / n)
}
