// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/test/unprivileged"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
)

// passDenied lets a second pass in which the processes with the PIDs ran, and reads without the
// right to look into some directories of processes, such as 10/fd.
func (w *watched) passDenied(dirs []string, pids ...int) ([]gpu.Usage, error) {
	w.Helper()
	ran := map[int]int64{}
	for _, pid := range pids {
		ran[pid] = 1
	}
	w.Run(time.Second, ran)
	require.NoError(w, w.Render())
	require.NoError(w, w.processes.Scan(w.table, cpu.Request{}))
	require.NoError(w, os.Chmod(w.Root(), 0o755))
	for _, dir := range dirs {
		path := filepath.Join(w.Root(), "proc", dir)
		require.NoError(w, os.Chmod(path, 0))
		defer func() { require.NoError(w, os.Chmod(path, 0o755)) }()
	}
	defer unprivileged.Reads(w)()
	return w.source.Read(w.Now(), w.table)
}

// other is a descriptor that is not a GPU's.
func other(fd int) hostsim.OpenFile {
	return hostsim.OpenFile{FD: fd, Target: "socket:[7]", Info: "pos:\t0\nflags:\t02\n"}
}

func TestNoTextIsReadWhereLinksMayNotBeRead(t *testing.T) {
	w := watch(t)
	w.addGPU(0, card, "amdgpu")
	w.add(10, 1, render(3, 1))
	w.add(11, 1, other(3), render(4, 2))
	defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		assert.NotContains(t, path, "/10/fdinfo")
		assert.NotContains(t, path, "/fdinfo/3")
		return got, err
	})()
	for range 3 {
		_, err := w.passDenied([]string{"10/fd"}, 10, 11)
		require.EqualError(t, err, errDenied.Error())
	}
	assert.Len(t, w.source.clients.list, 1)
}

// The error is there only while something may be unknown.
func TestWhatMayNotBeReadIsNoErrorWhereNothingIsUnknown(t *testing.T) {
	dirs := []string{"10/fd", "10/fdinfo"}
	tests := map[string]struct {
		driver string
		files  []hostsim.OpenFile
		state  byte
		err    error
	}{
		"a process with descriptors":   {"amdgpu", []hostsim.OpenFile{other(0)}, 'S', errDenied},
		"one without":                  {"amdgpu", nil, 'S', nil},
		"a zombie":                     {"amdgpu", []hostsim.OpenFile{other(0)}, 'Z', nil},
		"a driver that counts nothing": {"nouveau", []hostsim.OpenFile{other(0)}, 'S', nil},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			w := watch(t)
			w.addGPU(0, card, c.driver)
			w.add(9, 1, other(0))
			p := w.add(10, 1, other(0))
			p.State = c.state
			require.NoError(t, w.Render())
			p.Files = append([]hostsim.OpenFile{}, c.files...)
			for range 3 {
				_, err := w.passDenied(dirs, 10)
				require.ErrorIs(t, err, c.err)
			}
		})
	}
}

func TestNVIDIAsDriverIsNotSearchedFor(t *testing.T) {
	w := watch(t)
	w.addGPU(0, card, "nvidia")
	w.add(10, 1, render(3, 1))
	defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		assert.NotContains(t, path, "/fd")
		return got, err
	})()
	assert.Empty(t, w.pass(10))
}
