// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// nobody makes the goroutine a user without rights until the returned function is called. The files that it must still
// reach have to be open to all.
func nobody(t testing.TB) (restore func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		return func() {} // has no rights over files of mode 0 anyway
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
