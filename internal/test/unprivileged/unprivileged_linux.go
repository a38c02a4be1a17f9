// SPDX-License-Identifier: Apache-2.0

// Package unprivileged lets tests that run as root read files as another user does.
package unprivileged

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Reads makes the goroutine read files as an unprivileged user until restore is called. Files that
// it reads meanwhile must be readable for all. Other systems than Linux have no user for file
// accesses alone, and the test is skipped there.
func Reads(t testing.TB) (restore func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		return func() {} // already without rights to files of mode 0
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
