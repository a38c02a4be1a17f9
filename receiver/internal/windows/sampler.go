// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"sync"
	"time"
)

// sampler calls a function once per window, on a goroutine of its own, until it is stopped. It
// counts missed windows.
type sampler struct {
	Window  time.Duration // 0 while it is stopped
	stopped chan struct{}

	mu        sync.Mutex // of the fields below
	metronome Metronome  // nil while it is stopped
	Pace      pace
	windows   int64 // number of windows that ended since the start
	missed    int64 // number of them that were missed
}

// Start starts calling sample at the beats of a new metronome. If window is 0, Start has no effect.
func (s *sampler) Start(window time.Duration, open func(time.Duration) Metronome, sample func()) {
	s.Window = window
	if window == 0 {
		return
	}
	m, stopped := open(window), make(chan struct{})
	s.metronome, s.stopped = m, stopped
	go func() {
		defer close(stopped)
		s.Run(m, sample)
	}()
}

// Run calls sample once per window, until the metronome is stopped.
func (s *sampler) Run(m Metronome, sample func()) {
	for windows := m.Next(); windows > 0; windows = m.Next() {
		sample()
		s.observe(windows)
	}
}

// observe counts windows, all but one of which were missed.
func (s *sampler) observe(windows int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windows += windows
	s.missed += windows - 1
	s.Pace.observe(windows, s.Window)
}

// Stop stops the sampler, and returns after the last call of sample has returned.
func (s *sampler) Stop() {
	s.mu.Lock()
	m := s.metronome
	s.metronome = nil
	s.mu.Unlock()
	if m != nil {
		m.Stop()
		<-s.stopped
	}
	s.Window = 0
}

// Err returns an error while too many windows are missed.
func (s *sampler) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Pace.err()
}

// Counts returns the windows that ended, and how many of them were missed.
func (s *sampler) Counts() (windows, missed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.windows, s.missed
}
