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

// walked is a simulated host and the paths of its cgroups, with a clock that advances by an hour at
// each reading.
type walked struct {
	*node
	*Paths
	clocks int // readings of the clock: two a walk
}

func newWalked(t *testing.T) *walked {
	n := newNode(t)
	w := &walked{node: n, Paths: NewPaths(n.Root())}
	w.make("/")
	now := time.Now()
	w.now = func() time.Time { w.clocks++; now = now.Add(time.Hour); return now }
	return w
}

// make makes a cgroup and returns its id.
func (w *walked) make(path string) (id uint64) {
	w.set(0, path)
	info, err := os.Stat(filepath.Join(w.Root(), v2, path))
	require.NoError(w, err)
	return info.Sys().(*syscall.Stat_t).Ino
}

func TestCgroupsAreWalkedForUnknownIdsOnlyAndNotTooOften(t *testing.T) {
	w := newWalked(t)
	id := w.make("/a")
	now := time.Now()
	w.now = func() time.Time { w.clocks++; return now }
	assert.Empty(t, w.Path(1<<60))
	walked := w.clocks
	require.NotZero(t, walked)
	assert.Equal(t, "/a", w.Path(id))
	assert.Empty(t, w.Path(1<<60))
	assert.Equal(t, walked, w.clocks, "one is known and the other known to be gone")
	late := w.make("/late")
	assert.Empty(t, w.Path(late), "too soon")
	now = now.Add(walkEvery)
	assert.Equal(t, "/late", w.Path(late))

	now = now.Add(walkEvery)
	w.now = func() time.Time { now = now.Add(time.Second); return now } // a walk takes a second
	assert.Empty(t, w.Path(1<<61))
	last := w.make("/last")
	now = now.Add((walkShare - 2) * time.Second)
	assert.Empty(t, w.Path(last), "walks take a hundredth of the time at most")
	now = now.Add(2 * time.Second)
	assert.Equal(t, "/last", w.Path(last))
}

func TestPathsOfCgroupsAreForgottenWhenThereAreTooMany(t *testing.T) {
	w := newWalked(t)
	w.room = 100
	w.Remember(1, "/used")
	for id := range uint64(10_000) {
		w.Remember(1000+id, "/x")
		path, ok := w.known(1)
		require.True(t, ok)
		require.Equal(t, "/used", path)
	}
	assert.LessOrEqual(t, len(w.recent)+len(w.older), 200)
	_, ok := w.known(1000)
	assert.False(t, ok)
}

func TestAWalkForgetsNoneOfItsCgroupsHoweverMany(t *testing.T) {
	w := newWalked(t)
	var ids []uint64
	for i := range 50 {
		ids = append(ids, w.make(fmt.Sprint("/", i)))
	}
	w.room = 10
	require.True(t, w.walk())
	for i, id := range ids {
		path, _ := w.known(id)
		assert.Equal(t, fmt.Sprint("/", i), path)
	}
}
