// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

// A FIFO stands for a file whose name cannot be looked up, because a process holds the lock of the
// directory.
func TestANewProcessThatIsBlockedDoesNotStopAScan(t *testing.T) {
	w := watch(t)
	w.add(10, hostsim.Process{})
	w.add(11, hostsim.Process{})
	require.NoError(t, w.Render())
	path := w.path(10, "stat")
	require.NoError(t, os.Rename(path, path+"-before"))
	require.NoError(t, unix.Mkfifo(path, 0o644))
	w.source.first = guardFirstReads(kernfs.GuardOptions[*firstRead]{Root: w.Root(), Everywhere: true, Haste: 2 * time.Second})
	w.next()
	require.Equal(t, []int32{1, 11}, w.pids())
	assert.True(t, w.table.Unseen.Hidden)
	require.NoError(t, w.source.Traits().Unread, "the read may return soon")
	w.source.first.Begin(time.Unix(0, 0).Add(w.Uptime + time.Second))
	require.ErrorContains(t, w.source.Traits().Unread, "CPU times of some processes cannot be read")
	fifo, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	_, err = fifo.WriteString("\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.source.first.Err("x") == nil }, time.Minute, time.Millisecond)
	require.NoError(t, fifo.Close())
	require.NoError(t, os.Rename(path+"-before", path))
	w.Run(2*time.Minute, nil)
	w.scan()
	assert.Equal(t, []int32{1, 10, 11}, w.pids())
}

// A PID may be reused between two scans. The kernel has not looked up the files of the new process
// then.
func TestAProcessThatIsNotInTheKernelsCacheIsReadByTheGuard(t *testing.T) {
	w := watch(t)
	p := w.add(10, hostsim.Process{Comm: "app"})
	w.scan()
	p.Comm = "other"
	w.pass()
	reads := 0
	defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if filepath.Base(filepath.Dir(path)) != "10" {
			return got, err
		}
		if reads++; reads == 1 {
			return nil, kernfs.ErrNotCached
		}
		return got, err
	})()
	w.scan()
	comm := w.process(10).Comm
	assert.Equal(t, "other", comm.String())
	assert.False(t, w.table.Unseen.Hidden)
	assert.GreaterOrEqual(t, reads, 2)
}
