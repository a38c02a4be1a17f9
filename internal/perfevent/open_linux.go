// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// Kernel is perf_event_open(2). It is a variable so that a test can stand in for the kernel.
var Kernel = unix.PerfEventOpen

// Open opens a counter. It fails without a system call if the budget of descriptors is spent
// (kernfs.TakeCounter).
func Open(attr *unix.PerfEventAttr, pid, cpu, group, flags int) (int, error) {
	if err := kernfs.TakeCounter(); err != nil {
		return -1, err
	}
	for {
		fd, err := Kernel(attr, pid, cpu, group, flags|unix.PERF_FLAG_FD_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			kernfs.GiveBackCounter()
		}
		return fd, withGrants(err)
	}
}

// withGrants adds what to grant to an error of missing permission (perf_event_open(2)). Debian and
// Ubuntu have levels from 3 on, and CAP_PERFMON is not enough at these levels.
func withGrants(err error) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return err
	}
	if level, _ := os.ReadFile("/proc/sys/kernel/perf_event_paranoid"); len(level) > 0 && level[0] > '2' {
		return fmt.Errorf("%w: requires CAP_PERFMON and kernel.perf_event_paranoid below 3, which is %s", err, bytes.TrimSpace(level))
	}
	return fmt.Errorf("%w: requires CAP_PERFMON", err)
}

// Close closes a counter that Open opened.
func Close(fd int) error {
	kernfs.GiveBackCounter()
	return unix.Close(fd)
}

// Read reads a counter once into buf. It returns ErrShort unless buf was filled. A read waits
// for the CPU of the counter, so Read makes no raw system call. See the rule at kernfs.File.Quick.
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

// ReadCPUs reads a file that lists CPUs. A list without CPUs is an error.
func ReadCPUs(path string) (cpus []int, err error) {
	list, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := kernfs.ParseList(list, func(cpu int) { cpus = append(cpus, cpu) }); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cpus, nil
}
