// SPDX-License-Identifier: Apache-2.0

// Package mainthread runs functions of tests on the main thread.
package mainthread

import (
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// maxThreads is the number of threads after which Run gives up. Threads are created only while all
// others are in use, so it exceeds the number of threads of a test.
const maxThreads = 1000

// Run calls f on the main thread, in a goroutine that is locked to it, and returns after f has
// returned. The test fails if another goroutine is locked to the main thread.
func Run(t *testing.T, f func()) {
	t.Helper()
	release := make(chan struct{})
	defer close(release)
	for range maxThreads {
		time.Sleep(time.Nanosecond) // ends a wait of the main thread in Go's network poller
		onMain := make(chan bool)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if unix.Gettid() != os.Getpid() {
				onMain <- false
				<-release // the next goroutine gets another thread
				return
			}
			f()
			onMain <- true
		}()
		if <-onMain {
			return
		}
	}
	t.Fatal("another goroutine is locked to the main thread")
}
