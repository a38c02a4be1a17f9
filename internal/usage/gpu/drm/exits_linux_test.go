// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestTheExitOfAWatchedProcessIsRecorded(t *testing.T) {
	var e exits
	ends, runs := exec.Command("sleep", "60"), exec.Command("sleep", "60")
	for _, c := range []*exec.Cmd{ends, runs} {
		require.NoError(t, c.Start())
		e.watch(int32(c.Process.Pid))
		e.watch(int32(c.Process.Pid))
	}
	before, pid := time.Now(), int32(ends.Process.Pid)
	require.NoError(t, ends.Process.Kill())
	var at time.Time
	require.Eventually(t, func() (exited bool) { at, exited = e.of(pid); return exited }, 10*time.Second, time.Millisecond)
	assert.False(t, at.Before(before) || at.After(time.Now()), "it is a zombie: nothing has waited for it")
	_, exited := e.of(int32(runs.Process.Pid))
	assert.False(t, exited)

	e.forget(at.Add(1))
	assert.Len(t, e.known, 1, "the process that runs")
	e.watch(-1)
	assert.Len(t, e.known, 1)
	fd := e.known[int32(runs.Process.Pid)].pidfd
	require.NoError(t, e.close())
	_, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, runs.Process.Kill())
	require.Error(t, ends.Wait(), "it was killed")
	require.Error(t, runs.Wait())
}

// As while the collector forks: until it executes its program, the child has the descriptors, too.
func TestAnExitIsRecordedOnceWhileAPidfdIsInherited(t *testing.T) {
	var e exits
	ends := exec.Command("sleep", "60")
	require.NoError(t, ends.Start())
	pid := int32(ends.Process.Pid)
	e.watch(pid)
	e.mu.Lock()
	inherited, err := unix.Dup(e.known[pid].pidfd)
	e.mu.Unlock()
	require.NoError(t, err)
	require.NoError(t, ends.Process.Kill())
	require.Eventually(t, func() bool { _, exited := e.of(pid); return exited }, 10*time.Second, time.Millisecond)
	n, err := unix.EpollWait(e.epoll, make([]unix.EpollEvent, 1), 0)
	require.NoError(t, unix.Close(inherited))
	require.NoError(t, err)
	assert.Zero(t, n, "events")
	require.NoError(t, e.close())
	require.Error(t, ends.Wait(), "it was killed")
}
