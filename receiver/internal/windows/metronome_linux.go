// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"encoding/binary"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelTimer is a metronome that uses a kernel timer (timerfd_create(2)). The Go runtime polls the
// timer: a wakeup involves one thread, and costs as much CPU time as in a C program. Blocking in
// read(2) would cost twice as much, because the runtime's monitor thread watches blocked threads.
type kernelTimer struct {
	file  *os.File
	conn  syscall.RawConn
	beats [8]byte
	read  func(fd uintptr) (done bool)
}

func newKernelTimer(window time.Duration) (Metronome, error) {
	fd, err := openTimer(window)
	if err != nil {
		return nil, err
	}
	t := &kernelTimer{file: os.NewFile(uintptr(fd), "timerfd")}
	// SetReadDeadline fails if the runtime cannot poll the file.
	if err := t.file.SetReadDeadline(time.Time{}); err != nil {
		_ = t.file.Close() // it was not written to
		return nil, err
	}
	if t.conn, err = t.file.SyscallConn(); err != nil {
		_ = t.file.Close() // it was not written to
		return nil, err
	}
	// The read never blocks, so it is a raw system call. For other system calls the Go runtime may
	// wake another thread.
	t.read = func(fd uintptr) bool {
		_, _, errno := syscall.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&t.beats)), unsafe.Sizeof(t.beats))
		return errno == 0
	}
	return t, nil
}

// openTimer returns a kernel timer that expires once per window.
func openTimer(window time.Duration) (fd int, err error) {
	fd, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return 0, os.NewSyscallError("timerfd_create", err)
	}
	every := unix.NsecToTimespec(int64(window))
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil); err != nil {
		_ = unix.Close(fd) // it was not written to
		return 0, os.NewSyscallError("timerfd_settime", err)
	}
	return fd, nil
}

func (t *kernelTimer) Next() int64 {
	if t.conn.Read(t.read) != nil {
		return 0
	}
	return int64(binary.NativeEndian.Uint64(t.beats[:]))
}

func (t *kernelTimer) Stop() {
	_ = t.file.Close() // it was only read from
}
