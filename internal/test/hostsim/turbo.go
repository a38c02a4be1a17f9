// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"math"
	"time"
)

// Turbo sets a socket's clock rate by its busy cores and its recent power, as RAPL's long-term limit (PL1) does.
type Turbo struct {
	// One and All are the rates with at most one busy core and with all of them, relative to the nominal rate. The rate
	// falls linearly with the busy cores in between.
	One, All float64
	// Limit is the power of the package, in W, above which its average of the last Window may not stay. The rate falls
	// to what keeps the package at the limit once the average has reached it.
	Limit  float64
	Window time.Duration

	average float64
}

// rate returns the clock rate of a socket in which so many cores are busy. power returns the package's power at a rate.
func (t *Turbo) rate(busy, cores float64, power func(rate float64) float64) float64 {
	rate := t.One
	if busy > 1 && cores > 1 {
		rate += (t.All - t.One) * (min(busy, cores) - 1) / (cores - 1)
	}
	if t.average < t.Limit || power(rate) <= t.Limit {
		return rate
	}
	low := 0.0
	for range 40 {
		if middle := (low + rate) / 2; power(middle) <= t.Limit {
			low = middle
		} else {
			rate = middle
		}
	}
	return low
}

// heat adds the power of a step to the average.
func (t *Turbo) heat(watts, seconds float64) {
	t.average += (watts - t.average) * (1 - math.Exp(-seconds/t.Window.Seconds()))
}
