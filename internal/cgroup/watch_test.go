// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// watching returns a node with hierarchies of both versions, or one of them, whose counters are read
// from two processes on.
func watching(t testing.TB, mounts string) *node {
	n := newNode(t)
	n.write(mounts, "proc/1/mountinfo")
	n.WatchFrom(2)
	return n
}

// v2 sets the counter of a cgroup of version 2, in µs.
func (n *node) v2(path, used string) { n.write("usage_usec "+used+"\n", hybrid, path, "cpu.stat") }

// v1 sets the counter of a cgroup of version 1, in ns.
func (n *node) v1(path, used string) { n.write(used+"\n", v1, path, "cpuacct.usage") }

// grown reads all counters and returns what all processes used.
func (n *node) grown() (grown units.CPUTime, ok bool) {
	n.ReadCPUTime()
	grown, _, ok = n.Grown()
	return grown, ok
}

func TestTheCgroupThatIsWatchedForAProcess(t *testing.T) {
	for name, test := range map[string]struct{ mounts, text, want string }{
		"v2":                         {mountUnified, "0::/a\n", "/a"},
		"v1":                         {mountCPU, "3:memory:/b\n2:cpu,cpuacct:/a\n0::/c\n", "/a"},
		"both, v2":                   {mountCPU + mountUnified, "2:cpu,cpuacct:/a\n0::/c\n", "/c"},
		"both, in the root of v2":    {mountCPU + mountUnified, "2:cpu,cpuacct:/a\n0::/\n", "/a"},
		"the root":                   {mountCPU + mountUnified, "2:cpu,cpuacct:/\n0::/\n", ""},
		"another controller":         {mountCPU, "2:cpuset:/a\n", ""},
		"outside of the namespace":   {mountUnified, "0::/../a\n", ""},
		"no hierarchy that is known": {"", "0::/a\n", ""},
		"garbage":                    {mountUnified, "::\n0:\n\n0::", ""},
	} {
		n := watching(t, test.mounts)
		path := ""
		if in := n.Watch([]byte(test.text)); in != nil {
			path = in.Path()
		}
		assert.Equal(t, test.want, path, name)
	}
}

func TestMembersAreTheProcessesWatchedInTheSameCgroup(t *testing.T) {
	many := strings.Repeat("4194303\n", fileRoom/8) // more than one read
	for name, test := range map[string]struct {
		mounts, text string
		lists        map[string]string
		want         int
	}{
		"v2":                    {mountUnified, "0::/a\n", map[string]string{hybrid + "/a": many + "12\n"}, fileRoom/8 + 1},
		"the root of v2":        {mountUnified, "0::/\n", map[string]string{hybrid: "1\n2\n", hybrid + "/a": "3\n"}, 2},
		"v1":                    {mountCPU, "2:cpu,cpuacct:/a\n", map[string]string{v1 + "/a": "7\n8\n"}, 2},
		"both, the root of v2":  {mountCPU + mountUnified, "2:cpuacct:/a\n0::/\n", map[string]string{v1 + "/a": "7\n8\n9\n", hybrid: "9\n7\n"}, 2},
		"no list":               {mountUnified, "0::/a\n", nil, 0},
		"outside the namespace": {mountUnified, "0::/../a\n", nil, 0},
		"no hierarchy":          {"", "0::/a\n", nil, 0},
	} {
		n := watching(t, test.mounts)
		for dir, list := range test.lists {
			n.write(list, dir, "cgroup.procs")
		}
		got, err := n.Members([]byte(test.text))
		assert.Len(t, got, test.want, name)
		assert.Equal(t, test.want == 0, err != nil, "%s: %v", name, err)
	}
}

func TestACounterThatStoodStillProvesThatNoneRan(t *testing.T) {
	for name, test := range map[string]struct {
		mounts, text, hierarchy string
		set                     func(n *node, path, used string)
	}{
		"v1": {mountCPU, "2:cpu,cpuacct:/s/a\n", v1, (*node).v1},
		"v2": {mountUnified, "0::/s/a\n", hybrid, (*node).v2},
	} {
		t.Run(name, func(t *testing.T) {
			n := watching(t, test.mounts)
			a := n.Watch([]byte(test.text))
			read := func(used string) bool {
				test.set(n, "/s/a", used)
				n.ReadCPUTime()
				return a.StoodStill()
			}
			read("1")
			assert.False(t, read("1"), "it has few processes")
			assert.Same(t, a, n.Watch([]byte(test.text)))
			assert.False(t, read("1"), "the first reading")
			assert.True(t, read("1"))
			assert.False(t, read("2"))
			assert.True(t, read("2"))
			n.makeAgain(test.hierarchy, "/s/a")
			assert.False(t, read("2"), "it is another one")
			assert.False(t, read("x"), "it cannot be read")
			assert.False(t, read("2"))
			assert.False(t, read("1"), "it steps back")
			assert.True(t, read("1"))
			n.Free(a)
			assert.False(t, read("1"), "it has few processes again")
			n.Free(a)
			assert.NotContains(t, n.byPath, a.path)
			assert.Empty(t, n.Nodes())
		})
	}
}

