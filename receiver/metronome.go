// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import "time"

// metronome beats once per window, until it is stopped. A beat that nobody waited for is not made up for.
type metronome interface {
	// next waits for a beat. It returns false, at once, when the metronome is stopped.
	next() bool
	stop()
}

// shortWindow is where waking up costs as much as what is done then: shorter windows have a timer of the kernel's,
// which wakes one thread where one of Go's wakes several.
const shortWindow = time.Second

func newMetronome(window time.Duration) metronome {
	if window < shortWindow {
		if m, err := newKernelTimer(window); err == nil {
			return m
		}
	}
	return &ticking{time.NewTicker(window), make(chan struct{})}
}

// ticking is a metronome by a timer of Go's.
type ticking struct {
	ticker *time.Ticker
	done   chan struct{}
}

func (t *ticking) next() bool {
	select {
	case <-t.done:
		return false
	case <-t.ticker.C:
		return true
	}
}

func (t *ticking) stop() {
	t.ticker.Stop()
	close(t.done)
}
