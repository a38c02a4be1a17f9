// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"time"

	"golang.org/x/sys/unix"
)

// kernelClocks returns the time since boot with time in suspend, and the time in suspend alone
// (clock_gettime(2)). Both are 0 if they cannot be read.
func kernelClocks() (boot, suspended time.Duration) {
	var b, m unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &b) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &m) != nil {
		return 0, 0
	}
	boot = time.Duration(b.Nano())
	return boot, (boot - time.Duration(m.Nano())).Round(time.Millisecond)
}
