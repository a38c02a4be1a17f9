// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// fakeCgroups are cgroups as the kernel reports them.
type fakeCgroups struct {
	reported map[uint64]string
	err      error
}

func (m *fakeCgroups) Drain(yield func(uint64, string)) error {
	for id, path := range m.reported {
		yield(id, path)
	}
	m.reported = nil
	return m.err
}

func (*fakeCgroups) Close() error { return nil }

func TestTimeOfACgroupWithoutRowsIsItsOwn(t *testing.T) {
	k, b, table := fakeBPF(t)
	m := &fakeCgroups{}
	b.cgroups = newCgroupPaths(t.TempDir())
	b.cgroups.created = m
	start := uint64(k.now) + 1
	m.reported = map[uint64]string{4711: "/a", 4712: "/b"}
	k.ends = []tasks.Ended{
		{Pid: 30, Start: start, Run: 11, Cgroup: 4711},
		{Pid: 31, Start: start, Run: 13, Cgroup: 4711},
		{Pid: 32, Start: start, Run: 17, Cgroup: 4712},
		{Pid: 33, Start: start, Run: 19, Cgroup: 1 << 60}, // an unknown cgroup
		{Pid: 34, Start: start, Run: 23, Cgroup: 7},       // a cgroup with a row
	}
	require.NoError(t, scanAll(b, table))
	assert.ElementsMatch(t, []scan.CgroupTime{{Path: "/a", Used: 24}, {Path: "/b", Used: 17}}, table.ShortLivedIn)
	assert.EqualValues(t, 24+17+19, unplaced(table))
	require.NoError(t, scanAll(b, table))
	assert.Empty(t, table.ShortLivedIn, "once")
}

func TestTheKernelReportsThePathOfACgroupThatLivedBetweenTwoScans(t *testing.T) {
	used := scanAroundCgroup(t, openHere(t), "short.scope", true)
	assert.Greater(t, used.Used, units.CPUTime(time.Millisecond))
}

func TestTheWalkFindsAnUnreportedCgroup(t *testing.T) {
	refuseCreations(t, errors.New("refused"))
	used := scanAroundCgroup(t, openHere(t), "left.scope", false)
	assert.Greater(t, used.Used, units.CPUTime(time.Millisecond))
}

// scanAroundCgroup makes a cgroup, runs a process in it, removes it if remove is set, and returns
// what the source reports of it.
func scanAroundCgroup(t *testing.T, source *BPF, name string, remove bool) scan.CgroupTime {
	path := fmt.Sprintf("/energy-test-%d.slice/%s", os.Getpid(), name)
	mount := "/sys/fs/cgroup"
	if _, err := os.Stat(mount + "/cgroup.procs"); err != nil {
		mount += "/unified"
	}
	if begin, err := cgroup.NamespaceRoot("/"); err != nil || begin != "/" {
		t.Skipf("needs the root of a v2 hierarchy: is %q, %v", begin, err)
	}
	table := &proc.Table{}
	require.NoError(t, scanAll(source, table))
	dir := filepath.Join(mount, path)
	if err := os.Mkdir(filepath.Dir(dir), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		t.Skip("cannot make a cgroup:", err)
	}
	t.Cleanup(func() { _ = os.Remove(dir); _ = os.Remove(filepath.Dir(dir)) })
	// A kernel may miss calls of a tracepoint just after another program has left it (seen with
	// Linux 6.18).
	for range 20 {
		burnIn(t, dir)
		if remove {
			require.NoError(t, os.Remove(dir))
		}
		for scans := 0; scans < 400; scans++ { // the kernel reports an end an RCU grace period later
			require.NoError(t, scanAll(source, table))
			for _, in := range table.ShortLivedIn {
				if in.Path == path {
					return in
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	t.Fatal("its time was never found")
	return scan.CgroupTime{}
}

// burnIn runs a process in a cgroup, which is created if it does not exist.
func burnIn(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); !errors.Is(err, os.ErrExist) {
		require.NoError(t, err)
	}
	group, err := os.Open(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, group.Close()) }()
	burn := exec.Command("sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
	burn.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	require.NoError(t, burn.Run())
}
