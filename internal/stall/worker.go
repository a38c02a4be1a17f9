// SPDX-License-Identifier: Apache-2.0

package stall

import (
	"bytes"
	"errors"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// worker is a goroutine that runs one request at a time, together with the resources that requests use. An abandoned
// worker keeps these resources.
type worker[J Job] struct {
	job      J
	proc     *kernfs.Dir
	status   []byte
	user     user // found by the last request without a read
	state    atomic.Int32
	thread   thread
	slept    bool            // the last request waited for something other than a CPU
	used     time.Duration   // the CPU time of the last request
	requests chan request[J] // nil until the goroutine is started
	done     chan struct{}   // receives an element for each finished request; closed at the end unless the worker was abandoned
	err      error           // of close
	hasEnded *atomic.Bool
	slow     bool // the worker was abandoned, and its thread may not have slept all the time
}

// request makes a worker call read with its job or, if read is nil, read the user of a process or wait for the lock
// of the directory of a process.
type request[J Job] struct {
	read func(J)
	pid  int32
	lock bool
}

// The states of a worker.
const (
	requested int32 = iota
	reading
	finished
	abandoned
)

// state is the state of a thread since the previous call of thread.state.
type state int

const (
	unclear state = iota // the state cannot be read
	running              // the thread used a CPU or waited for a CPU
	asleep               // the thread waited in the kernel for something else
)

// start passes a request to the goroutine.
func (w *worker[J]) start(r request[J]) {
	w.state.Store(requested)
	if w.requests == nil {
		w.requests, w.done, w.hasEnded = make(chan request[J]), make(chan struct{}, 1), new(atomic.Bool)
		go w.run()
	}
	w.requests <- r
}

// run runs requests until the worker is closed or abandoned.
func (w *worker[J]) run() {
	for r := range w.requests {
		runtime.LockOSThread() // so that thread stays the thread of the read until the read has returned
		if kernfs.IsMainThread() {
			w.continueWith(r)
			runtime.UnlockOSThread()
			return
		}
		served := w.serve(r)
		runtime.UnlockOSThread()
		if !served {
			_ = w.close() // it was only read from
			w.hasEnded.Store(true)
			return
		}
		w.done <- struct{}{}
	}
	w.err = w.close()
	close(w.done)
}

// continueWith runs a request on another goroutine, and then further requests as run does. It returns at their end.
// Until then, the calling goroutine keeps the main thread, so that no request runs there.
func (w *worker[J]) continueWith(r request[J]) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.run()
	}()
	w.requests <- r
	<-ended
}

// serve runs a request. It returns false if the worker was abandoned meanwhile.
func (w *worker[J]) serve(r request[J]) bool {
	w.thread.begin()
	if !w.state.CompareAndSwap(requested, reading) {
		return false
	}
	switch {
	case r.read != nil:
		r.read(w.job)
	case r.lock:
		w.proc.WaitFor(r.pid)
	default:
		w.user = w.readUser(r.pid)
	}
	w.slept, w.used = w.thread.end()
	return w.state.CompareAndSwap(reading, finished)
}

// abandon reports whether the request has not finished. The worker then ends with it.
func (w *worker[J]) abandon() bool {
	return w.state.CompareAndSwap(requested, abandoned) || w.state.CompareAndSwap(reading, abandoned)
}

func (w *worker[J]) close() error {
	w.thread.close()
	return errors.Join(w.job.Close(), w.proc.Close())
}

// readUser returns the real user ID of a process (proc_pid_status(5)).
func (w *worker[J]) readUser(pid int32) user {
	if w.status == nil {
		w.status = make([]byte, 1024) // the line is one of the first ten
	}
	text, err := w.proc.ReadOf(pid, "status", w.status)
	if err != nil {
		return noUser
	}
	_, line, ok := bytes.Cut(text, []byte("\nUid:\t"))
	digits, _, whole := bytes.Cut(line, []byte("\t"))
	if !ok || !whole {
		return noUser
	}
	id, err := strconv.ParseUint(string(digits), 10, 32)
	if err != nil {
		return noUser
	}
	return user(id)
}
