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

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
)

// madeUpCgroups is a v2 hierarchy of plain directories, and a list of what the kernel tells of.
type madeUpCgroups struct {
	t     *testing.T
	root  string
	told  map[uint64]string
	walks int
	err   error
}

func (m *madeUpCgroups) Drain(yield func(uint64, string)) error {
	for id, path := range m.told {
		yield(id, path)
	}
	m.told = nil
	return m.err
}

func (*madeUpCgroups) Close() error { return nil }

func (m *madeUpCgroups) mkdir(path string) (id uint64) {
	m.t.Helper()
	dir := filepath.Join(m.root, "sys/fs/cgroup", path)
	require.NoError(m.t, os.MkdirAll(dir, 0o755))
	info, err := os.Stat(dir)
	require.NoError(m.t, err)
	return info.Sys().(*syscall.Stat_t).Ino
}

// newMadeUpCgroups returns paths that are read below a made-up root, on a clock that runs an hour at each look.
func newMadeUpCgroups(t *testing.T) (*madeUpCgroups, *cgroupPaths) {
	m := &madeUpCgroups{t: t, root: t.TempDir()}
	require.NoError(t, os.MkdirAll(filepath.Join(m.root, "proc/1"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(m.root, "proc/1/mountinfo"),
		[]byte("24 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"), 0o644))
	m.mkdir("")
	c := newCgroupPaths(m.root)
	c.created = m
	now := time.Now()
	c.now = func() time.Time { m.walks++; now = now.Add(time.Hour); return now }
	return m, c
}

func TestACgroupIsKnownByItsIdAsLongAsItIsThereAndAfterwards(t *testing.T) {
	m, c := newMadeUpCgroups(t)
	id := m.mkdir("a.slice/b.scope")
	assert.Equal(t, "/a.slice/b.scope", c.path(id))
	require.NoError(t, os.RemoveAll(filepath.Join(m.root, "sys")))
	assert.Equal(t, "/a.slice/b.scope", c.path(id))
}

func TestACgroupThatTheKernelToldOfNeedNotBeThereAnyMore(t *testing.T) {
	m, c := newMadeUpCgroups(t)
	m.told = map[uint64]string{4711: "/a.slice/gone.scope"}
	c.learn()
	assert.Equal(t, "/a.slice/gone.scope", c.path(4711))
	assert.Zero(t, m.walks, "nothing was unknown")
}

func TestCgroupsAreWalkedForUnknownIdsOnlyAndNotTooOften(t *testing.T) {
	m, c := newMadeUpCgroups(t)
	id := m.mkdir("a")
	now := time.Now()
	c.now = func() time.Time { m.walks++; return now }
	assert.Empty(t, c.path(1<<60))
	walked := m.walks
	require.NotZero(t, walked)
	assert.Equal(t, "/a", c.path(id))
	assert.Empty(t, c.path(1<<60))
	assert.Equal(t, walked, m.walks, "one is known and the other known to be gone")
	late := m.mkdir("late")
	assert.Empty(t, c.path(late), "too soon")
	now = now.Add(walkEvery)
	assert.Equal(t, "/late", c.path(late))

	now = now.Add(walkEvery)
	c.now = func() time.Time { now = now.Add(time.Second); return now } // a walk takes a second
	assert.Empty(t, c.path(1<<61))
	last := m.mkdir("last")
	now = now.Add((walkShare - 2) * time.Second)
	assert.Empty(t, c.path(last), "walks take a hundredth of the time at most")
	now = now.Add(2 * time.Second)
	assert.Equal(t, "/last", c.path(last))
}

func TestPathsOfCgroupsAreForgottenWhenThereAreTooMany(t *testing.T) {
	_, c := newMadeUpCgroups(t)
	c.room = 100
	c.remember(1, "/used")
	for id := range uint64(10_000) {
		c.remember(1000+id, "/x")
		path, ok := c.known(1)
		require.True(t, ok)
		require.Equal(t, "/used", path)
	}
	assert.LessOrEqual(t, len(c.recent)+len(c.older), 200)
	_, ok := c.known(1000)
	assert.False(t, ok)
}

func TestAWalkForgetsNoneOfItsCgroupsHoweverMany(t *testing.T) {
	m, c := newMadeUpCgroups(t)
	var ids []uint64
	for i := range 50 {
		ids = append(ids, m.mkdir(fmt.Sprint(i)))
	}
	c.room = 10
	require.NoError(t, c.walk())
	for i, id := range ids {
		path, _ := c.known(id)
		assert.Equal(t, fmt.Sprint("/", i), path)
	}
}

func TestTimeOfACgroupThatNoRowIsInIsItsOwn(t *testing.T) {
	k, b, table := fakeBPF(t)
	m, c := newMadeUpCgroups(t)
	b.cgroups = c
	start := uint64(k.now) + 1
	m.told = map[uint64]string{4711: "/a", 4712: "/b"}
	k.ends = []tasks.Ended{
		{Pid: 30, Start: start, Run: 11, Cgroup: 4711},
		{Pid: 31, Start: start, Run: 13, Cgroup: 4711},
		{Pid: 32, Start: start, Run: 17, Cgroup: 4712},
		{Pid: 33, Start: start, Run: 19, Cgroup: 1 << 60}, // of which nothing is known
		{Pid: 34, Start: start, Run: 23, Cgroup: 7},       // where a row is
	}
	require.NoError(t, b.ReadProcesses(table))
	assert.ElementsMatch(t, []CgroupTime{{"/a", 24}, {"/b", 17}}, table.UnseenIn)
	assert.EqualValues(t, 24+17+19, table.Unseen)
	require.NoError(t, b.ReadProcesses(table))
	assert.Empty(t, table.UnseenIn, "once")
}

func TestTheKernelTellsThePathOfACgroupThatLivedBetweenTwoPasses(t *testing.T) {
	used := passAroundCgroup(t, openHere(t), "short.scope", true)
	assert.Greater(t, used.Used, units.CPUTime(time.Millisecond))
}

func TestTheWalkFindsACgroupThatTheKernelDidNotTellOf(t *testing.T) {
	refuse(t, &openCreations, errors.New("refused"))
	used := passAroundCgroup(t, openHere(t), "left.scope", false)
	assert.Greater(t, used.Used, units.CPUTime(time.Millisecond))
}

// passAroundCgroup makes a cgroup, has a process live in it, removes it if it is told to, and returns what the
// source then says of it.
func passAroundCgroup(t *testing.T, source *BPF, name string, remove bool) CgroupTime {
	path := fmt.Sprintf("/energy-test-%d.slice/%s", os.Getpid(), name)
	mount, above, err := unifiedMount("/")
	if err != nil || above != "/" {
		t.Skipf("needs the root of a v2 hierarchy: is %q, %v", above, err)
	}
	table := &Table{}
	require.NoError(t, source.ReadProcesses(table))
	dir := filepath.Join(mount, path)
	if err := os.Mkdir(filepath.Dir(dir), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		t.Skip("cannot make a cgroup:", err)
	}
	t.Cleanup(func() { _ = os.Remove(dir); _ = os.Remove(filepath.Dir(dir)) })
	// A kernel may miss calls of a tracepoint just after another program left it (seen with Linux 6.18).
	for range 20 {
		burnIn(t, dir)
		if remove {
			require.NoError(t, os.Remove(dir))
		}
		for passes := 0; passes < 400; passes++ { // it tells of an end an RCU grace period later
			require.NoError(t, source.ReadProcesses(table))
			for _, in := range table.UnseenIn {
				if in.Path == path {
					return in
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	t.Fatal("its time was never found")
	return CgroupTime{}
}

// burnIn has a process live in a cgroup, which is made where there is none.
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
