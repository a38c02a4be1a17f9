package receiver

import (
	"time"

	"go.uber.org/zap"
)

// sampler calls a function once per window, on a goroutine of its own, until it is stopped.
type sampler struct {
	done    chan struct{}
	stopped chan struct{}
}

// start begins with the windows; a window of 0 means none.
func (s *sampler) start(window time.Duration, sample func()) {
	if window == 0 {
		return
	}
	s.done, s.stopped = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(s.stopped)
		ticker := time.NewTicker(window)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				sample()
			case <-s.done:
				return
			}
		}
	}()
}

// stop returns when the last call has.
func (s *sampler) stop() {
	if s.done != nil {
		close(s.done)
		<-s.stopped
		s.done = nil
	}
}

// tickWindow is the shortest window for a source that counts in ticks of 10 ms: a hundred of them, so that
// a tick is one percent.
const tickWindow = time.Second

// window is how long the windows are, 0 for one per collection.
func (s *energyScraper) window() time.Duration {
	window := s.cfg.SamplingInterval
	if window > 0 && window < tickWindow && !s.source.Exact() {
		s.set.Logger.Warn("The source of CPU times is too coarse for such short windows; they are longer",
			zap.Duration("sampling_interval", window), zap.Duration("window", tickWindow))
		window = tickWindow
	}
	longest := s.cfg.CollectionInterval
	if window > 0 {
		longest = window
	}
	if wrap := s.meters.soonestWrap(); wrap > 0 && longest > wrap/2 {
		s.set.Logger.Info("An energy counter could wrap unnoticed within an interval, so it is read in between",
			zap.Duration("interval", longest), zap.Duration("window", wrap/2))
		window = wrap / 2
	}
	return window
}
