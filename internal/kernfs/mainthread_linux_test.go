// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/test/mainthread"
)

func TestAFunctionOffTheMainThreadRunsOnAnotherThread(t *testing.T) {
	mainthread.Run(t, func() {
		thread := os.Getpid()
		OffMainThread(func() { thread = unix.Gettid() })
		assert.NotEqual(t, os.Getpid(), thread)
		assert.True(t, IsMainThread(), "the caller keeps its thread")
	})
}

func TestASearchDoesNotRunOnTheMainThread(t *testing.T) {
	s := Search[int]{Dir: t.TempDir(), Always: true, Waits: &Waits{left: time.Minute}}
	for range 20 {
		mainthread.Run(t, func() {
			runtime.UnlockOSThread() // so that the next goroutine runs on this thread
			thread, found := s.Run(unix.Gettid)
			assert.True(t, found)
			assert.NotEqual(t, os.Getpid(), thread)
		})
	}
}
