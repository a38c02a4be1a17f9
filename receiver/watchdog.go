// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"
)

// lock is a mutex with a timed lock operation. The zero lock is not usable; call newLock.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

// Lock locks l.
func (l lock) Lock() { l <- struct{}{} }

// Unlock unlocks l, which must be locked.
func (l lock) Unlock() { <-l }

// LockUnless locks l unless ctx is done before. It reports whether l is locked.
func (l lock) LockUnless(ctx context.Context) bool {
	select {
	case l <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// LockWithin locks l if that takes at most d. It reports whether l is locked.
func (l lock) LockWithin(d time.Duration) bool {
	select {
	case l <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case l <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}

// activity is the current activity of the receiver. Its text completes the phrase "the receiver is".
type activity int32

const (
	idle activity = iota
	starting
	readingNode
	readingMeters
	readingProcesses
	readingGPUs
	attributing
	saving
	feedingReaders
	building
	delivering
)

var activities = [...]string{
	idle:             "idle",
	starting:         "starting",
	readingNode:      "reading the node's CPU time",
	readingMeters:    "reading meters",
	readingProcesses: "reading process CPU times",
	readingGPUs:      "reading GPU usage",
	attributing:      "identifying processes and attributing energy",
	saving:           "saving the state",
	feedingReaders:   "handing the window to readers of the feed",
	building:         "building metrics",
	delivering:       "waiting for the next consumer",
}

func (a activity) String() string { return activities[a] }

// overdue is the delay after which a late collection is reported as hanging.
const overdue = 10 * time.Second

// watchdog reports collections that hang, and the activity in which they hang. It depends neither on the scraper's lock nor on
// the goroutine that hangs. The zero watchdog records the activity and reports nothing.
type watchdog struct {
	activity atomic.Int32
	limit    time.Duration // between the ends of two collections
	timer    *time.Timer
	stopped  atomic.Bool
}

// start starts the watchdog, which expects a first collection after delay, and then one every interval. report is called once
// per hang, on its own goroutine.
func (w *watchdog) start(delay, interval time.Duration, report func(error)) {
	w.limit = interval + overdue
	w.timer = time.AfterFunc(delay+w.limit, func() {
		if w.stopped.Load() {
			return
		}
		report(fmt.Errorf("no collection has finished for %v; the receiver is %v", w.limit, w.current()))
	})
}

// enter records the start of an activity.
func (w *watchdog) enter(a activity) { w.activity.Store(int32(a)) }

// current returns the current activity.
func (w *watchdog) current() activity { return activity(w.activity.Load()) }

// finished records the end of a collection.
func (w *watchdog) finished() {
	if w.timer != nil && !w.stopped.Load() {
		w.timer.Reset(w.limit)
	}
}

// stop stops the watchdog, which reports nothing afterwards.
func (w *watchdog) stop() {
	w.stopped.Store(true)
	if w.timer != nil {
		w.timer.Stop()
	}
}

// gate forwards metrics to the next consumer until it is shut. The collector shuts that consumer down after the receiver.
type gate struct {
	consumer.Metrics
	shut *atomic.Bool
}

var errShut = errors.New("the receiver has been shut down")

// ConsumeMetrics implements consumer.Metrics.
func (g gate) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error {
	if g.shut.Load() {
		return errShut
	}
	return g.Metrics.ConsumeMetrics(ctx, md)
}

// promptReceiver is a receiver whose Shutdown returns even while a collection hangs.
type promptReceiver struct {
	receiver.Metrics
	scraper *energyScraper
	shut    *atomic.Bool // of the gate
}

// shutdownTimeout is the maximum duration of the receiver's shutdown.
const shutdownTimeout = 4 * time.Second

// Shutdown shuts the receiver down. After shutdownTimeout it logs an error and returns, and no more metrics are sent to the
// next consumer. A goroutine that hangs ends with the collector's process. Shutdown returns no error then: on a slow machine,
// nothing but time is missing.
func (r promptReceiver) Shutdown(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- r.Metrics.Shutdown(ctx) }()
	timer := time.NewTimer(shutdownTimeout)
	defer timer.Stop()
	defer r.shut.Store(true)
	select {
	case err := <-done:
		return err
	case <-timer.C:
		r.scraper.set.Logger.Error("Shutdown abandoned", zap.Duration("timeout", shutdownTimeout),
			zap.Stringer("activity", r.scraper.watchdog.current()))
		return nil
	}
}
