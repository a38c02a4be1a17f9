// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// newGuarded returns a node whose hierarchies are guarded as cgroup file systems are. A FIFO blocks
// whoever opens it.
func newGuarded(t *testing.T) *node {
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	n := newNode(t)
	n.lookups = newLookups(kernfs.GuardOptions[*finder]{Haste: 2 * time.Second})
	n.set(0, "/")
	all, err := n.mounts.hierarchies()
	require.NoError(t, err)
	for i := range all {
		require.False(t, all[i].guarded, "it is a copy")
		all[i].guarded = true
	}
	return n
}

// block replaces a file of a cgroup by a FIFO until unblock is called.
func (n *node) block(elem ...string) (unblock func()) {
	path := filepath.Join(append([]string{n.Root(), v2}, elem...)...)
	require.NoError(n, os.Rename(path, path+"-before"))
	require.NoError(n, unix.Mkfifo(path, 0o644))
	return func() {
		fifo, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
		require.NoError(n, err)
		_, err = fifo.WriteString("\n")
		require.NoError(n, err)
		n.begin(2 * time.Second)
		require.Eventually(n, func() bool { return n.lookups.guard.Err("") == nil }, time.Minute, time.Millisecond)
		require.NoError(n, fifo.Close())
		require.NoError(n, os.Rename(path+"-before", path))
	}
}

// begin begins a scan after some time.
func (n *node) begin(after time.Duration) { n.lookups.guard.Begin(time.Now().Add(after)) }

func TestABlockedCounterDoesNotStopTheOthers(t *testing.T) {
	n := newGuarded(t)
	a, b := n.tracked("/a"), n.tracked("/b")
	n.release(&a.cpuFrom)
	unblock := n.block("a", "cpu.stat")
	n.write("usage_usec 2000000\n", v2, "b", "cpu.stat")
	n.begin(0)
	began := time.Now()
	n.ReadCPUTime()
	assert.False(t, a.cpu.current)
	assert.True(t, n.exists(a), "it is not gone")
	assert.True(t, b.cpu.current)
	b.Account(0, 0)
	assert.Equal(t, 2000*ms-2*units.Tick, n.shortLived(b))
	assert.NoError(t, n.Unread(), "it may end soon")
	n.begin(2 * time.Second)
	assert.EqualError(t, n.Unread(), "counters of some cgroups are not read, because a user blocks lookups in their directories")
	n.ReadCPUTime()
	assert.Less(t, time.Since(began), 30*time.Second)
	unblock()
	n.begin(2 * time.Minute)
	n.count("/a", 3000*ms)
	assert.True(t, a.cpu.current)
	assert.NoError(t, n.Unread())
}

func TestBlockedRequestsAndPlacesAreNotKnown(t *testing.T) {
	n := newGuarded(t)
	n.set(0, "/a")
	n.write("200\n", v2, "a", "cpu.weight")
	a := n.Enter("/a", true)
	unblock := n.block("a", "cpu.weight")
	assert.Zero(t, n.Request(a, time.Unix(1000, 0)))
	unblock()
	n.begin(2 * time.Minute)
	assert.NotZero(t, n.Request(a, time.Unix(1000, 0).Add(RereadRequest)))
	assert.True(t, n.exists(a))
	assert.False(t, n.exists(n.Node("/none")))
}
