// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"time"
	"unsafe"
)

// epoch is the wall clock time when the monotonic clock of every host is 0.
var epoch = time.Now()

// reading returns a time.Time with the given wall clock and monotonic clock, which are independent
// of each other. Package time has no function for that, so reading sets the fields of time.Time
// directly: a flag, the wall seconds since 1885, and the nanoseconds in the lowest 30 bits. A test
// checks the layout.
func reading(wall time.Time, monotonic time.Duration) time.Time {
	t := epoch.Add(monotonic)
	seconds := uint64(wall.Unix() - time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix())
	*(*uint64)(unsafe.Pointer(&t)) = 1<<63 | seconds<<30 | uint64(wall.Nanosecond())
	return t
}
