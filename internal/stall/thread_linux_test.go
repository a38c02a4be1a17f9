// SPDX-License-Identifier: Apache-2.0

package stall

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/test/mainthread"
)

func TestNoRequestRunsOnTheMainThread(t *testing.T) {
	mainthread.Run(t, func() {
		w := &worker[*text]{
			job: &text{proc: kernfs.New("/proc")}, proc: kernfs.New("/proc"),
			requests: make(chan request[*text]), done: make(chan struct{}, 1), hasEnded: new(atomic.Bool),
		}
		go func() {
			for range 3 {
				w.state.Store(requested)
				w.requests <- request[*text]{read: func(*text) { assert.NotEqual(t, os.Getpid(), unix.Gettid()) }}
				<-w.done
			}
			close(w.requests)
		}()
		w.run()
		assert.NoError(t, w.err)
	})
}

func TestTheStatesOfThreadsThatReadAtTheSameTimeAreFound(t *testing.T) {
	var pipe [2]int
	require.NoError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	var all sync.WaitGroup
	var stop atomic.Bool
	threads := make([]thread, 4)
	for i := range threads {
		begun := make(chan struct{})
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			threads[i].begin()
			close(begun)
			_, _ = unix.Read(pipe[0], make([]byte, 1)) // until the pipe is closed
			for !stop.Load() {
			}
		})
		<-begun
	}
	are := func(want state) func() bool {
		return func() bool {
			found := 0
			for i := range threads {
				if threads[i].state() == want {
					found++
				}
			}
			return found == len(threads)
		}
	}
	assert.Eventually(t, are(asleep), time.Minute, time.Millisecond)
	require.NoError(t, unix.Close(pipe[1]))
	assert.Eventually(t, are(running), time.Minute, time.Millisecond)
	stop.Store(true)
	all.Wait()
	for i := range threads {
		threads[i].close()
	}
	require.NoError(t, unix.Close(pipe[0]))
}

// A user blocks the file of one thread, and with it those of all threads.
func TestTheFilesOfThreadsAreOpenedOneAtATime(t *testing.T) {
	var pipe [2]int
	require.NoError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	var reader thread
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		reader.begin()
		close(begun)
		_, _ = unix.Read(pipe[0], make([]byte, 1)) // until the pipe is closed
	}()
	<-begun
	blocked := time.Now().Add(-suspect)
	require.Eventually(t, func() bool { return opening.CompareAndSwap(nil, &blocked) }, time.Minute, time.Millisecond)
	assert.Equal(t, unclear, reader.state())
	assert.Zero(t, reader.tried, "another open would be blocked as well")
	assert.Same(t, &blocked, opening.Load())
	opening.Store(nil)
	assert.Eventually(t, func() bool { return reader.state() == asleep }, time.Minute, time.Millisecond, "its file is opened then")
	require.NoError(t, unix.Close(pipe[1]))
	<-ended
	reader.close()
	require.NoError(t, unix.Close(pipe[0]))
}
