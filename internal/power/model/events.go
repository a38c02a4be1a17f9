// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Feature is a rate of the whole node that power can depend on.
type Feature int

// The features. CPUTime is in milliseconds per second. The others are events per second: hardware
// events, and softirqs of /proc/stat.
const (
	CPUTime Feature = iota
	Cycles
	Instructions
	CacheMisses
	NetworkReceive
	NetworkTransmit
	Block
	features int = iota
)

// Rates are the features of an interval, by Feature.
type Rates [features]float64

// Events reads the rates of events. One goroutine uses it.
type Events interface {
	// Rates returns the average rates since the previous call, or since the start. CPUTime is 0.
	// After a failed call the error may be ErrRestarted.
	Rates(now time.Time) (Rates, error)
	// Close releases all resources. No call follows.
	Close() error
}

// ErrRestarted is the error of Events that started to count again, because the set of online CPUs
// changed or events were missed. The next call covers the time since this error.
var ErrRestarted = errors.New("events are counted from now on")

var errCountless = errors.New("the hardware counters of this machine do not count: use a power model over CPU time")

func ignoreRestart(err error) error {
	if errors.Is(err, ErrRestarted) {
		return nil
	}
	return err
}

// countlessLimit is the CPU time within which every working hardware counter counts an event.
// Counters of some virtual machines always read 0. A counter without an event in this CPU time is
// treated as not available.
const countlessLimit = units.Second / 10

// readRates reads the rates of an interval.
func (s *source) readRates(now time.Time, busy units.CPUTime, elapsed time.Duration) (err error) {
	if s.events != nil {
		if s.rates, err = s.events.Rates(now); err != nil {
			return err
		}
		for _, f := range s.needs {
			if f >= Cycles && f <= CacheMisses && s.rates[f] == 0 && busy >= countlessLimit {
				return errCountless
			}
		}
	}
	s.rates[CPUTime] = float64(busy) / float64(units.Second) * 1000 / elapsed.Seconds()
	return nil
}
