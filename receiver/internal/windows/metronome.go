// SPDX-License-Identifier: Apache-2.0

package windows

import "time"

// Metronome beats at the end of each window until it is stopped.
type Metronome interface {
	// Next waits for a beat, and returns the number of windows that have ended since the previous
	// beat. All but one of them were missed. Next returns 0 immediately after the metronome is
	// stopped.
	Next() int64
	Stop()
}

// NewMetronome returns a metronome that beats at the end of each window. It uses a kernel timer if
// the kernel has one: it wakes one thread, and a Go timer wakes several.
func NewMetronome(window time.Duration) Metronome {
	if m, err := newKernelTimer(window); err == nil {
		return m
	}
	return NewTicking(window)
}

// Still returns a metronome that never beats, for simulators that end the windows themselves.
func Still(time.Duration) Metronome { return still(make(chan struct{})) }

type still chan struct{}

func (s still) Next() int64 {
	<-s
	return 0
}

func (s still) Stop() { close(s) }

// ticking is a metronome that uses a Go timer.
type ticking struct {
	window time.Duration
	ticker *time.Ticker
	began  time.Time
	ended  int64 // windows
	done   chan struct{}
}

// NewTicking returns a metronome that uses a Go timer, for machines without kernel timers and for
// tests whose clock is not the kernel's.
func NewTicking(window time.Duration) Metronome {
	return &ticking{window: window, began: time.Now(), ticker: time.NewTicker(window), done: make(chan struct{})}
}

func (t *ticking) Next() int64 {
	select {
	case <-t.done:
		return 0
	case at := <-t.ticker.C:
		before := t.ended
		t.ended = max(int64(at.Sub(t.began)/t.window), before+1)
		return t.ended - before
	}
}

func (t *ticking) Stop() {
	t.ticker.Stop()
	close(t.done)
}
