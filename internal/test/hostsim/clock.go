// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"time"
	"unsafe"
)

// epoch is when the monotonic clock of every host was 0.
var epoch = time.Now()

// reading returns a time as time.Now would, of a wall clock and a monotonic clock that have nothing to do with
// each other. No function of package time makes one, so it sets the wall clock's seconds and nanoseconds where
// time.Time keeps them: below a flag and above 30 bits, since 1885. A test holds it to that.
func reading(wall time.Time, monotonic time.Duration) time.Time {
	t := epoch.Add(monotonic)
	seconds := uint64(wall.Unix() - time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix())
	*(*uint64)(unsafe.Pointer(&t)) = 1<<63 | seconds<<30 | uint64(wall.Nanosecond())
	return t
}
