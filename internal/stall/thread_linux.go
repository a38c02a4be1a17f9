// SPDX-License-Identifier: Apache-2.0

package stall

import (
	"bytes"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// The main goroutine is locked to the main thread, so that no read runs there. The kernel prefers the main thread for signals
// to the process (kernel/signal.c, complete_signal): SIGTERM would wait for a read that cannot be interrupted.
func init() { runtime.LockOSThread() }

// thread is the operating system thread that runs a worker's read. Its state distinguishes a blocked read, which sleeps in its
// system call, from a read that only lacks a free CPU.
type thread struct {
	id     int
	sleeps int64 // of the thread when the read began

	mu   sync.Mutex // guards file
	file int        // /proc/thread-self/syscall, kept open because a process may block its lookup; 0 if it is not open
}

// begin records the thread to which the caller is locked.
func (t *thread) begin() {
	if id := unix.Gettid(); id != t.id {
		file, err := unix.Open("/proc/thread-self/syscall", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			file = 0
		}
		t.id = id
		t.replace(file)
	}
	t.sleeps = sleeps()
}

// slept reports whether the thread has waited for something other than a CPU since begin, or in the Go scheduler.
func (t *thread) slept() bool { return sleeps() != t.sleeps }

// sleeps returns how often the calling thread has waited for something other than a CPU (getrusage(2), ru_nvcsw).
func sleeps() int64 {
	var usage unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &usage) // fails only for invalid arguments
	return usage.Nvcsw
}

// isRunnable reports whether the thread uses a CPU or waits for one, including in the Go scheduler (proc_pid_syscall(5)).
func (t *thread) isRunnable() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == 0 {
		return false
	}
	var text [128]byte
	n, err := unix.Pread(t.file, text[:], 0)
	return err == nil && (bytes.HasPrefix(text[:n], []byte("running")) || bytes.HasPrefix(text[:n], schedulerWaits))
}

// schedulerWaits is the start of the text of a thread that waits in the Go scheduler.
var schedulerWaits = strconv.AppendInt(nil, unix.SYS_FUTEX, 10)

func (t *thread) close() { t.replace(0) }

// replace closes the file and keeps another one.
func (t *thread) replace(file int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != 0 {
		_ = unix.Close(t.file) // it was only read from
	}
	t.file = file
}
