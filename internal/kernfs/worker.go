// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"bytes"
	"errors"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"
)

// worker is a goroutine that runs one request at a time, together with the resources that requests
// use. An abandoned worker keeps these resources.
type worker[J Job] struct {
	job      J
	proc     *Dir
	status   []byte
	user     user          // found by the last request without a read
	open     func(*thread) // see Guard
	opening  *atomic.Bool  // see Waits
	state    atomic.Int32
	thread   thread
	slept    bool            // the last request waited for something other than a CPU
	used     time.Duration   // the CPU time of the last request
	requests chan request[J] // nil until the goroutine is started
	done     chan struct{}   // receives an element for each finished request; closed at the end unless the worker was abandoned
	err      error           // of close
	abandonment
}

// abandonment is the state of an abandoned worker.
type abandonment struct {
	ended *atomic.Bool // the read has returned
	seen  state        // when the worker was abandoned
	slow  bool         // the thread may have used a CPU or waited for one
}

// request makes a worker call read with its job or, if read is nil, read the user of a process.
type request[J Job] struct {
	read func(J)
	pid  int32
}

// The states of a worker. A request passes through them in this order, until it is finished or
// abandoned.
const (
	requested int32 = iota
	opening         // the worker opens the file of its thread
	reading
	finished
	abandoned
)

// state is the state of a thread since the previous call of thread.state.
type state int

const (
	unclear  state = iota // the state cannot be read
	running               // the thread used a CPU or waited for a CPU
	inRead                // the thread slept in a system call that reads an open file
	inLookup              // the thread slept in another system call, such as a lookup of a name
)

// start passes a request to the goroutine.
func (w *worker[J]) start(r request[J]) {
	w.state.Store(requested)
	w.thread.looked = 0
	if w.requests == nil {
		w.requests, w.done, w.ended = make(chan request[J]), make(chan struct{}, 1), new(atomic.Bool)
		go w.run()
	}
	w.requests <- r
}

// run serves requests until the worker is closed or abandoned.
func (w *worker[J]) run() {
	for r := range w.requests {
		runtime.LockOSThread() // so that the read stays on the thread until it has returned
		if IsMainThread() {
			w.continueWith(r)
			runtime.UnlockOSThread()
			return
		}
		served := w.serve(r)
		runtime.UnlockOSThread()
		if !served {
			_ = w.close() // it was only read from
			w.ended.Store(true)
			return
		}
		w.done <- struct{}{}
	}
	w.err = w.close()
	close(w.done)
}

// continueWith serves a request and all further requests on another goroutine. Until then, the
// calling goroutine keeps the main thread, so that no request runs on it; see OffMainThread.
func (w *worker[J]) continueWith(r request[J]) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.run()
	}()
	w.requests <- r
	<-ended
}

// serve runs a request. It returns false if the worker was abandoned during the request.
func (w *worker[J]) serve(r request[J]) bool {
	from := requested
	if w.thread.isAnother() {
		if !w.state.CompareAndSwap(from, opening) {
			return false
		}
		from = opening
		w.thread.close()
		// If a user has locked the directory of the threads, only one thread waits for the lock.
		if w.opening.CompareAndSwap(false, true) {
			w.open(&w.thread)
			w.opening.Store(false)
		}
	}
	w.thread.begin()
	if !w.state.CompareAndSwap(from, reading) {
		return false
	}
	if r.read != nil {
		r.read(w.job)
	} else {
		w.user = w.readUser(r.pid)
	}
	w.slept, w.used = w.thread.end()
	return w.state.CompareAndSwap(reading, finished)
}

// abandon reports whether the request has not finished. The worker then ends with it.
func (w *worker[J]) abandon() bool {
	for _, from := range [...]int32{requested, opening, reading} {
		if w.state.CompareAndSwap(from, abandoned) {
			return true
		}
	}
	return false
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
	_, line, _ := bytes.Cut(text, []byte("\nUid:\t"))
	digits, _, ok := bytes.Cut(line, []byte("\t"))
	id, err := strconv.ParseUint(string(digits), 10, 32)
	if err != nil || !ok {
		return noUser
	}
	return user(id)
}
