// SPDX-License-Identifier: Apache-2.0

//go:build linux

package workload

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// blockedHost is a simulated host with hypervisors. A file that is a FIFO blocks its readers.
type blockedHost struct {
	*identified
	now   time.Duration
	every time.Duration       // between scans
	scan  func(*proc.Process) // modifies the rows of the scan, if set
}

func newBlockedHost(t *testing.T, pids ...int) *blockedHost {
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	h := &blockedHost{identified: newIdentified(t, false), now: time.Hour, every: time.Minute}
	h.id.files = guardFiles(kernfs.GuardOptions[*files]{Root: h.host.Root(), Everywhere: true, Haste: 2 * time.Second})
	for _, pid := range pids {
		h.host.Processes[pid] = &hostsim.Process{
			Comm: "qemu", Exe: "/usr/bin/qemu-system-x86_64", Args: []string{"qemu-system-x86_64", "-name", fmt.Sprint("guest=vm", pid)}, Cgroup: "0::/user.slice",
		}
	}
	require.NoError(t, h.host.Render())
	for _, pid := range pids {
		require.NoError(t, os.WriteFile(h.path(pid, "status"), fmt.Appendf(nil, "Name:\tqemu\nUid:\t%d\t0\t0\t0\n", pid), 0o644))
	}
	return h
}

func (h *blockedHost) path(pid int, name string) string {
	return filepath.Join(h.host.Root(), "proc", fmt.Sprint(pid), name)
}

// block replaces a file by a FIFO until unblock is called, or the test ends.
func (h *blockedHost) block(pid int, name string) (unblock func()) {
	path := h.path(pid, name)
	require.NoError(h.t, os.Rename(path, path+"-before"))
	require.NoError(h.t, unix.Mkfifo(path, 0o644))
	fifo, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0) // so that reads block and opening the file does not
	require.NoError(h.t, err)
	isBlocked := true
	unblock = func() {
		if !isBlocked {
			return
		}
		isBlocked = false
		_, err := fifo.WriteString("\n")
		require.NoError(h.t, err)
		require.Eventually(h.t, func() bool { return h.id.Unread() == nil }, time.Minute, time.Millisecond)
		require.NoError(h.t, fifo.Close())
		require.NoError(h.t, os.Rename(path+"-before", path))
	}
	h.t.Cleanup(unblock)
	return unblock
}

// look lets the time between scans pass and identifies the processes with these PIDs.
func (h *blockedHost) look(pids ...int) {
	h.now += h.every
	h.id.Begin(time.Unix(0, 0).Add(h.now))
	for _, pid := range pids {
		row := process(pid, h.host.Processes[pid])
		row.Cgroups, row.Execs = 1, 1
		if h.scan != nil {
			h.scan(row)
		}
		h.id.Identify(row, h.now)
	}
	h.id.Resolve()
}

func (h *blockedHost) identity(pid int) Identity {
	found, _ := h.id.Identity(int32(pid))
	return *found
}

func TestACommandLineThatIsBlockedIsReadLater(t *testing.T) {
	h := newBlockedHost(t, 10, 11)
	unblock := h.block(10, "cmdline")
	h.look(10, 11)
	assert.Empty(t, h.identity(10).VM.Name)
	assert.Equal(t, "vm11", h.identity(11).VM.Name)
	assert.Equal(t, "qemu-system-x86_64", h.identity(10).Executable)
	require.NoError(t, h.id.Unread(), "the read may return soon")
	h.look(10, 11)
	require.EqualError(t, h.id.Unread(), "names and command lines of some processes cannot be read, because processes of these users block "+
		"reads of their files in /proc: user 10 (1 process)")
	unblock()
	h.look(10, 11)
	assert.Equal(t, "vm10", h.identity(10).VM.Name)
	require.NoError(t, h.id.Unread())
}

// paths returns a Wanted.CgroupPath.
func paths(of map[uint64]string) func(uint64) string { return func(id uint64) string { return of[id] } }

func TestTheScanShowsACgroupThatIsBlocked(t *testing.T) {
	h := newBlockedHost(t, 10)
	h.host.Processes[10].Cgroup = "0::/docker/" + hexA + "/init"
	require.NoError(t, h.host.Render())
	h.id.wanted.ProcessCgroup = true
	h.id.wanted.CgroupPath = paths(map[uint64]string{1: "/", 7: "/docker/" + hexA + "/init"})
	h.scan = func(p *proc.Process) { p.Cgroup = 7 }
	unblock := h.block(10, "cgroup")
	h.look(10)
	found, changed := h.id.Identity(10)
	before := *found
	assert.True(t, changed)
	assert.True(t, h.id.Moved(10))
	assert.Equal(t, hexA, before.Container.ID)
	assert.Equal(t, "/docker/"+hexA+"/init", before.ProcessCgroup)
	h.look(10)
	assert.False(t, h.id.known[10].reads.settled)
	unblock()
	h.look(10)
	found, changed = h.id.Identity(10)
	assert.Equal(t, before, *found)
	assert.False(t, changed)
	assert.False(t, h.id.Moved(10))
	assert.True(t, h.id.known[10].reads.settled && h.id.known[10].reads.found)
}

