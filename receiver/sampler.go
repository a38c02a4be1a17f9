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
	logger  *zap.Logger

	mu        sync.Mutex // of what follows
	metronome metronome  // nil while it is stopped
	pace      pace
	priority  priority      // that the windows' thread got last
	windows   int64         // that ended, since the start
	skipped   int64         // of them
	debt      time.Duration // CPU time of collections at real-time priority, beyond their share
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
	var own thread
	defer func() { own.release() }()
	raised := s.raised()
	for {
		if raised != own.raised() {
			if m = s.change(m, &own, raised); m == nil {
				return
			}
		}
		windows := m.next()
		if windows == 0 {
			return
		}
		sample()
		raised = s.observe(windows)
	}
}

// borrow gives the calling goroutine's thread the priority of the windows' thread, if that is raised. It is for a collection, which
// windows wait for. Collections an interval apart have real-time priority for mostBusy of a CPU on average. The goroutine calls
// giveBack when it is done.
func (s *sampler) borrow(interval time.Duration) (own thread) {
	if s.lends(interval) {
		_ = own.raise() // refused only if the grant is gone, which costs windows and no more
	}
	return own
}

// lends reports whether the next collection should have the priority of the windows' thread.
func (s *sampler) lends(interval time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.debt = max(0, s.debt-time.Duration(mostBusy*float64(interval)))
	return s.debt == 0 && s.metronome != nil && s.pace.raised && (s.priority == highPriority || s.priority == realTimePriority)
}

// giveBack undoes borrow.
func (s *sampler) giveBack(own *thread) {
	used := own.used()
	own.release()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.debt += used
}

// raised reports whether the windows' thread should have a higher priority.
func (s *sampler) raised() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pace.raised
}

// observe counts windows of which all but one were skipped, and reports whether the thread should have a higher priority.
func (s *sampler) observe(windows int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windows += windows
	s.skipped += windows - 1
	if s.pace.observe(windows, s.window) {
		s.pace.judge()
	}
	return s.pace.raised
}

// change gives the windows' thread a higher priority, or takes it back. It returns the metronome for it, or nil if the sampler is
// being stopped.
func (s *sampler) change(m metronome, own *thread, raised bool) metronome {
	if !raised {
		own.release()
		return s.replace(newMetronome(s.window))
	}
	refused := own.raise()
	s.mu.Lock()
	news := own.priority != s.priority
	s.priority = own.priority
	s.mu.Unlock()
	if news {
		s.logger.Info("Attribution windows are skipped: priority of their thread raised as far as granted",
			zap.String("priority", string(own.priority)), zap.NamedError("rejected", refused))
	}
	if own.priority == normalPriority {
		return m
	}
	blocking, err := newBlockingTimer(s.window)
	if err != nil {
		return m
	}
	return s.replace(blocking)
}

// replace stops the metronome and returns the one that takes its place, or nil if the sampler is being stopped.
func (s *sampler) replace(m metronome) metronome {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.metronome == nil {
		m.stop()
		return nil
	}
	s.metronome.stop()
	s.metronome = m
	return m
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

// err returns why windows are not kept as they are configured.
func (s *sampler) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pace.err(s.priority)
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

// adjustWindow makes the windows as long as they should be: a meter that can be read only now may have
// counters that wrap sooner, or the source of CPU times may have changed. It is called between scrapes, without the lock.
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
