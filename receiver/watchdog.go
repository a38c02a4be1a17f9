// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"sync/atomic"
	"time"
)

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
