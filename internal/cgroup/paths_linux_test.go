// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeHierarchy is a version 2 hierarchy of plain directories.
type fakeHierarchy struct {
	t     *testing.T
	root  string
	walks int
}

func (m *fakeHierarchy) mkdir(path string) (id uint64) {
	m.t.Helper()
	dir := filepath.Join(m.root, "sys/fs/cgroup", path)
	require.NoError(m.t, os.MkdirAll(dir, 0o755))
	info, err := os.Stat(dir)
	require.NoError(m.t, err)
	return info.Sys().(*syscall.Stat_t).Ino
}

// newFakeHierarchy returns paths below a simulated root, with a clock that advances by an hour at
// each reading.
func newFakeHierarchy(t *testing.T) (*fakeHierarchy, *Paths) {
	m := &fakeHierarchy{t: t, root: t.TempDir()}
	require.NoError(t, os.MkdirAll(filepath.Join(m.root, "proc/1"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(m.root, "proc/1/mountinfo"),
		[]byte("24 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"), 0o644))
	m.mkdir("")
	c := NewPaths(m.root)
	now := time.Now()
	c.now = func() time.Time { m.walks++; now = now.Add(time.Hour); return now }
	return m, c
}

func TestACgroupIsKnownByItsIdAsLongAsItIsThereAndAfterwards(t *testing.T) {
	m, c := newFakeHierarchy(t)
	id := m.mkdir("a.slice/b.scope")
	assert.Equal(t, "/a.slice/b.scope", c.Path(id))
	require.NoError(t, os.RemoveAll(filepath.Join(m.root, "sys")))
	assert.Equal(t, "/a.slice/b.scope", c.Path(id))
}

func TestAReportedCgroupMayBeGone(t *testing.T) {
	m, c := newFakeHierarchy(t)
	c.Remember(4711, "/a.slice/gone.scope")
	assert.Equal(t, "/a.slice/gone.scope", c.Path(4711))
	assert.Zero(t, m.walks, "nothing was unknown")
}

func TestCgroupsAreWalkedForUnknownIdsOnlyAndNotTooOften(t *testing.T) {
	m, c := newFakeHierarchy(t)
	id := m.mkdir("a")
	now := time.Now()
	c.now = func() time.Time { m.walks++; return now }
	assert.Empty(t, c.Path(1<<60))
	walked := m.walks
	require.NotZero(t, walked)
	assert.Equal(t, "/a", c.Path(id))
	assert.Empty(t, c.Path(1<<60))
	assert.Equal(t, walked, m.walks, "one is known and the other known to be gone")
	late := m.mkdir("late")
	assert.Empty(t, c.Path(late), "too soon")
	now = now.Add(walkEvery)
	assert.Equal(t, "/late", c.Path(late))

	now = now.Add(walkEvery)
	c.now = func() time.Time { now = now.Add(time.Second); return now } // a walk takes a second
	assert.Empty(t, c.Path(1<<61))
	last := m.mkdir("last")
	now = now.Add((walkShare - 2) * time.Second)
	assert.Empty(t, c.Path(last), "walks take a hundredth of the time at most")
	now = now.Add(2 * time.Second)
	assert.Equal(t, "/last", c.Path(last))
}

func TestPathsOfCgroupsAreForgottenWhenThereAreTooMany(t *testing.T) {
	_, c := newFakeHierarchy(t)
	c.room = 100
	c.Remember(1, "/used")
	for id := range uint64(10_000) {
		c.Remember(1000+id, "/x")
		path, ok := c.known(1)
		require.True(t, ok)
		require.Equal(t, "/used", path)
	}
	assert.LessOrEqual(t, len(c.recent)+len(c.older), 200)
	_, ok := c.known(1000)
	assert.False(t, ok)
}

func TestAWalkForgetsNoneOfItsCgroupsHoweverMany(t *testing.T) {
	m, c := newFakeHierarchy(t)
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
