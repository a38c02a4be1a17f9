// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/test/unprivileged"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
)

// passDenied lets a second pass in which the processes with the PIDs ran, and reads without the right to look into some
// directories of processes, such as 10/fd.
func (w *watched) passDenied(dirs []string, pids ...int) ([]gpu.Usage, error) {
	w.Helper()
	ran := map[int]int64{}
	for _, pid := range pids {
		ran[pid] = 1
	}
	w.Run(time.Second, ran)
	require.NoError(w, w.Render())
	require.NoError(w, w.processes.ReadProcesses(&w.table))
	require.NoError(w, os.Chmod(w.Root(), 0o755))
	for _, dir := range dirs {
		path := filepath.Join(w.Root(), "proc", dir)
		require.NoError(w, os.Chmod(path, 0))
		defer func() { require.NoError(w, os.Chmod(path, 0o755)) }()
	}
	defer unprivileged.Reads(w)()
	return w.source.Read(w.Now(), &w.table)
}

// other is a descriptor that is not a GPU's.
func other(fd int) hostsim.OpenFile {
	return hostsim.OpenFile{FD: fd, Target: "socket:[7]", Info: "pos:\t0\nflags:\t02\n"}
}

func TestClientsAreFoundByTheirTextsWhereLinksMayNotBeRead(t *testing.T) {
	w := watch(t)
	w.addGPU(0, card, "amdgpu")
	w.add(10, 1, other(0), render(3, 1, gfx(second)))
	p := w.add(11, 1, other(0))
	links := []string{"10/fd", "11/fd"}
	_, err := w.passDenied(links)
	require.NoError(t, err)

	p.Files = append(p.Files, render(4, 2, gfx(300*ms)), render(5, 2, gfx(300*ms)))
	w.Processes[10].Files[1] = render(3, 1, gfx(second+200*ms))
	usage, err := w.passDenied(links, 10, 11)
	require.NoError(t, err)
	assert.Equal(t, map[int32]units.CPUTime{10: 200 * ms, 11: 300 * ms}, used(t, usage))

	_, err = w.passDenied(append(links, "11/fdinfo"), 11)
	require.NoError(t, err, "what is known may be known still")
	p.Files = append(p.Files, other(6))
	_, err = w.passDenied(append(links, "11/fdinfo"), 11)
	assert.Equal(t, errDenied, err)
}

func TestAPlatformGPUIsKnownByItsDriverWhereLinksMayNotBeRead(t *testing.T) {
	w := watch(t)
	w.addPlatformGPU(0, "ae01000.display-controller", "msm_dpu")
	w.addPlatformGPU(1, "vgem", "")
	info := "drm-driver:\tmsm\ndrm-client-id:\t4\ndrm-engine-gpu:\t%d ns"
	p := w.add(10, 1, node(3, 0, fmt.Sprintf(info, 0)))
	_, err := w.passDenied([]string{"10/fd"})
	require.NoError(t, err)
	p.Files[0] = node(3, 0, fmt.Sprintf(info, 300*ms))
	usage, err := w.passDenied([]string{"10/fd"}, 10)
	require.NoError(t, err)
	assert.Equal(t, map[int32]units.CPUTime{10: 300 * ms}, used(t, usage))

	w.addPlatformGPU(2, "22000000.display-subsystem", "msm_dpu")
	w.add(11, 1, node(3, 2, strings.Replace(fmt.Sprintf(info, 0), "id:\t4", "id:\t5", 1)))
	w.source.discovered = time.Time{}
	_, err = w.passDenied([]string{"10/fd", "11/fd"}, 11)
	assert.Equal(t, errDenied, err, "either may be the client's")
}

func TestTextsThatAreSlowArePaidForLater(t *testing.T) {
	w := watch(t)
	w.addGPU(0, card, "amdgpu")
	w.pass()
	p := w.add(10, 1)
	for fd := 19; fd >= 0; fd-- { // tmpfs lists the last one that was made first, and /proc the lowest
		p.Files = append(p.Files, other(fd))
	}
	p.Files[0] = render(19, 1)

	now, read := time.Time{}, 0
	w.source.clock = func() time.Time { return now }
	restore := kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if strings.Contains(path, "/10/fdinfo/") && !strings.HasSuffix(path, "/19") {
			now, read = now.Add(4*time.Millisecond), read+1
		}
		return got, err
	})
	defer restore()
	passes, most := 0, 0
	for ; len(w.source.clients) < 1 && passes < 60; passes++ {
		before := read
		_, err := w.passDenied([]string{"10/fd"}, 10)
		require.NoError(t, err)
		most = max(most, read-before)
	}
	assert.Equal(t, 3, most, "texts in a look")
	assert.Equal(t, 19, read, "each once")
	assert.InDelta(t, 19*4/6, passes, 2, "6 ms in each second")
}

func TestAProcessWithManyDescriptorsIsLookedAtOnceWhereLinksMayNotBeRead(t *testing.T) {
	w := watch(t)
	w.addGPU(0, card, "amdgpu")
	w.pass()
	p := w.add(10, 1)
	for fd := 599; fd >= 0; fd-- {
		p.Files = append(p.Files, other(fd))
	}
	p.Files[0] = render(599, 1)
	p.Start = 0 // and the next look is in a minute
	read := 0
	defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if strings.Contains(path, "/10/fdinfo/") {
			read++
		}
		return got, err
	})()
	for range 10 {
		_, err := w.passDenied([]string{"10/fd"}, 10)
		require.NoError(t, err)
		require.LessOrEqual(t, w.source.look.texts, maxTexts)
	}
	assert.Equal(t, 600+9, read, "each once, and the client's in each interval")
	assert.Len(t, w.source.clients, 1)
}

func TestBeforeLinux62TextsAreReadAgainWhenTheProcessIsTwiceAsOld(t *testing.T) {
	w := watch(t)
	w.addGPU(0, card, "amdgpu")
	w.source.entries = func(int64) int64 { return 0 }
	w.pass()
	w.add(10, 1, other(0))
	looks := []int{}
	for second := range 60 {
		w.source.look.seen = 0
		_, err := w.passDenied([]string{"10/fd"}, 10)
		require.NoError(t, err)
		if w.source.look.seen > 0 {
			looks = append(looks, second)
		}
	}
	assert.Equal(t, []int{0, 1, 3, 7, 15, 31}, looks)
}

func TestASuspendedGPUIsNotWokenUpWhereLinksMayNotBeRead(t *testing.T) {
	w := watch(t)
	w.addGPU(0, card, "xe")
	status := "sys/devices/pci0000:00/" + card + "/power/runtime_status"
	w.Files[status] = "suspended\n"
	w.add(10, 1, other(0), render(3, 1))
	restore := kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		assert.NotContains(t, path, "/fdinfo", "this would wake it up")
		return got, err
	})
	defer restore()
	for range 2 {
		_, err := w.passDenied([]string{"10/fd"}, 10)
		require.NoError(t, err)
	}
	restore()
	w.Files[status] = "active\n"
	_, err := w.passDenied([]string{"10/fd"}, 10)
	require.NoError(t, err)
	assert.Len(t, w.source.clients, 1)
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
				require.Equal(t, c.err, err)
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
