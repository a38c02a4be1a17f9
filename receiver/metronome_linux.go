// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"encoding/binary"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelTimer is a metronome that uses a kernel timer (timerfd_create(2)). The Go runtime polls it.
type kernelTimer struct {
	file  *os.File
	conn  syscall.RawConn
	beats [8]byte
	read  func(fd uintptr) (done bool)
}

func newKernelTimer(window time.Duration) (metronome, error) {
	fd, err := openTimer(window, unix.TFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	t := &kernelTimer{file: os.NewFile(uintptr(fd), "timerfd")}
	// SetReadDeadline fails if the runtime cannot poll the file.
	if err := t.file.SetReadDeadline(time.Time{}); err != nil {
		_ = t.file.Close() // nothing was written
		return nil, err
	}
	if t.conn, err = t.file.SyscallConn(); err != nil {
		_ = t.file.Close() // nothing was written
		return nil, err
	}
	// The read never blocks, so it is a raw system call. For other system calls the Go runtime may wake another thread.
	t.read = func(fd uintptr) bool {
		_, _, errno := syscall.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&t.beats)), unsafe.Sizeof(t.beats))
		return errno == 0
	}
	return t, nil
}

// openTimer returns a kernel timer that expires once per window.
func openTimer(window time.Duration, flags int) (fd int, err error) {
	fd, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, flags|unix.TFD_CLOEXEC)
	if err != nil {
		return 0, os.NewSyscallError("timerfd_create", err)
	}
	every := unix.NsecToTimespec(int64(window))
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil); err != nil {
		_ = unix.Close(fd) // nothing was written
		return 0, os.NewSyscallError("timerfd_settime", err)
	}
	return fd, nil
}

func (t *kernelTimer) next() int64 {
	if t.conn.Read(t.read) != nil {
		return 0
	}
	return int64(binary.NativeEndian.Uint64(t.beats[:]))
}

func (t *kernelTimer) stop() {
	_ = t.file.Close() // it was only read from
}

// blockingTimer is a kernel timer that next waits for on its own thread, in read(2). The timer wakes that thread and no other, so
// the thread's priority is all that decides when it runs. In the Go runtime, a thread of normal priority would come before it.
//
// It costs more than a kernelTimer: after each such call the runtime's monitor wakes up some fifty times.
type blockingTimer struct {
	fd      int
	file    *os.File
	stopped atomic.Bool
	beats   [8]byte
}

func newBlockingTimer(window time.Duration) (metronome, error) {
	fd, err := openTimer(window, 0)
	if err != nil {
		return nil, err
	}
	return &blockingTimer{fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}, nil
}

func (t *blockingTimer) next() int64 {
	if _, err := t.file.Read(t.beats[:]); err != nil || t.stopped.Load() {
		return 0
	}
	return int64(binary.NativeEndian.Uint64(t.beats[:]))
}

func (t *blockingTimer) stop() {
	t.stopped.Store(true)
	// Closing does not wake the reader. The timer does.
	_ = unix.TimerfdSettime(t.fd, 0, &unix.ItimerSpec{Value: unix.Timespec{Nsec: 1}}, nil) // the arguments are valid
	_ = t.file.Close()                                                                     // it was only read from
}
