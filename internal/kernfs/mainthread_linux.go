// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// mainThread is the ID of the main thread of this process.
var mainThread = os.Getpid()

// IsMainThread reports whether the caller runs on the main thread. The result stays valid while the
// calling goroutine is locked to its thread.
func IsMainThread() bool { return unix.Gettid() == mainThread }

// OffMainThread calls f on a thread other than the main thread and returns when f has returned. The
// kernel prefers the main thread for signals to the process (kernel/signal.c, complete_signal), so
// SIGTERM would wait for a system call there that cannot be interrupted.
func OffMainThread(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if !IsMainThread() {
		f()
		return
	}
	done := make(chan struct{})
	go func() { // on another thread, because the calling goroutine keeps the main thread
		defer close(done)
		f()
	}()
	<-done
}
