// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"errors"
	"maps"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/ring"
)

// maxWatched is the maximum number of processes in exits: each takes a descriptor.
const maxWatched = 1024

// exits records when processes exit, by pidfds (Linux 5.3), which wake a goroutine. The zero exits is
// ready to use.
type exits struct {
	epoll int
	alarm *ring.Alarm // calls record; nil until the first process is watched
	mu    sync.Mutex
	known map[int32]exit // by PID
}

// exit is the exit of a process, at the zero time while it runs.
type exit struct {
	pidfd int // closed after the exit
	at    time.Time
}

// watch records the exit of a process of this PID namespace.
func (e *exits) watch(pid int32) {
	if e.alarm == nil && e.open() != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if before, known := e.known[pid]; known && before.at.IsZero() || len(e.known) >= maxWatched {
		return
	}
	fd, err := unix.PidfdOpen(int(pid), 0)
	if err != nil {
		return // it has exited, or the kernel has no pidfds
	}
	if unix.EpollCtl(e.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: pid}) != nil {
		_ = unix.Close(fd) // nothing was written
		return
	}
	e.known[pid] = exit{pidfd: fd}
}

func (e *exits) open() (err error) {
	if e.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	e.known = map[int32]exit{}
	if e.alarm, err = ring.NewAlarm(e.epoll, e.record); err != nil {
		_ = unix.Close(e.epoll) // nothing was written
	}
	return err
}

// record records the exits since the last call.
func (e *exits) record() {
	var events [64]unix.EpollEvent
	for {
		n, _ := unix.EpollWait(e.epoll, events[:], 0)
		if n <= 0 {
			return
		}
		e.mu.Lock()
		for i := range events[:n] {
			pid := events[i].Fd
			fd := e.known[pid].pidfd
			_ = unix.EpollCtl(e.epoll, unix.EPOLL_CTL_DEL, fd, nil) // a child that was just forked has the descriptor, too
			_ = unix.Close(fd)                                      // nothing was written
			e.known[pid] = exit{at: time.Now()}
		}
		e.mu.Unlock()
	}
}

// of returns when a process exited, and false if it runs or is not watched.
func (e *exits) of(pid int32) (time.Time, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.known[pid].at
	return at, !at.IsZero()
}

// forget forgets the exits before a time.
func (e *exits) forget(before time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.known, func(_ int32, x exit) bool { return !x.at.IsZero() && x.at.Before(before) })
}

func (e *exits) close() error {
	if e.alarm == nil {
		return nil
	}
	err := errors.Join(e.alarm.Close(), unix.Close(e.epoll))
	for _, x := range e.known {
		if x.at.IsZero() {
			_ = unix.Close(x.pidfd) // nothing was written
		}
	}
	return err
}
