// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"sync"
	"time"
)

// sampler calls a function once per window, on a goroutine of its own, until it is stopped. It counts the windows that it skipped.
type sampler struct {
	Window  time.Duration // 0 while it is stopped
	stopped chan struct{}

	mu        sync.Mutex // of what follows
	metronome metronome  // nil while it is stopped
	pace      pace
	windows   int64 // that ended, since the start
	skipped   int64 // of them
}

// start begins with the windows; a window of 0 means none.
func (s *sampler) start(window time.Duration, sample func()) {
	s.Window = window
	if window == 0 {
		return
	}
	m, stopped := newMetronome(window), make(chan struct{})
	s.metronome, s.stopped = m, stopped
	go func() {
		defer close(stopped)
		s.run(m, sample)
	}()
}

// run calls sample once per window, until the metronome is stopped.
func (s *sampler) run(m metronome, sample func()) {
	for windows := m.next(); windows > 0; windows = m.next() {
		sample()
		s.observe(windows)
	}
}

// observe counts windows of which all but one were skipped.
func (s *sampler) observe(windows int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windows += windows
	s.skipped += windows - 1
	s.pace.observe(windows, s.Window)
}

// stop returns when the last call has.
func (s *sampler) stop() {
	s.mu.Lock()
	m := s.metronome
	s.metronome = nil
	s.mu.Unlock()
	if m != nil {
		m.stop()
		<-s.stopped
	}
	s.Window = 0
}

// err returns an error while too many windows are missed.
func (s *sampler) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pace.err()
}

// counts returns the windows that ended, and how many of them were skipped.
func (s *sampler) counts() (windows, skipped int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.windows, s.skipped
}
