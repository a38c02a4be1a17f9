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
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// A FIFO stands for a file whose name cannot be looked up, because a process holds the lock of the
// directory.
func TestANewProcessThatIsBlockedDoesNotStopAScan(t *testing.T) {
	h := hostsim.New(t.TempDir())
	h.Processes[10] = &hostsim.Process{Comm: "app"}
	h.Processes[11] = &hostsim.Process{Comm: "app"}
	require.NoError(t, h.Render())
	path := filepath.Join(h.Root(), "proc/10/stat")
	require.NoError(t, os.Rename(path, path+"-before"))
	require.NoError(t, unix.Mkfifo(path, 0o644))
	source := NewProcfs(Options{Root: h.Root()})
	source.first = guardFirstReads(kernfs.GuardOptions[*firstRead]{Root: h.Root(), Everywhere: true, Haste: 2 * time.Second})
	defer func() { assert.NoError(t, source.Close()) }()

	var table proc.Table
	require.NoError(t, scanAll(source, &table))
	require.Equal(t, 2, table.Len(), "init and the other one")
	assert.EqualValues(t, 11, table.Rows[1].PID)
	assert.True(t, table.Unseen.Hidden)
	require.NoError(t, source.Traits().Unread, "the read may return soon")
	source.first.Begin(time.Unix(0, 0).Add(h.Uptime + time.Second))
	require.ErrorContains(t, source.Traits().Unread, "CPU times of some processes cannot be read")
	fifo, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	_, err = fifo.WriteString("\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return source.first.Err("x") == nil }, time.Minute, time.Millisecond)
	require.NoError(t, fifo.Close())
	require.NoError(t, os.Rename(path+"-before", path))
	h.Uptime += 2 * time.Minute
	require.NoError(t, h.Render())
	require.NoError(t, scanAll(source, &table))
	assert.Equal(t, 3, table.Len())
}

// A PID may be reused between two scans. The kernel has not looked up the files of the new process
// then.
func TestAProcessThatIsNotInTheKernelsCacheIsReadByTheGuard(t *testing.T) {
	h := hostsim.New(t.TempDir())
	h.Processes[10] = &hostsim.Process{Comm: "app"}
	require.NoError(t, h.Render())
	source := NewProcfs(Options{Root: h.Root()})
	defer func() { assert.NoError(t, source.Close()) }()
	var table proc.Table
	require.NoError(t, scanAll(source, &table))

	h.Processes[10].Comm = "other"
	h.Uptime += time.Second
	require.NoError(t, h.Render())
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
	require.NoError(t, scanAll(source, &table))
	p := table.Find(10)
	require.NotNil(t, p)
	assert.Equal(t, "other", p.Comm.String())
	assert.False(t, table.Unseen.Hidden)
	assert.GreaterOrEqual(t, reads, 2)
}