func TestTotalCPUTimeOfVersion2IsThatOfTheOutermostCgroups(t *testing.T) {
	n := watching(t, mountUnified)
	n.v2("/a", "10")
	n.v2("/a/in", "10")
	_, ok := n.grown()
	assert.False(t, ok, "the first reading")
	n.v2("/b", "20")
	_, ok = n.grown()
	assert.False(t, ok, "the first reading of a new one")
	n.v2("/a", "13")
	n.v2("/a/in", "13")
	n.v2("/b", "24")
	grown, ok := n.grown()
	assert.True(t, ok)
	assert.Equal(t, units.CPUTime(7000), grown)
	_, all, _ := n.Grown()
	assert.False(t, all)
	n.write("", hybrid, "b", "cpu.stat")
	for range 2 {
		_, ok = n.grown()
		assert.False(t, ok, "an outermost cgroup has no counter")
	}
}

func TestTotalCPUTimeOfVersion1IncludesTheRoot(t *testing.T) {
	n := watching(t, mountCPU+mountUnified)
	n.v1("/", "10")
	n.grown()
	n.v1("/", "15")
	assert.Equal(t, units.CPUTime(5), n.Ahead())
	assert.Equal(t, units.CPUTime(5), n.Ahead(), "it is no reading")
	grown, ok := n.grown()
	assert.True(t, ok)
	assert.Equal(t, units.CPUTime(5), grown)
	_, all, _ := n.Grown()
	assert.True(t, all)
	n.v1("/", "")
	assert.Zero(t, n.Ahead())
	n.v1("/", "16")
	grown, ok = n.grown()
	assert.True(t, ok)
	assert.Equal(t, units.CPUTime(1), grown)
}

func TestWatchingChangesNothingOfWhatAccountAndShortLivedFind(t *testing.T) {
	n := watching(t, mountV2)
	outer := n.Watch([]byte("0::" + filepath.Dir(service) + "\n"))
	assert.Same(t, outer, n.Watch([]byte("0::"+outer.path)))
	n.set(0, outer.path)
	n.count(service, 900*ms)
	n.set(0, service)
	n.count(outer.path, 900*ms)
	assert.Empty(t, n.Nodes())
	a := n.Enter(service, true)
	assert.Nil(t, a.Parent(), "a node that is only watched has no part in it")
	n.count(service, 1000*ms)
	a.Account(0, 300*ms)
	assert.Equal(t, 700*ms-2*units.Tick, n.shortLived(a))

	assert.Same(t, a, n.Hold(service), "one node for all")
	n.remove(v2, service)
	a.Leave()
	n.Sweep()
	assert.Empty(t, n.Nodes())
	assert.Same(t, a, n.Enter(service, true), "it was held")
	n.count(service, 70*ms)
	a.Account(0, 0)
	assert.Equal(t, 50*ms, n.shortLived(a), "as one that was never entered")
}

func TestEachCounterIsReadOnceForAllUses(t *testing.T) {
	n := watching(t, mountV2)
	n.set(0, "/top/a", "/top/b", "/top/c", "/top/d", "/top")
	n.Enter("/top/a", true)
	n.Enter("/top/b", true)
	var watched []*Node
	for _, path := range []string{"/top/a", "/top/c", "/top/c", "/top/d"} {
		watched = append(watched, n.Watch([]byte("0::"+path+"\n")))
	}
	for range 2 {
		reads := n.reads(n.ReadCPUTime)
		assert.Equal(t, "/top/cpu.stat", reads[0], "the one around the others is read first")
		assert.ElementsMatch(t, []string{"/top/cpu.stat", "/top/a/cpu.stat", "/top/b/cpu.stat", "/top/c/cpu.stat"}, reads)
	}
	assert.True(t, watched[0].StoodStill(), "it is read for the ledger, though it has few processes")
	assert.True(t, watched[1].StoodStill())
	assert.False(t, watched[3].StoodStill(), "only the least number of processes is worth a read")
}

// reads returns which files of the version 2 hierarchy f reads.
func (n *node) reads(f func()) (reads []string) {
	defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		reads = append(reads, strings.TrimPrefix(path, filepath.Join(n.Root(), v2)))
		return got, err
	})()
	f()
	return reads
}

func TestOnlyOneVersionOfACgroupIsWatched(t *testing.T) {
	n := watching(t, mountCPU+mountUnified)
	n.v1("/", "1")
	n.v1("/a", "5000")
	n.v2("/a", "5")
	n.Enter("/a", true)
	n.ReadCPUTime()
	inV1 := []byte("2:cpu,cpuacct:/a\n0::/\n")
	a := n.Watch(inV1)
	assert.Same(t, a, n.Watch(inV1))
	assert.Nil(t, n.Watch([]byte("0::/a\n")), "other processes are there")
	n.ReadCPUTime()
	assert.False(t, a.StoodStill(), "that was the other version")
	n.v1("/a", "5001")
	n.ReadCPUTime()
	assert.False(t, a.StoodStill())
	n.ReadCPUTime()
	assert.True(t, a.StoodStill())
	n.Free(a)
	n.Free(a)
	assert.NotNil(t, n.Watch([]byte("0::/a\n")))
}
