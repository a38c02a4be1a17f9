// SPDX-License-Identifier: Apache-2.0

// Package unprivileged lets tests that run as root read files as another user.
package unprivileged

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Reads makes the goroutine read files as an unprivileged user until restore is called. During that
// time all files that it reads must be readable for all users. The test is skipped on systems other
// than Linux, which have no separate user for file accesses.
func Reads(t testing.TB) (restore func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		return func() {} // cannot read files of mode 0 anyway
	}
	runtime.LockOSThread()
	setfsuid := func(uid int) {
		_, _, errno := unix.RawSyscall(unix.SYS_SETFSUID, uintptr(uid), 0, 0)
		require.Zero(t, errno)
	}
	setfsuid(65534)
	return func() {
		setfsuid(0)
		runtime.UnlockOSThread()
	}
}
