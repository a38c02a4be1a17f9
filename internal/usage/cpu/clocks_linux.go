// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// ReadCPUClock returns the CPU time of a process: of all its threads, including exited ones
// (clock_getcpuclockid(3)). PID 0 means this process. The error is EINVAL if there is no such
// process, or if the number is the ID of a thread other than the calling thread. No user can block
// the call.
func ReadCPUClock(pid int32) (units.CPUTime, error) {
	clock := int32(unix.CLOCK_PROCESS_CPUTIME_ID)
	if pid != 0 {
		clock = ^pid<<3 | 2 // include/linux/posix-timers.h, CPUCLOCK_SCHED
	}
	return ReadClock(clock)
}

// ReadClock returns the time of a clock by its ID (clock_gettime(2)), in ns. It makes a raw system
// call, so it wakes up no other thread of the Go runtime.
func ReadClock(id int32) (units.CPUTime, error) {
	var now unix.Timespec
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(id), uintptr(unsafe.Pointer(&now)), 0); errno != 0 {
		return 0, errno
	}
	return units.CPUTime(max(now.Nano(), 0)), nil
}

// isOwnThread reports whether the number is the ID of a thread of this process other than the
// first.
func isOwnThread(number int32) bool {
	pid := os.Getpid()
	return int(number) != pid && unix.Tgkill(pid, int(number), 0) == nil
}
