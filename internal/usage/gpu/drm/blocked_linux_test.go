// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// Any user can name a directory dri. Only a device is of DRM.
func TestTextsOfOtherFilesThanDevicesAreNotRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dri")
	require.NoError(t, os.Mkdir(dir, 0o755))
	path := filepath.Join(dir, "renderD128")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { assert.NoError(t, file.Close()) }()
	f := newFiles("/")
	defer func() { assert.NoError(t, f.Close()) }()
	f.pid, f.fd = int32(os.Getpid()), int32(file.Fd())
	_, ok := nodeOf([]byte(path))
	require.True(t, ok)
	f.readText()
	assert.ErrorIs(t, f.err, unix.ENOENT)
	assert.Empty(t, f.text)

	kept := new(kernfs.Kept)
	require.NoError(t, f.proc.OpenOf(kept, f.pid, fmt.Sprint("fdinfo/", f.fd)))
	f.batch = []batched{{descriptor: descriptor{pid: f.pid, fd: f.fd, kept: kept}}}
	f.readBatch()
	assert.ErrorIs(t, f.batch[0].err, unix.ENOENT)
	assert.Empty(t, f.text)
}

// A FIFO stands for a text that depends on a lock of the process.
func TestATextThatIsBlockedIsReadLater(t *testing.T) {
	w := watch(t)
	w.source.reader.guard = kernfs.NewGuard(kernfs.GuardOptions[*files]{
		Root: w.Root(), New: func() *files { return newFiles(w.Root()) }, Everywhere: true, Haste: 2 * time.Second,
	})
	w.addGPU(0, card, "amdgpu")
	w.add(10, 1, render(3, 1))
	w.add(11, 1, render(3, 2, gfx(0)))
	w.pass()
	require.Len(t, w.source.clients.list, 2)
	w.Processes[11].Files[0] = render(3, 2, gfx(300*ms))
	w.Run(time.Second, map[int]int64{10: 1, 11: 1})
	require.NoError(t, w.Render())
	path := filepath.Join(w.Root(), "proc/10/fdinfo/3")
	require.NoError(t, w.source.Close())
	require.NoError(t, os.Rename(path, path+"-before"))
	require.NoError(t, unix.Mkfifo(path, 0o644))

	require.NoError(t, w.processes.Scan(w.table, cpu.Request{}))
	first, err := w.source.Read(w.Now(), w.table)
	require.NoError(t, err, "the read may return soon")
	usedFirst := used(t, first)[11]
	assert.Len(t, w.source.clients.list, 2)
	w.Run(time.Second, nil)
	require.NoError(t, w.processes.Scan(w.table, cpu.Request{}))
	usage, err := w.source.Read(w.Now(), w.table)
	require.ErrorContains(t, err, "GPU usage of some processes cannot be read, because processes of these users block reads")
	assert.Equal(t, 300*ms, usedFirst+used(t, usage)[11], "others are read, at the latest by the next Read")

	fifo, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	_, err = fifo.WriteString("\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.source.reader.guard.Err("x") == nil }, time.Minute, time.Millisecond)
	require.NoError(t, fifo.Close())
	require.NoError(t, os.Rename(path+"-before", path))
	w.Processes[10].Files[0] = render(3, 1, gfx(200*ms))
	w.Run(2*time.Minute, map[int]int64{10: 1})
	usage, err = w.read()
	require.NoError(t, err)
	assert.Equal(t, map[int32]units.CPUTime{10: 200 * ms, 11: 0}, used(t, usage))
}
