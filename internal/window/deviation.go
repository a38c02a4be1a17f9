// SPDX-License-Identifier: Apache-2.0

package window

import (
	"math"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// deviation holds the results of Deviation for windows of 100 ms and less, of 1 s, and of 10 s and
// more. Results for other windows are interpolated by the logarithm of the window.
type deviation [3]float64

const shortWindow, longWindow = 100 * time.Millisecond, 10 * time.Second

// With these deviations the true energy is within one standard deviation in about 68 % of the cases
// of the simulator (dev/results/deviations.csv). make accuracy measures them. In windows of 100 ms
// most of the simulated workloads have almost no deviation.
var (
	ofOwnPackage    = deviation{0.05, 0.16, 0.27} // for all keys, because no counter shows the power of instructions
	ofPackages      = deviation{0.72, 0.75, 0.88} // several packages with the same users
	ofClockedOnes   = deviation{0.50, 0.50, 0.50} // several packages with the same users, for KeyFrequency
	ofMemory        = deviation{1.7, 1.7, 1.7}    // for keys that do not depend on memory
	ofMemoryByUsers = deviation{1, 1, 1}
)

// Deviation returns the relative standard deviation of a small workload's active energy in a zone
// kind. The deviation exists because the attribution weight is only an approximation of energy.
// window is the length of the windows, and shared reports whether several zones of the kind have
// the same users. The deviation decreases with the workload's share of the node's energy, down to 0
// for a workload that has all of it.
//
// Keys that count hardware events, and GPUs, have the deviation of CPU time, because the simulator
// has neither.
func Deviation(key Key, zone power.Kind, window time.Duration, shared bool) float64 {
	d := ofOwnPackage
	switch {
	case zone == power.DRAM && (key == KeyMemory || key == KeyMemoryCPUTime || key == KeyMissesOrMemory):
		d = ofMemoryByUsers
	case zone == power.DRAM:
		d = ofMemory
	case shared && key == KeyFrequency:
		d = ofClockedOnes
	case shared:
		d = ofPackages
	}
	window = min(max(window, shortWindow), longWindow)
	decades := math.Log10(float64(window) / float64(shortWindow))
	i := min(int(decades), len(d)-2)
	return d[i] * math.Pow(d[i+1]/d[i], decades-float64(i))
}
