// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// counted is a host with files of cgroups.
type counted struct {
	*testing.T
	*Counters
	root string
}

func count(t *testing.T, mounts string) *counted {
	c := &counted{T: t, root: t.TempDir()}
	c.write("proc/1/mountinfo", mounts)
	c.Counters = NewCounters(c.root, 2, nil)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

const (
	unifiedMount = "24 1 0:22 / /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw\n"
	cpuacctMount = "25 1 0:23 / /sys/fs/cgroup/cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct\n"
)

func (c *counted) write(name, text string) {
	c.Helper()
	name = filepath.Join(c.root, name)
	require.NoError(c, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(c, os.WriteFile(name, []byte(text), 0o600))
}

// v2 sets the counter of a cgroup of version 2, in µs.
func (c *counted) v2(path, used string) {
	c.write(filepath.Join("sys/fs/cgroup/unified", path, "cpu.stat"), "usage_usec "+used+"\n")
}

// v1 sets the counter of a cgroup of version 1, in ns.
func (c *counted) v1(path, used string) {
	c.write(filepath.Join("sys/fs/cgroup/cpuacct", path, "cpuacct.usage"), used+"\n")
}

func TestTheCgroupThatIsWatchedForAProcess(t *testing.T) {
	for name, test := range map[string]struct{ mounts, text, want string }{
		"v2":                         {unifiedMount, "0::/a\n", "/a"},
		"v1":                         {cpuacctMount, "3:memory:/b\n2:cpu,cpuacct:/a\n0::/c\n", "/a"},
		"both, v2":                   {cpuacctMount + unifiedMount, "2:cpu,cpuacct:/a\n0::/c\n", "/c"},
		"both, in the root of v2":    {cpuacctMount + unifiedMount, "2:cpu,cpuacct:/a\n0::/\n", "/a"},
		"the root":                   {cpuacctMount + unifiedMount, "2:cpu,cpuacct:/\n0::/\n", ""},
		"another controller":         {cpuacctMount, "2:cpuset:/a\n", ""},
		"outside of the namespace":   {unifiedMount, "0::/../a\n", ""},
		"no hierarchy that is known": {"", "0::/a\n", ""},
		"garbage":                    {unifiedMount, "::\n0:\n\n0::", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := count(t, test.mounts)
			i := c.Enter([]byte(test.text))
			assert.Equal(t, test.want != "", i > 0)
			assert.Equal(t, test.want, c.all[i].name.path)
		})
	}
}

func TestACounterThatStoodStillProvesThatNoneRan(t *testing.T) {
	for name, set := range map[string]func(c *counted, path, used string){"v1": (*counted).v1, "v2": (*counted).v2} {
		t.Run(name, func(t *testing.T) {
			c := count(t, map[string]string{"v1": cpuacctMount, "v2": unifiedMount}[name])
			text := []byte(map[string]string{"v1": "2:cpu,cpuacct:/a\n", "v2": "0::/a\n"}[name])
			i := c.Enter(text)
			read := func(used string) bool {
				set(c, "/a", used)
				c.Read()
				return c.StoodStill(i)
			}
			read("1")
			assert.False(t, read("1"), "it has few processes")
			assert.Equal(t, i, c.Enter(text))
			assert.False(t, read("1"), "the first reading")
			assert.True(t, read("1"))
			assert.False(t, read("2"))
			assert.True(t, read("2"))
			assert.False(t, read("x"), "it cannot be read")
			assert.False(t, read("2"))
			assert.False(t, read("1"), "it steps back")
			c.Leave(i)
			assert.False(t, read("1"))
			c.Leave(i)
			assert.Empty(t, c.byName)
			assert.Equal(t, i, c.Enter([]byte("0::/a\n2:cpuacct:/a\n")), "the index is used again")
		})
	}
}

func TestTotalCPUTimeOfVersion2IsThatOfTheOutermostCgroups(t *testing.T) {
	c := count(t, unifiedMount)
	c.v2("/a", "10")
	c.v2("/a/in", "10")
	c.v2("/b", "20")
	c.Read()
	_, _, ok := c.Grown()
	assert.False(t, ok, "the first reading")
	c.v2("/a", "13")
	c.v2("/a/in", "13")
	c.v2("/b", "24")
	c.Read()
	grown, all, ok := c.Grown()
	assert.True(t, ok)
	assert.False(t, all)
	assert.Equal(t, units.CPUTime(7000), grown)
	c.write("sys/fs/cgroup/unified/b/cpu.stat", "")
	c.Read()
	c.Read()
	_, _, ok = c.Grown()
	assert.False(t, ok, "an outermost cgroup has no counter")
}

func TestANewOutermostCgroupIsPartOfTheTotalAtOnce(t *testing.T) {
	c := count(t, unifiedMount)
	c.v2("/a", "10")
	c.Read()
	c.Read()
	c.v2("/b", "20")
	c.Read()
	_, _, ok := c.Grown()
	assert.False(t, ok, "the first reading of its counter")
	c.v2("/b", "25")
	c.Read()
	grown, _, ok := c.Grown()
	assert.True(t, ok)
	assert.Equal(t, units.CPUTime(5000), grown)
}

func TestTotalCPUTimeOfVersion1IncludesTheRoot(t *testing.T) {
	c := count(t, cpuacctMount+unifiedMount)
	c.v1("/", "10")
	c.Read()
	c.v1("/", "15")
	c.Read()
	grown, all, ok := c.Grown()
	assert.True(t, ok && all)
	assert.Equal(t, units.CPUTime(5), grown)
}

func TestCPUTimeAheadOfTheLatestReading(t *testing.T) {
	c := count(t, cpuacctMount+unifiedMount)
	c.v1("/", "10")
	c.Read()
	c.v1("/", "15")
	assert.Equal(t, units.CPUTime(5), c.Ahead())
	assert.Equal(t, units.CPUTime(5), c.Ahead(), "it is no reading")
	c.v1("/", "")
	assert.Zero(t, c.Ahead())
	assert.False(t, c.Counters.root.node.cpuFrom.kept.IsOpen(), "a file that cannot be read is closed")
	c.v1("/", "16")
	c.Read()
	grown, _, ok := c.Grown()
	assert.True(t, ok)
	assert.Equal(t, units.CPUTime(6), grown)
}

func TestACounterThatWasReadForAnotherUseIsNotReadAgain(t *testing.T) {
	c := count(t, cpuacctMount+unifiedMount)
	tree := New(Options{Root: c.root})
	t.Cleanup(func() { require.NoError(t, tree.Close()) })
	c.shared = tree.CPUTime
	c.v2("/a", "5")
	c.v1("/b", "5")
	inBoth := func() {
		tree.ReadCPUTime()
		c.Read()
	}
	tree.Node("/a")
	a, b := c.Enter([]byte("0::/a\n")), c.Enter([]byte("2:cpu,cpuacct:/b\n"))
	inBoth()
	assert.False(t, c.StoodStill(a), "nothing to compare with")
	inBoth()
	assert.True(t, c.StoodStill(a), "though it has fewer processes than the least")
	assert.False(t, c.StoodStill(b), "only the least number of processes is worth a read")
	tree.Node("/b")
	inBoth()
	inBoth()
	assert.True(t, c.StoodStill(b))
	c.v2("/a", "6")
	inBoth()
	assert.False(t, c.StoodStill(a))
	assert.True(t, c.StoodStill(b))
	assert.False(t, c.all[a].node.cpuFrom.kept.IsOpen() || c.all[b].node.cpuFrom.kept.IsOpen(), "it opened a file of its own")
}

func TestACounterOfTheOtherVersionIsNotShared(t *testing.T) {
	c := count(t, cpuacctMount+unifiedMount)
	c.v1("/a", "5")
	tree := New(Options{Root: c.root})
	t.Cleanup(func() { require.NoError(t, tree.Close()) })
	tree.Node("/a")
	tree.ReadCPUTime()
	_, ok := tree.CPUTime("/a", true)
	assert.False(t, ok)
	used, ok := tree.CPUTime("/a", false)
	assert.True(t, ok)
	assert.Equal(t, units.CPUTime(5), used)
	_, ok = tree.CPUTime("/b", false)
	assert.False(t, ok)
}
