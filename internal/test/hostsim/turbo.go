// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"math"
	"time"
)

// Turbo sets a socket's clock rate by its busy cores and its recent power, like RAPL's long-term
// limit (PL1).
type Turbo struct {
	// One and All are the rates with at most one busy core and with all cores busy, relative to the
	// nominal rate. In between, the rate is linear in the busy cores.
	One, All float64
	// Limit is the power of the package, in W, that its average of the last Window may not exceed.
	// Once the average has reached it, the rate falls until the package's power is at the limit.
	Limit  float64
	Window time.Duration

	average float64
}

// rate returns the clock rate of a socket with a number of busy cores. power returns the package's
// power at a rate.
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
