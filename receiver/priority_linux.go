// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// thread is the operating system's thread of the windows' goroutine. The zero thread has the priority of the process and is any.
type thread struct {
	priority priority // "" unless it was to be raised
	before   *unix.SchedAttr
	seen     time.Duration // of its CPU time
}

// raised reports whether raise was called, and not release since.
func (t *thread) raised() bool { return t.priority != "" }

// raise ties the calling goroutine to its thread and gives the thread real-time priority, or else the highest normal one that is
// granted. The error is why real-time priority was refused. If nothing was granted, priority is normalPriority and the goroutine is
// free.
//
// Threads and processes that the thread starts have normal priority.
func (t *thread) raise() error {
	t.priority = normalPriority
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return fmt.Errorf("sched_getattr: %w", err)
	}
	runtime.LockOSThread()
	refused := setScheduling(unix.SCHED_FIFO, max(1, before.Priority), 0)
	if refused == nil {
		t.priority, t.before, t.seen = realTimePriority, before, threadTime()
		return nil
	}
	for _, nice := range []int32{-20, limitedNice()} {
		if nice < before.Nice && setScheduling(unix.SCHED_NORMAL, 0, nice) == nil {
			t.priority, t.before = highPriority, before
			return refused
		}
	}
	runtime.UnlockOSThread()
	return refused
}

// release undoes raise.
func (t *thread) release() {
	if t.before != nil && setScheduling(t.before.Policy, t.before.Priority, t.before.Nice) == nil {
		runtime.UnlockOSThread() // otherwise the thread ends with the goroutine
	}
	*t = thread{}
}

// used returns the CPU time that the thread used since the last call, if it has real-time priority. It is called on that thread.
func (t *thread) used() time.Duration {
	if t.priority != realTimePriority {
		return 0
	}
	seen := t.seen
	t.seen = threadTime()
	return t.seen - seen
}

// threadTime returns the CPU time of the calling thread.
func threadTime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// setScheduling sets the scheduling of the calling thread. What it starts has normal priority: to undo that takes a privilege.
func setScheduling(policy, priority uint32, nice int32) error {
	attr := unix.SchedAttr{Policy: policy, Priority: priority, Nice: nice, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("sched_setattr: %w", err)
	}
	return nil
}

// limitedNice returns the lowest nice value that the limit of the process permits (RLIMIT_NICE of getrlimit(2)).
func limitedNice() int32 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NICE, &limit) != nil {
		return 20
	}
	return 20 - int32(min(limit.Cur, 40))
}
