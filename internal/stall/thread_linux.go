// SPDX-License-Identifier: Apache-2.0

package stall

import (
	"bytes"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// thread is the operating system thread that runs a worker's read. Its state distinguishes a
// blocked read, which sleeps in its system call, from a read that only lacks a free CPU.
type thread struct {
	began unix.Rusage // of the thread when the read began

	mu     sync.Mutex // guards the fields below
	id     int
	file   kernfs.Kept   // /proc/self/task/ID/syscall, kept open; closed until openFile has opened it
	tried  int           // ID of the thread whose file was last opened, 0 to open a file again
	used   time.Duration // CPU time of the thread in the last call of state
	closed bool
}

// begin records the thread to which the caller is locked.
func (t *thread) begin() {
	id := unix.Gettid()
	t.mu.Lock()
	if id != t.id {
		t.id, t.tried = id, 0
		_ = t.file.Close() // it was only read from
	}
	t.used = 0
	t.mu.Unlock()
	t.began = usage()
}

// opening is when the openFile that runs began, nil if none runs. Only one does, whatever the number
// of threads: any user can block it (dev/kernel-reads.md), and each keeps a thread until it returns.
var opening atomic.Pointer[time.Time]

// openFile opens the file of the thread with the number id. No worker waits for it.
func (t *thread) openFile(id int) {
	defer opening.Store(nil)
	threads, file := kernfs.NewKillable("/proc/self/task"), kernfs.Kept{}
	_ = threads.OpenOf(&file, int32(id), "syscall") // without it, the state is unclear
	_ = threads.Close()                             // it was only read from
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.id != id || t.closed {
		_ = file.Close() // it was only read from
		return
	}
	t.file = file
}

// end reports whether the thread has waited for something other than a CPU since begin, or in the Go
// scheduler, and returns the CPU time that it used.
func (t *thread) end() (slept bool, used time.Duration) {
	now := usage()
	cpu := func(u *unix.Rusage) int64 { return u.Utime.Nano() + u.Stime.Nano() }
	return now.Nvcsw != t.began.Nvcsw, time.Duration(cpu(&now) - cpu(&t.began))
}

// usage returns what the calling thread has used (getrusage(2)).
func usage() (u unix.Rusage) {
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u) // fails only for invalid arguments
	return u
}

// state returns the state of the thread (proc_pid_syscall(5)). The first call for a thread opens its file, because most
// reads return before this call, or a later call if the file of another thread is being opened. Until the file is open,
// the thread counts as running, for at most suspect.
func (t *thread) state() state {
	t.mu.Lock()
	defer t.mu.Unlock()
	used, err := cpuTime(t.id)
	ran := used != t.used
	t.used = used
	if !t.file.IsOpen() {
		if now := time.Now(); t.tried != t.id && opening.CompareAndSwap(nil, &now) {
			t.tried = t.id
			go t.openFile(t.id)
		}
		if since := opening.Load(); since != nil && time.Since(*since) < suspect {
			return running
		}
		return unclear
	}
	var text [128]byte
	n, readErr := unix.Pread(t.file.Descriptor(), text[:], 0)
	switch {
	case err != nil || readErr != nil:
		return unclear
	case ran || bytes.HasPrefix(text[:n], []byte("running")) || bytes.HasPrefix(text[:n], schedulerWaits):
		return running
	}
	return asleep
}

// schedulerWaits is the start of the file's text if the thread waits in the Go scheduler for a CPU.
var schedulerWaits = strconv.AppendInt(nil, unix.SYS_FUTEX, 10)

// cpuTime returns the CPU time of a thread of this process. If the CPU time of a sleeping thread
// has not changed since the previous call, the thread has slept since then.
func cpuTime(id int) (time.Duration, error) {
	clock := int32(^id<<3 | 6) // include/linux/posix-timers.h, CPUCLOCK_PERTHREAD_MASK and CPUCLOCK_SCHED
	var now unix.Timespec
	err := unix.ClockGettime(clock, &now)
	return time.Duration(now.Nano()), err
}

func (t *thread) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	_ = t.file.Close() // it was only read from
}
