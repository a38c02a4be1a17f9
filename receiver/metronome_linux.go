// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelTimer is a metronome that uses a kernel timer (timerfd_create(2)).
type kernelTimer struct {
	file  *os.File
	conn  syscall.RawConn
	beats [8]byte
	read  func(fd uintptr) (done bool)
}

func newKernelTimer(window time.Duration) (metronome, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	t := &kernelTimer{file: os.NewFile(uintptr(fd), "timerfd")}
	every := unix.NsecToTimespec(int64(window))
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil); err != nil {
		_ = t.file.Close() // nothing was written
		return nil, os.NewSyscallError("timerfd_settime", err)
	}
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

func (t *kernelTimer) next() bool { return t.conn.Read(t.read) == nil }

func (t *kernelTimer) stop() {
	_ = t.file.Close() // it was only read from
}
