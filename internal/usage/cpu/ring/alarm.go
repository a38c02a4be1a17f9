// SPDX-License-Identifier: Apache-2.0

//go:build linux

package ring

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Alarm calls a function when a BPF program wakes the readers of a ring buffer
// (BPF_RB_FORCE_WAKEUP). Without wakeups, an Alarm has no cost: the runtime's poller waits for it,
// without a timeout and without a separate thread.
type Alarm struct {
	file *os.File
	done chan struct{}
}

// NewAlarm returns an alarm of the map with this descriptor, which may be closed before the alarm.
// It calls ring from a goroutine of its own: once at first, and after each wakeup. Wakeups during a
// call cause at least one more.
func NewAlarm(fd int, ring func()) (*Alarm, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(own, true) // else os.File does not use the poller
	}
	if err != nil {
		return nil, fmt.Errorf("wait for a ring buffer: %w", err)
	}
	a := &Alarm{file: os.NewFile(uintptr(own), "ring buffer"), done: make(chan struct{})}
	var conn syscall.RawConn
	if err = a.file.SetReadDeadline(time.Time{}); err == nil { // else the poller refused it
		conn, err = a.file.SyscallConn()
	}
	if err != nil {
		_ = a.file.Close() // it was not used
		return nil, fmt.Errorf("wait for a ring buffer: %w", err)
	}
	go func() {
		defer close(a.done)
		_ = conn.Read(func(uintptr) bool { // until Close
			ring()
			return false
		})
	}()
	return a, nil
}

// Close returns when no call of the function is running. No call follows.
func (a *Alarm) Close() error {
	err := a.file.Close()
	<-a.done
	return err
}
