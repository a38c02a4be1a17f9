// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"bytes"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// thread is the operating system thread that runs a worker's read. Its state distinguishes a
// blocked read, which sleeps in its system call, from a read that only lacks a free CPU.
type thread struct {
	id    int
	file  Kept        // /proc/self/task/ID/syscall, closed if it could not be opened
	began unix.Rusage // of the thread when the read began

	looked time.Duration // CPU time of the thread in the last call of state
}

// isAnother reports whether the caller runs on a thread other than t.
func (t *thread) isAnother() bool { return unix.Gettid() != t.id }

// open opens the file of the thread of the caller into t, which is closed. Any user can block that.
func (t *thread) open() {
	t.id = unix.Gettid()
	threads := NewKillable("/proc/self/task")
	_, _ = threads.OpenIn(&t.file, strconv.Itoa(t.id), "syscall") // without it, the state is unclear
	_ = threads.Close()                                           // it was only read from
}

// begin records the resource usage of the thread of the caller.
func (t *thread) begin() { t.began = usage() }

// end reports whether the thread has slept since begin, either for something other than a CPU or in
// the Go scheduler. It also returns the CPU time that the thread used.
func (t *thread) end() (slept bool, used time.Duration) {
	now := usage()
	cpu := func(u *unix.Rusage) int64 { return u.Utime.Nano() + u.Stime.Nano() }
	return now.Nvcsw != t.began.Nvcsw, time.Duration(cpu(&now) - cpu(&t.began))
}

// usage returns the resource usage of the calling thread (getrusage(2)).
func usage() (u unix.Rusage) {
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u) // fails only for invalid arguments
	return u
}

// state returns the state of the thread (proc_pid_syscall(5)).
func (t *thread) state() state {
	if !t.file.IsOpen() {
		return unclear
	}
	used, err := cpuTime(t.id)
	if err != nil {
		return unclear
	}
	ran := used != t.looked
	t.looked = used
	var text [128]byte
	n, err := unix.Pread(t.file.Descriptor(), text[:], 0)
	call, _, _ := bytes.Cut(text[:max(n, 0)], []byte(" "))
	number, notACall := strconv.Atoi(string(call))
	switch {
	case err != nil:
		return unclear
	case ran || bytes.HasPrefix(call, []byte("running")):
		return running
	case notACall != nil:
		return unclear
	}
	switch number {
	case unix.SYS_FUTEX: // the Go scheduler waits for a CPU
		return running
	case unix.SYS_READ, unix.SYS_PREAD64:
		return inRead
	}
	return inLookup
}

// cpuTime returns the CPU time of a thread of this process. If the CPU time of a sleeping thread
// has not changed since the previous call, the thread has slept since then.
func cpuTime(id int) (time.Duration, error) {
	clock := int32(^id<<3 | 6) // include/linux/posix-timers.h, CPUCLOCK_PERTHREAD_MASK and CPUCLOCK_SCHED
	var now unix.Timespec
	err := unix.ClockGettime(clock, &now)
	return time.Duration(now.Nano()), err
}

func (t *thread) close() {
	t.id = 0
	_ = t.file.Close() // it was only read from
}
