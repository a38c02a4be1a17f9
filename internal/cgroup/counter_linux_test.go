// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// opened returns which files below dir this process has open.
func opened(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil && strings.HasPrefix(target, dir+"/") {
			names = append(names, strings.TrimPrefix(target, dir+"/"))
		}
	}
	slices.Sort(names)
	return names
}

// opened returns the files of cgroups that the tree keeps open, without the mount points.
func (n *node) opened() []string {
	n.Helper()
	return opened(n, filepath.Join(n.Root(), v2))
}

func TestACounterStaysOpenUntilItsNodeIsRemoved(t *testing.T) {
	n := newNode(t)
	b := n.tracked("/b")
	n.tracked("/a")
	n.count("/a", ms)
	assert.Equal(t, []string{"a/cpu.stat", "b/cpu.stat"}, n.opened())
	assert.Equal(t, 2, n.kept.Held)

	n.remove(v2, "/b")
	b.Leave()
	n.Sweep()
	n.ReadCPUTime()
	assert.Equal(t, []string{"a/cpu.stat"}, n.opened())
	assert.Equal(t, 1, n.kept.Held)
	require.NoError(t, n.Close())
	assert.Empty(t, n.opened())
	assert.Zero(t, n.kept.Held)
	n.ReadCPUTime()
	assert.Equal(t, []string{"a/cpu.stat"}, n.opened(), "a closed tree opens again what it needs")
}

func TestACgroupMadeAgainIsAnotherOne(t *testing.T) {
	for name, room := range map[string]int{"kept open": maxKept, "opened each time": 0} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.kept.Most = room
			a := n.tracked(service)
			n.count(service, 500*ms)
			a.Account(0, 500*ms)
			require.Zero(t, n.shortLived(a))

			n.makeAgain(v2, service)
			n.count(service, 700*ms)
			a.Account(0, 100*ms)
			assert.Equal(t, 600*ms-2*units.Tick, n.shortLived(a), "all that the new one counted, and not only what it counted more")
			assert.Len(t, n.opened(), min(room, 1))
		})
	}
}

func TestACounterThatFailsOnceIsNotAnotherCgroups(t *testing.T) {
	for _, err := range []error{syscall.EIO, syscall.ENODEV, syscall.EACCES, syscall.ENOENT} {
		n := newNode(t)
		a := n.tracked(service)
		n.count(service, 500*ms)
		a.Account(0, 500*ms)
		require.Zero(t, n.shortLived(a))
		for failures := range 3 { // a kept file is opened again after the first one
			left := failures
			restore := kernfs.InjectFaults(func(path string, got []byte, was error) ([]byte, error) {
				if left > 0 && strings.HasSuffix(path, service+"/cpu.stat") {
					left--
					return nil, err
				}
				return got, was
			})
			n.ReadCPUTime()
			restore()
			a.Account(0, 0)
			require.Zero(t, n.shortLived(a), "%v, %d times", err, failures)
		}
		n.count(service, 600*ms)
		a.Account(0, 0)
		assert.Equal(t, 100*ms-2*units.Tick, n.shortLived(a))
		assert.Len(t, n.opened(), 1)
	}
}

func TestNoMoreFilesStayOpenThanThereIsRoomFor(t *testing.T) {
	for name, limit := range map[string]func(*node){
		"of the tree":    func(n *node) { n.kept.Most = 3 },
		"of the process": func(*node) { t.Cleanup(kernfs.LimitDescriptors(8 * (kernfs.Descriptors() + 3))) },
	} {
		n := newNode(t)
		limit(n)
		var nodes []*Node
		for i := range 10 {
			nodes = append(nodes, n.tracked("/"+strconv.Itoa(i)))
		}
		n.ReadCPUTime()
		assert.Len(t, n.opened(), 3, name)
		for i, a := range nodes {
			n.count(a.path, 100*ms)
			a.Account(int32(i), 0)
			assert.Equal(t, 100*ms-2*units.Tick, n.shortLived(a), name)
		}
		assert.Len(t, n.opened(), 3, name)
		require.NoError(t, n.Close())
		assert.Empty(t, n.opened(), name)
	}
}

// withoutDescriptors calls f while no file can be opened before another is closed.
func withoutDescriptors(t *testing.T, f func()) {
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	dup, err := unix.Dup(0) // the lowest number that is free
	require.NoError(t, err)
	require.NoError(t, unix.Close(dup))
	low := unix.Rlimit{Cur: uint64(dup), Max: limit.Max}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	f()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
}

