// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
)

// machine is a machine with a clock.
type machine struct {
	testing.TB
	root string
	tree *cgroup.Tree
	now  time.Time
}

func (m *machine) write(text string, elem ...string) {
	m.Helper()
	path := filepath.Join(append([]string{m.root}, elem...)...)
	require.NoError(m, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(m, os.WriteFile(path, []byte(text), 0o600))
}

const (
	mountV2 = "24 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountV1 = "24 23 0:22 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n" +
		"31 24 0:27 / /sys/fs/cgroup/memory rw,nosuid shared:10 - cgroup cgroup rw,memory\n"
	v2 = "sys/fs/cgroup"
)

// newMachine returns a machine of two packages of 4 CPUs each, of which the second has two NUMA
// nodes, and a node of memory without CPUs.
func newMachine(t testing.TB, mounts string) (*machine, *Places) {
	c := &machine{TB: t, root: t.TempDir(), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	c.tree = cgroup.New(cgroup.Options{Root: c.root})
	t.Cleanup(func() { assert.NoError(t, c.tree.Close()) })
	c.write(mounts, "proc/1/mountinfo")
	c.write("0-3\n", nodeDirectory, "online")
	for node, cpus := range []string{"0-3", "4-5", "6-7", ""} {
		c.write(cpus+"\n", nodeDirectory, fmt.Sprintf("node%d", node), "cpulist")
	}
	p := New(c.tree, 2, func(cpu int32) int { return int(cpu) / 4 })
	p.Begin(c.now)
	return c, p
}

const numaStat = "anon N0=100 N1=200 N2=30 N3=4\nfile N0=5000 N1=0 N2=0 N3=0\nkernel_stack N0=9 N1=9 N2=9 N3=9\nfile_mapped N0=7 N1=0 N2=1 N3=0\n"

func TestMemoryIsInThePackageOfItsNode(t *testing.T) {
	for name, test := range map[string]struct {
		mounts, file, text string
		want               []uint64
	}{
		"version 2": {mountV2, v2 + "/a/memory.numa_stat", numaStat, []uint64{107, 231, 4}},
		"version 1": {mountV1, "sys/fs/cgroup/memory/a/memory.numa_stat",
			"total=9 N0=9 N1=0\nfile=9 N0=9 N1=0\nhierarchical_total=12 N0=9 N1=1 N2=2 N3=0\n", []uint64{9, 3, 0}},
		"a node that came later": {mountV2, v2 + "/a/memory.numa_stat", "anon N0=1 N7=2\nfile_mapped N0=0\n", []uint64{1, 0, 2}},
		"nothing":                {mountV2, v2 + "/a/memory.numa_stat", "anon N0=0\nfile_mapped N0=0\n", []uint64{}},
	} {
		c, p := newMachine(t, test.mounts)
		c.write(test.text, test.file)
		assert.Equal(t, test.want, append([]uint64{}, p.Of("/a")...), name)
		assert.NoError(t, p.Err(), name)
	}
}

func TestMemoryOfACgroupWithoutAControllerIsInTheOneAroundIt(t *testing.T) {
	c, p := newMachine(t, mountV2)
	c.write(numaStat, v2, "a", "memory.numa_stat")
	c.write("", v2, "a/b/c", "cgroup.procs")
	assert.Equal(t, []uint64{107, 231, 4}, p.Of("/a/b/c"))

	c.write("anon N0=8\nfile_mapped N0=0\n", v2, "a/b/c", "memory.numa_stat")
	p.Begin(c.now.Add(rereadPlaces))
	assert.Equal(t, []uint64{8, 0, 0}, p.Of("/a/b/c"), "it was made anew, as that of a service that restarts")
}

func TestWhereMemoryIsIsReadSeldom(t *testing.T) {
	c, p := newMachine(t, mountV2)
	write := func(first int) {
		c.write(fmt.Sprintf("anon N0=%d\nfile_mapped N0=0\n", first), v2, "a", "memory.numa_stat")
	}
	at := func(after time.Duration) uint64 {
		c.now = c.now.Add(after)
		p.Begin(c.now)
		return p.Of("/a")[0]
	}
	write(1)
	assert.EqualValues(t, 1, at(0))
	write(2)
	assert.EqualValues(t, 1, at(999*time.Millisecond))
	assert.EqualValues(t, 2, at(time.Millisecond), "after a second")
	write(3)
	assert.EqualValues(t, 2, at(1999*time.Millisecond))
	assert.EqualValues(t, 3, at(time.Millisecond), "after two")
	at(4 * time.Second)
	at(8 * time.Second)
	write(4)
	assert.EqualValues(t, 3, at(9999*time.Millisecond))
	assert.EqualValues(t, 4, at(time.Millisecond), "after ten at most")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		p.found = c.now // nodes are looked for seldom
		at(10 * time.Second)
	}))
	c.now = c.now.Add(forgetPlaces)
	p.Begin(c.now)
	assert.Empty(t, p.byPath, "nobody asks for it")
}

func TestWhereMemoryIsNotKnown(t *testing.T) {
	c, p := newMachine(t, mountV2)
	c.write("", v2, "a", "cgroup.procs")
	next := func() {
		c.now = c.now.Add(10 * time.Second)
		p.Begin(c.now)
	}
	assert.Empty(t, p.Of("/"), "the root has none")
	assert.Empty(t, p.Of("/a"))
	require.NoError(t, p.Err(), "one that ends meanwhile is no error")
	next()
	assert.Empty(t, p.Of("/"))
	require.NoError(t, p.Err(), "nor is the root")
	assert.Empty(t, p.Of("/a"))
	require.EqualError(t, p.Err(), "some memory counts for the package where its process ran: memory.numa_stat cannot be read: no such file or directory")
	c.write("anon N0=1", v2, "a", "memory.numa_stat")
	next()
	assert.Empty(t, p.Of("/a"), "cut short")
	require.ErrorContains(t, p.Err(), "cut")
	next()
	require.NoError(t, p.Err(), "no process is in it")

	c, p = newMachine(t, mountV2)
	c.write("0-7\n", nodeDirectory, "node0", "cpulist")
	c.write(numaStat, v2, "a", "memory.numa_stat")
	p = New(c.tree, 2, func(cpu int32) int { return int(cpu) / 4 })
	p.Begin(c.now)
	assert.Empty(t, p.Of("/a"), "memory of both packages is one node's")
	require.ErrorIs(t, p.Err(), errSpans)
	c.write("0-3\n", nodeDirectory, "node0", "cpulist")
	c.now = c.now.Add(refindNodes)
	p.Begin(c.now)
	assert.NotEmpty(t, p.Of("/a"))
	require.NoError(t, p.Err())
}
