// SPDX-License-Identifier: Apache-2.0

package stall

import (
	"bytes"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// The main goroutine is locked to the main thread, so that no read runs there. The kernel prefers
// the main thread for signals to the process (kernel/signal.c, complete_signal): SIGTERM would wait
// for a read that cannot be interrupted.
func init() { runtime.LockOSThread() }

// thread is the operating system thread that runs a worker's read. Its state distinguishes a
// blocked read, which sleeps in its system call, from a read that only lacks a free CPU.
type thread struct {
	began unix.Rusage // of the thread when the read began

	mu     sync.Mutex // guards what follows
	id     int
	file   kernfs.Kept // /proc/self/task/TID/syscall of the thread, kept open; closed until openFile has found it
	closed bool
}

// begin records the thread to which the caller is locked.
func (t *thread) begin() {
	id := unix.Gettid()
	t.mu.Lock()
	if id != t.id {
		t.id = id
		_ = t.file.Close() // it was only read from
	}
	if !t.file.IsOpen() && openingSince.CompareAndSwap(0, time.Now().UnixNano()) {
		go t.openFile(id)
	}
	t.mu.Unlock()
	t.began = usage()
}

// openingSince is when the openFile that runs was started, in nanoseconds since 1970, and 0 if none
// runs. At most one does: any user can block the lookup of a thread (dev/kernel-reads.md).
var openingSince atomic.Int64

// isOpening reports whether a file is about to be opened. One that takes longer than suspect is considered blocked.
func isOpening() bool {
	since := openingSince.Load()
	return since != 0 && time.Now().UnixNano()-since < int64(suspect)
}

// openFile opens the file of the thread with the number id. No worker waits for it.
func (t *thread) openFile(id int) {
	defer openingSince.Store(0)
	threads, file := kernfs.NewKillable("/proc/self/task"), kernfs.Kept{}
	_ = threads.OpenOf(&file, int32(id), "syscall") // without it, reads that lack a CPU count as blocked
	_ = threads.Close()                             // it was only read from
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.id != id || t.closed || t.file.IsOpen() {
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

// isRunnable reports whether the thread uses a CPU or waits for one, including in the Go scheduler
// (proc_pid_syscall(5)). The answer is yes while the file that shows it is being opened.
func (t *thread) isRunnable() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.file.IsOpen() {
		return isOpening()
	}
	var text [128]byte
	n, err := unix.Pread(t.file.Descriptor(), text[:], 0)
	return err == nil && (bytes.HasPrefix(text[:n], []byte("running")) || bytes.HasPrefix(text[:n], schedulerWaits))
}

// schedulerWaits is the start of the text of a thread that waits in the Go scheduler.
var schedulerWaits = strconv.AppendInt(nil, unix.SYS_FUTEX, 10)

func (t *thread) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	_ = t.file.Close() // it was only read from
}