func TestHalfOfTheFilesAreClosedWhenNoDescriptorIsLeft(t *testing.T) {
	n := newNode(t)
	n.WatchFrom(1)
	for i := range 3 {
		n.tracked("/" + strconv.Itoa(i))
		n.Watch([]byte("0::/" + strconv.Itoa(i) + "/in\n"))
		n.count("/"+strconv.Itoa(i)+"/in", 0)
	}
	require.Len(t, n.opened(), 3*2)
	late := n.Enter("/late/in", true)
	n.set(0, "/late/in")

	withoutDescriptors(t, n.ReadCPUTime)
	assert.True(t, late.cpu.current, "its counter was read")
	for range 2 {
		assert.Len(t, n.opened(), 3, "for good")
		n.ReadCPUTime()
	}
	for _, a := range n.Nodes() {
		assert.True(t, a.cpu.current, a.path)
	}
	assert.True(t, n.byPath["/0/in"].StoodStill())
	require.NoError(t, n.Close())
	assert.Empty(t, n.opened())
}

func TestOnlyTheHierarchyThatHasACounterIsRead(t *testing.T) {
	n := newNode(t)
	n.write(mountOther+mountTmpfs+mountUnified+mountMemory+mountCPU, "proc/1/mountinfo")
	n.write("1500123\n", v1, service, "cpuacct.usage")
	n.write("usage_usec 70\n", hybrid, "b/cpu.stat")
	a, b := n.Enter(service, true), n.Enter("/b", true)
	n.ReadCPUTime()
	require.NoError(t, n.Close())
	reads := map[string]int{}
	defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		reads[strings.TrimPrefix(path, n.Root()+"/sys/fs/cgroup/")]++
		return got, err
	})()
	n.ReadCPUTime()
	assert.Equal(t, map[string]int{"cpu,cpuacct/./cpuacct.usage": 1, "cpu,cpuacct" + service + "/cpuacct.usage": 1, "unified/b/cpu.stat": 1}, reads)
	assert.Equal(t, units.CPUTime(1500123), a.cpu.counter)
	assert.Equal(t, units.CPUTime(70_000), b.cpu.counter)
}

func TestACgroupThatIsLeftInOneHierarchyGoesOnThere(t *testing.T) {
	n := newNode(t)
	n.write(mountTmpfs+mountUnified+mountCPU, "proc/1/mountinfo")
	n.write("1000000\n", v1, service, "cpuacct.usage")
	n.write("usage_usec 900\n", hybrid, service, "cpu.stat")
	a := n.Enter(service, true)
	n.ReadCPUTime()
	n.makeAgain(hybrid, service)
	n.v2(service, "900")
	n.ReadCPUTime()
	require.Equal(t, units.CPUTime(900_000), a.cpu.counter)
	a.cpu.accounted = 900_000
	// A runtime removes a cgroup from one hierarchy after the other.
	n.remove(hybrid, service)
	assert.True(t, n.exists(a))
	n.ReadCPUTime()
	assert.Equal(t, units.CPUTime(1_000_000), a.cpu.counter)
	assert.Equal(t, units.CPUTime(900_000), a.cpu.accounted, "what was accounted for is not used again")
}

// cgroupfs is where cgroup v2 is mounted on this machine.
func cgroupfs(t testing.TB) string {
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) == nil {
			return dir
		}
	}
	t.Skip("takes a cgroup v2 hierarchy below /sys/fs/cgroup that can be written")
	return ""
}

// makeCgroup makes a cgroup, which is removed at the end of the test.
func makeCgroup(t testing.TB, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("cgroups cannot be made here: ", err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) }) // the test may have removed it
}

func TestARealCgroupMadeAgainIsAnotherOne(t *testing.T) {
	mount := cgroupfs(t)
	outer := filepath.Join(mount, fmt.Sprintf("counters-%d", os.Getpid()))
	makeCgroup(t, outer)
	dir := filepath.Join(outer, "a")
	makeCgroup(t, dir)
	tree := New(Options{Root: "/"})
	defer func() { require.NoError(t, tree.Close()) }()
	a := tree.Enter("/"+filepath.Base(outer)+"/a", true)
	tree.ReadCPUTime()
	require.True(t, a.cpu.current)
	first := a.cpuFrom.inode
	a.cpu.accounted = 5 * ms
	tree.ReadCPUTime()
	assert.Equal(t, 5*ms, a.cpu.accounted, "the same")

	require.NoError(t, os.Remove(dir))
	tree.ReadCPUTime()
	assert.False(t, a.cpu.current, "a cgroup that was removed has no counter")
	assert.Zero(t, tree.kept.Held)
	require.NoError(t, os.Mkdir(dir, 0o755))
	tree.ReadCPUTime()
	assert.True(t, a.cpu.current)
	assert.NotEqual(t, first, a.cpuFrom.inode)
	assert.Zero(t, a.cpu.accounted, "another one")

	require.NoError(t, os.Remove(dir))
	a.Leave()
	tree.Sweep()
	assert.Empty(t, tree.Nodes())
	assert.Zero(t, tree.kept.Held)
}
