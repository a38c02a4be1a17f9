// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"
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
	assert.ElementsMatch(t, []proc.Charge{
		{Slot: -1, Path: "/a", CPU: 24}, {Slot: -1, Path: "/b", CPU: 17}, {Slot: -1, CPU: 19}, {Slot: table.Find(10).Slot, CPU: 23},
	}, table.Charges)

	m.reported = map[uint64]string{1 << 60: "/late"}
	k.ends = []tasks.Ended{{Pid: 35, Start: uint64(k.now) + 1, Run: 29, Cgroup: 1 << 60}}
	require.NoError(t, scanAll(b, table))
	assert.Equal(t, []proc.Charge{{Slot: -1, Path: "/late", CPU: 29}}, table.Charges)
}

func TestTheKernelReportsThePathOfACgroupThatLivedBetweenTwoScans(t *testing.T) {
	assert.Greater(t, scanAroundCgroup(t, openHere(t), "short.scope", true), ms)
}

func TestTheWalkFindsAnUnreportedCgroup(t *testing.T) {
	replace(t, &openCreations, func(*btf.Cache) (creations, error) { return nil, errors.New("refused") })
	assert.Greater(t, scanAroundCgroup(t, openHere(t), "left.scope", false), ms)
}

// scanAroundCgroup makes a cgroup, runs a process in it, removes it if remove is set, and returns the
// CPU time that the source reports for it.
func scanAroundCgroup(t *testing.T, source *BPF, name string, remove bool) units.CPUTime {
	if root, err := cgroup.NamespaceRoot("/"); err != nil || root != "/" {
		t.Skipf("needs the root of a v2 hierarchy: is %q, %v", root, err)
	}
	table := &proc.Table{}
	require.NoError(t, scanAll(source, table))
	dir := filepath.Join(newCgroup(t).dir.Name(), name)
	t.Cleanup(func() { _ = os.Remove(dir) })
	// A kernel may miss calls of a tracepoint just after another program has left it (seen with
	// Linux 6.18).
	for range 20 {
		if err := os.Mkdir(dir, 0o755); !errors.Is(err, os.ErrExist) {
			require.NoError(t, err)
		}
		group, err := os.Open(dir)
		require.NoError(t, err)
		startBurner(t, &realCgroup{TB: t, dir: group}, "burn:20").end()
		require.NoError(t, group.Close())
		if remove {
			require.NoError(t, os.Remove(dir))
		}
		for range 400 { // the kernel reports an end an RCU grace period later
			require.NoError(t, scanAll(source, table))
			for i := range table.Charges {
				if c := &table.Charges[i]; c.Path != "" && strings.HasSuffix(dir, c.Path) {
					return c.CPU
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	t.Fatal("its time was never found")
	return 0
}
