// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"cmp"
	"time"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// sampler calls a function once per window, on a goroutine of its own, until it is stopped.
type sampler struct {
	window    time.Duration
	metronome metronome
	stopped   chan struct{}
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
		for m.next() {
			sample()
		}
	}()
}

// stop returns when the last call has.
func (s *sampler) stop() {
	if s.metronome != nil {
		s.metronome.stop()
		<-s.stopped
		s.metronome = nil
	}
	s.window = 0
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

// adjustWindow makes the windows as long as they should be: a meter that can be read only now may have
// counters that wrap sooner. It is called between scrapes, without the lock.
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
	window, why = s.cfg.SamplingInterval, "sampling_interval is set"
	if window > 0 && window < cpu.TickWindow && !s.cpu.Source().Exact() {
		window, why = cpu.TickWindow, "the source of CPU times is too coarse for a shorter sampling_interval"
	}
	longest := cmp.Or(window, s.cfg.CollectionInterval)
	if wrap := s.meters.soonestWrap() / 2; wrap > 0 && longest > wrap {
		window, why = max(wrap, minWindow), "an energy counter could wrap unnoticed in a longer one"
	}
	return window, why
}
