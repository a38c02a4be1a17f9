// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Kernel is perf_event_open(2). It is a variable so that a test can stand in for the kernel.
var Kernel = unix.PerfEventOpen

// Open opens a counter.
func Open(attr *unix.PerfEventAttr, pid, cpu, group, flags int) (int, error) {
	for {
		fd, err := Kernel(attr, pid, cpu, group, flags|unix.PERF_FLAG_FD_CLOEXEC)
		if err == nil {
			descriptors.Add(1)
		}
		if !errors.Is(err, unix.EINTR) {
			return fd, withGrants(err)
		}
	}
}

// withGrants adds what to grant to an error of missing permission (perf_event_open(2)). Debian and
// Ubuntu have a level 3 and above, at which CAP_PERFMON is not enough.
func withGrants(err error) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return err
	}
	if level, _ := os.ReadFile("/proc/sys/kernel/perf_event_paranoid"); len(level) > 0 && level[0] > '2' {
		return fmt.Errorf("%w: it takes CAP_PERFMON and kernel.perf_event_paranoid below 3, which is %s", err, bytes.TrimSpace(level))
	}
	return fmt.Errorf("%w: it takes CAP_PERFMON", err)
}

// descriptors is how many descriptors the open counters of this process hold.
var descriptors atomic.Int64

// Descriptors returns how many descriptors the open counters of this process hold.
func Descriptors() int64 { return descriptors.Load() }

// MostDescriptors returns how many they may hold: half of what the process may, so that it can go
// on opening files. It is a variable for tests.
var MostDescriptors = func() (int64, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return int64(min(limit.Cur/2, math.MaxInt64)), err
}

// Reserve returns an error if so many more counters may not be opened.
func Reserve(counters int) error {
	most, err := MostDescriptors()
	if err == nil && descriptors.Load()+int64(counters) > most {
		err = fmt.Errorf("counters would take more than %d descriptors, half of what the process may have (LimitNOFILE, ulimit -n)", most)
	}
	return err
}

// Close closes a counter that Open opened.
func Close(fd int) error {
	descriptors.Add(-1)
	return unix.Close(fd)
}

// Read reads a counter once into buf. It returns ErrShort unless buf was filled.
func Read(fd int, buf []byte) error {
	n, err := unix.Read(fd, buf)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(fd, buf)
	}
	if err != nil {
		return err
	}
	if n != len(buf) {
		return ErrShort
	}
	return nil
}

// ErrShort is returned by Read: the counter is in an error state, or is no longer in its group.
var ErrShort = errors.New("a counter's reading is too short")
