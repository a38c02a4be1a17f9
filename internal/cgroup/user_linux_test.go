// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// nobody makes the goroutine an unprivileged user until the returned function is called. Files that it reads meanwhile
// must be readable for all.
func nobody(t testing.TB) (restore func()) {
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
