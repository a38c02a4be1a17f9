// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Activity is the current activity of the receiver. Its text completes the phrase "the receiver is".
type Activity int32

// The activities of the receiver.
const (
	Idle Activity = iota
	Starting
	ReadingNode
	ReadingMeters
	ReadingProcesses
	ReadingGPUs
	Attributing
	Saving
	FeedingReaders
	Building
	Delivering
)

var activities = [...]string{
	Idle:             "idle",
	Starting:         "starting",
	ReadingNode:      "reading the node's CPU time",
	ReadingMeters:    "reading meters",
	ReadingProcesses: "reading process CPU times",
	ReadingGPUs:      "reading GPU usage",
	Attributing:      "identifying processes and attributing energy",
	Saving:           "saving the state",
	FeedingReaders:   "handing the window to readers of the feed",
	Building:         "building metrics",
	Delivering:       "waiting for the next consumer",
}

// String implements fmt.Stringer.
func (a Activity) String() string { return activities[a] }

// overdue is the delay after which a late collection is reported as hanging.
const overdue = 10 * time.Second

// Watchdog reports collections that hang, and the activity in which they hang. It does not depend
// on the scraper's lock or on the goroutine that hangs. The zero Watchdog records activities and
// never reports.
type Watchdog struct {
	activity atomic.Int32
	limit    time.Duration // between the ends of two collections
	timer    *time.Timer
	stopped  atomic.Bool
}

// Start starts the watchdog, which expects a first collection after delay, and then one every
// interval. report is called once per hang, on its own goroutine.
func (w *Watchdog) Start(delay, interval time.Duration, report func(error)) {
	w.limit = interval + overdue
	w.timer = time.AfterFunc(delay+w.limit, func() {
		if w.stopped.Load() {
			return
		}
		report(fmt.Errorf("no collection has finished for %v; the receiver is %v", w.limit, w.Current()))
	})
}

// Enter records the start of an activity.
func (w *Watchdog) Enter(a Activity) { w.activity.Store(int32(a)) }

// Current returns the current activity.
func (w *Watchdog) Current() Activity { return Activity(w.activity.Load()) }

// Finished records the end of a collection.
func (w *Watchdog) Finished() {
	if w.timer != nil && !w.stopped.Load() {
		w.timer.Reset(w.limit)
	}
}

// Stop stops the watchdog, which does not report afterwards.
func (w *Watchdog) Stop() {
	w.stopped.Store(true)
	if w.timer != nil {
		w.timer.Stop()
	}
}
