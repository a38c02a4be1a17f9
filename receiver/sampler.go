// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"cmp"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// sampler calls a function once per window, on a goroutine of its own, until it is stopped. It counts the windows that it skipped.
type sampler struct {
	window  time.Duration
	stopped chan struct{}

	mu        sync.Mutex // of what follows
	metronome metronome  // nil while it is stopped
	pace      pace
	windows   int64 // that ended, since the start
	skipped   int64 // of them
}

// start begins with the windows; a window of 0 means none.
func (s *sampler) start(window time.Duration, sample func()) {
	s.window = window
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
	s.pace.observe(windows, s.window)
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
	s.window = 0
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

// tooSoon reports whether a window is shorter than the CPU time source resolves. That happens after procfs replaced BPF, until
// the next collection adjusts the windows.
func (s *energyScraper) tooSoon() bool {
	if s.sampler.window == 0 || s.cpu.Source().Exact() || s.ledger == nil {
		return false
	}
	window, _ := s.window()
	return s.sampler.window < window && s.now().Sub(s.ledger.Last().ReadAt) < window
}

// adjustWindow makes the windows as long as they should be: a meter that can be read only now may
// have counters that wrap sooner, or the source of CPU times may have changed. It is called between
// scrapes, without the lock.
func (s *energyScraper) adjustWindow() {
	s.mu.Lock()
	window, why := s.window()
	s.mu.Unlock()
	if window == s.sampler.window {
		return
	}
	s.set.Logger.Info("Attribution window changed", zap.Stringer("window", cmp.Or(window, s.cfg.CollectionInterval)), zap.String("reason", why))
	s.sampler.stop()
	s.sampler.start(window, s.sample)
}

// window is how long the windows should be, and why; 0 is one per collection.
func (s *energyScraper) window() (window time.Duration, why string) {
	window, why = s.cfg.windowLength(), "it is configured or the default"
	if s.cfg.Window == 0 && s.container != "" {
		window = 0
	}
	if window > 0 && window < cpu.TickWindow && !s.cpu.Source().Exact() {
		window, why = cpu.TickWindow, "the source of CPU times is too coarse for a shorter window"
	}
	longest := cmp.Or(window, s.cfg.CollectionInterval)
	if wrap := s.meters.soonestWrap() / 2; wrap > 0 && longest > wrap {
		window, why = max(wrap, minWindow), "an energy counter could wrap unnoticed in a longer one"
	}
	return window, why
}