func TestABlockedProcessMovesToTheCgroupOfTheScan(t *testing.T) {
	for file, want := range map[string][2]string{
		"":                                 {hexB, hexC}, // never read
		"0::/docker/" + hexA:               {hexB, hexC},
		"1:cpu:/docker/" + hexA + "\n0::/": {hexA, hexA}, // only the file shows cgroups of version 1
	} {
		h := newBlockedHost(t, 10)
		h.every = 5 * time.Second
		known := map[uint64]string{1: "/", 7: "/docker/" + hexA, 8: "/docker/" + hexB}
		h.id.wanted.CgroupPath = paths(known)
		h.host.Processes[10].Cgroup = file
		require.NoError(t, h.host.Render())
		cgroup := uint64(7)
		h.scan = func(p *proc.Process) { p.Cgroup = cgroup }
		if file != "" {
			h.look(10)
			h.id.known[10].reads.found = false // the kernel evicted the name
		}
		h.block(10, "cgroup")
		h.look(10)
		assert.Equal(t, hexA, h.identity(10).Container.ID, file)
		cgroup = 8
		h.look(10)
		assert.Equal(t, want[0], h.identity(10).Container.ID, file)
		cgroup = 9 // unknown
		for range 2 * maxAttempts {
			h.look(10)
			assert.Equal(t, want[0], h.identity(10).Container.ID, file)
		}
		known[9] = "/docker/" + hexC
		h.look(10)
		assert.Equal(t, want[1], h.identity(10).Container.ID, file)
		cgroup = 1
		h.look(10)
		if want[1] == hexC {
			want[1] = ""
		}
		assert.Equal(t, want[1], h.identity(10).Container.ID, file)
	}
}

func TestTheCgroupOfANewBlockedProcessIsLookedForInEachScan(t *testing.T) {
	h := newBlockedHost(t, 10)
	h.every = 5 * time.Second
	known, asked := map[uint64]string{}, 0
	h.id.wanted.CgroupPath = func(cgroup uint64) string { asked++; return known[cgroup] }
	h.scan = func(p *proc.Process) { p.Cgroup = 7 }
	unblock := h.block(10, "cgroup")
	for range 2 * maxAttempts {
		h.look(10)
		assert.Empty(t, h.identity(10).Container.ID)
	}
	known[7] = "/docker/" + hexA
	h.look(10)
	assert.Equal(t, hexA, h.identity(10).Container.ID)
	assert.Equal(t, 2*maxAttempts+1, asked)
	h.look(10)
	assert.Equal(t, 2*maxAttempts+1, asked, "it is found")
	unblock()
	h.every = lookSoon
	h.look(10)
	assert.True(t, h.id.known[10].reads.settled)
	assert.False(t, h.id.known[10].reads.stray)
}

// If containers are only in version 1 cgroups, their processes are in the version 2 cgroup of the
// daemon that started them.
func TestAUnitOfVersion2IsNotAPlaceWhereVersion1IsInUse(t *testing.T) {
	for file, daemon := range map[string]string{
		"0::/user.slice":                    "containerd.service",
		"1:cpu:/user.slice\n0::/user.slice": "",
	} {
		h := newBlockedHost(t, 9, 10)
		h.id.wanted.Unit = true
		h.id.wanted.CgroupPath = paths(map[uint64]string{1: "/", 7: "/system.slice/containerd.service", 8: "/docker/" + hexB})
		h.host.Processes[9].Cgroup = file
		require.NoError(t, h.host.Render())
		cgroup := uint64(7)
		h.scan = func(p *proc.Process) { p.Cgroup = cgroup }
		h.block(10, "cgroup")
		h.look(9, 10)
		assert.Equal(t, daemon, h.identity(10).Unit.Name, file)
		cgroup = 8
		h.look(9, 10)
		assert.Equal(t, hexB, h.identity(10).Container.ID, file)
		cgroup = 7 // version 2 has shown a container of the process, so it is in use for this process
		h.look(9, 10)
		assert.Equal(t, "containerd.service", h.identity(10).Unit.Name, file)
		assert.Empty(t, h.identity(10).Container.ID, file)
	}
}

func TestABlockedProcessThatExecutesAProgramIsKnownByItsNewName(t *testing.T) {
	i := newIdentified(t, false)
	for _, c := range []struct {
		comm  string
		execs uint64
		want  string
	}{{"runc:[2:INIT]", 3, "runc:[2:INIT]"}, {"renamed", 3, "runc:[2:INIT]"}, {"app", 4, "app"}} {
		row := counted(10, &hostsim.Process{Comm: c.comm})
		row.Execs = c.execs
		got, _ := i.look(row, time.Hour)
		assert.Equal(t, c.want, got.Executable)
	}
}
