// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// openPerfEvent is a variable so that a test can stand in for the kernel.
var openPerfEvent = unix.PerfEventOpen

// openCounter opens a counter of the kernel.
func openCounter(attr *unix.PerfEventAttr, pid, cpu, group, flags int) (int, error) {
	for {
		fd, err := openPerfEvent(attr, pid, cpu, group, flags|unix.PERF_FLAG_FD_CLOEXEC)
		if err == nil {
			descriptors.Add(1)
		}
		if !errors.Is(err, unix.EINTR) {
			return fd, withGrants(err)
		}
	}
}

// withGrants adds what to grant to an error of missing permission (perf_event_open(2)).
func withGrants(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: it takes CAP_PERFMON", err)
	}
	return err
}

// descriptors is how many descriptors the open counters of this process hold, of all keys together.
var descriptors atomic.Int64

// mostDescriptors returns how many they may hold: half of what the process may, so that it can go on opening files.
var mostDescriptors = func() (int64, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return int64(min(limit.Cur/2, math.MaxInt64)), err
}

// reserve returns an error if so many more counters may not be opened.
func reserve(counters int) error {
	most, err := mostDescriptors()
	if err == nil && descriptors.Load()+int64(counters) > most {
		err = fmt.Errorf("counters would take more than %d descriptors, half of what the process may have (LimitNOFILE, ulimit -n)", most)
	}
	return err
}

// closeCounter closes a counter that openCounter opened.
func closeCounter(fd int) error {
	descriptors.Add(-1)
	return unix.Close(fd)
}

var errOtherKernel = errors.New("the files below root_path are not those of this kernel")

// checkKernel returns an error unless /proc below root is this kernel's: a recorded tree is not.
func checkKernel(root string) error {
	own, err := kernfs.BootID("/")
	if err != nil {
		return err
	}
	if there, err := kernfs.BootID(root); err != nil || there != own {
		return errOtherKernel
	}
	return nil
}
