// SPDX-License-Identifier: Apache-2.0

// Package signal represents the carbon intensity of electricity, which changes with time and place.
//
// A Constant and a Timeline are Signals. A Poller polls a Provider of package provider on its own
// goroutine and fills a Timeline with the answers.
package signal

import "time"

// Rate is a carbon intensity in µg CO2e per kWh of electricity. It is never negative.
type Rate int64

// Period is a time with a constant rate.
type Period struct {
	From, Until time.Time // Until is not included
	Rate        Rate
	Estimated   bool // by the provider, not measured
}

// Mean is the mean of a rate over some time, each part weighted by its length.
type Mean struct {
	Rate      Rate // rounded to the nearest µg per kWh
	Estimated bool // a part of it is
	Stale     bool // a part of it belongs to an earlier time
}

// Signal is a quantity of one place. Mean is called while data is processed: it does not wait for a
// provider and does not allocate. Providers are polled on separate goroutines. A Signal may be used
// by several goroutines.
type Signal interface {
	// Mean returns the mean from one moment to a later one, or the rate at a moment if both are the
	// same. ok is false if a part of that time has no rate, because no rate is assumed.
	Mean(from, until time.Time) (m Mean, ok bool)
}

// Constant is a Signal that never changes.
type Constant Rate

// Mean returns the rate. It is not ok if until is before from.
func (c Constant) Mean(from, until time.Time) (Mean, bool) {
	return Mean{Rate: Rate(c)}, !until.Before(from)
}
