// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import "time"

// metronome beats once per window until it is stopped. A beat that nobody waits for is lost.
type metronome interface {
	// next waits for a beat. It returns false, at once, when the metronome is stopped.
	next() bool
	stop()
}

// shortWindow is the window below which waking up costs as much as the scan. Shorter windows use a kernel timer, which
// wakes one thread where a Go timer wakes several.
const shortWindow = time.Second

func newMetronome(window time.Duration) metronome {
	if window < shortWindow {
		if m, err := newKernelTimer(window); err == nil {
			return m
		}
	}
	return &ticking{time.NewTicker(window), make(chan struct{})}
}

// ticking is a metronome that uses a Go timer.
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
