// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/test/mainthread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNoRequestRunsOnTheMainThread(t *testing.T) {
	mainthread.Run(t, func() {
		w := guardTexts(t.TempDir(), nil).worker()
		w.requests, w.done = make(chan request[*text]), make(chan struct{}, 1)
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

// blockThreads runs a function on threads of their own, and returns these threads.
func blockThreads(all *sync.WaitGroup, number int, block func()) []thread {
	threads := make([]thread, number)
	for i := range threads {
		begun := make(chan struct{})
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			threads[i].open()
			close(begun)
			block()
		})
		<-begun
	}
	return threads
}

func TestTheStatesOfThreadsThatReadAtTheSameTimeAreFound(t *testing.T) {
	var pipe [2]int
	require.NoError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	var all sync.WaitGroup
	var stop atomic.Bool
	readers := blockThreads(&all, 4, func() {
		_, _ = unix.Read(pipe[0], make([]byte, 1)) // until the pipe is closed
		for !stop.Load() {
		}
	})
	openers := blockThreads(&all, 2, func() {
		fd, err := unix.Open(fifo, unix.O_RDONLY|unix.O_CLOEXEC, 0) // until the FIFO is opened for writing
		assert.NoError(t, err)
		assert.NoError(t, unix.Close(fd))
	})
	unparked := make(chan struct{})
	parked := blockThreads(&all, 2, func() { <-unparked })
	eventually := func(threads []thread, want state) {
		t.Helper()
		assert.Eventually(t, func() bool {
			found := 0
			for i := range threads {
				if threads[i].state() == want {
					found++
				}
			}
			return found == len(threads)
		}, time.Minute, time.Millisecond)
	}
	eventually(readers, inRead)
	eventually(openers, inLookup)
	readers[0].looked--
	assert.Equal(t, running, readers[0].state(), "it has used CPU time since the previous look")
	eventually(parked, running) // for lack of a CPU
	for i := range parked {
		assert.Equal(t, running, parked[i].state(), "although it used no CPU time")
	}
	close(unparked)
	require.NoError(t, unix.Close(pipe[1]))
	eventually(readers, running)
	stop.Store(true)
	writer, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	require.NoError(t, err)
	all.Wait()
	require.NoError(t, writer.Close())
	require.NoError(t, unix.Close(pipe[0]))
	for _, threads := range [][]thread{readers, openers, parked} {
		for i := range threads {
			threads[i].close()
			assert.Equal(t, unclear, threads[i].state())
		}
	}
}

// A user locks the directory of the threads. The states of threads are unclear then, and files are still read.
func TestAThreadWhoseFileIsBlockedDelaysOneScan(t *testing.T) {
	onHost(t, func(h *host) {
		h.add(1, 1000)
		h.add(2, 1000, "cmdline")
		locked, opens := make(chan struct{}), atomic.Int32{}
		h.guard.look = (*thread).state
		h.guard.open = func(*thread) { opens.Add(1); <-locked }
		began := time.Now()
		h.requireUnread(1)
		assert.Equal(h, patience, time.Since(began))
		h.begin(suspect)
		require.ErrorIs(h, h.guard.Err("command lines"), ErrSlow, "its process does not block it")
		h.requireUnread(1) // its read has not begun
		began = time.Now()
		h.requireUnread(2)
		assert.Equal(h, patience, time.Since(began))
		assert.EqualValues(h, 1, opens.Load(), "another open would be blocked as well")
		assert.True(h, h.guard.waits.missed[1].slow)
		h.begin(time.Second)
		h.add(3, 1000)
		h.requireReads(3)
		close(locked)
		h.guard.open = (*thread).open
		h.unblock(h.path(2, "cmdline"))
		time.Sleep(time.Second)
		h.begin(time.Second)
		h.requireReads(1)
		h.requireReads(2)
	})
}

func TestTheStateOfAnotherThreadIsNotTakenForTheOneOfTheRead(t *testing.T) {
	g := guardTexts(t.TempDir(), nil)
	g.options.Everywhere = true
	serve := func() { require.NoError(t, g.Do(Subject{}, func(*text) {})) }
	serve()
	w := g.worker()
	require.True(t, w.thread.file.IsOpen())
	w.thread.id = -1
	g.waits.opening.Store(true)
	serve()
	assert.Equal(t, unclear, w.thread.state())
	g.waits.opening.Store(false)
	serve()
	assert.NotEqual(t, unclear, w.thread.state())
	require.NoError(t, g.Close())
}
