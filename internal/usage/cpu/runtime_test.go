// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const millisecond = units.CPUTime(time.Millisecond)

func TestRuntimeResolvesWindowsShorterThanATick(t *testing.T) {
	root := t.TempDir()
	cpus := filepath.Join(root, "sys/devices/system/cpu")
	require.NoError(t, os.MkdirAll(cpus, 0o755))
	online := filepath.Join(cpus, "online")
	r := NewRuntime(root)
	defer func() { require.NoError(t, r.Close()) }()
	table, now := &Table{}, time.Now()
	node := func(run units.CPUTime) Node {
		t.Helper()
		table.Run += run
		now = now.Add(time.Second)
		n, err := r.Node(table, now)
		require.NoError(t, err)
		return n
	}
	_, err := r.Node(table, now)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(online, []byte("0-2,5\n"), 0o644))
	assert.Zero(t, node(77*millisecond), "the baseline")
	assert.Equal(t, Node{Busy: 3 * millisecond, Process: 3 * millisecond, Total: 4 * units.Second}, node(3*millisecond))
	require.NoError(t, os.WriteFile(online, []byte("0\n"), 0o644))
	assert.Equal(t, Node{Busy: 5 * millisecond, Process: 5 * millisecond, Total: 5 * units.Second}, node(2*millisecond))
	require.NoError(t, os.WriteFile(online, []byte("?"), 0o644))
	assert.Equal(t, 6*units.Second, node(0).Total, "as many as were last known")
	assert.Equal(t, 9*units.Second, node(3*units.Second).Total, "never less than what ran")
	table.Untraced = 36_000 * units.Second // the whole life of a process whose end was lost
	before := r.node
	lost := node(0)
	assert.Equal(t, before.Total+units.Second, lost.Total)
	assert.Equal(t, before.Busy+units.Second, lost.Busy, "no more than the window has room for")
	table.Untraced = 0
	now = now.Add(-time.Hour)
	assert.Equal(t, 10*units.Second, node(0).Total, "no clock takes it back")
}

func TestStolenTimeIsNeitherBusyNorIdleInShortWindows(t *testing.T) {
	host := hostsim.New(t.TempDir())
	host.CPUs = 2
	cpus := filepath.Join(host.Root(), "sys/devices/system/cpu")
	require.NoError(t, os.MkdirAll(cpus, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(cpus, "online"), []byte("0-1\n"), 0o644))
	r := NewRuntime(host.Root())
	defer func() { require.NoError(t, r.Close()) }()
	table, now, last := &Table{}, time.Now(), Node{}
	window := func(d time.Duration, run units.CPUTime) (busy, total units.CPUTime) {
		t.Helper()
		require.NoError(t, host.Render())
		now = now.Add(d)
		table.Run += run
		n, err := r.Node(table, now)
		require.NoError(t, err)
		busy, total = n.Busy-last.Busy, n.Total-last.Total
		last = n
		return busy, total
	}
	window(0, 0)
	second := func(run, stolen int64) (busy, total units.CPUTime) {
		host.CPU.User += run
		host.CPU.Steal += stolen
		host.CPU.Idle += 200 - run - stolen
		return window(time.Second, units.CPUTime(run)*Tick)
	}
	busy, total := second(30, 50)
	assert.Equal(t, 300*millisecond, busy)
	assert.Equal(t, 1500*millisecond, total)
	for range 9 {
		host.CPU.Steal += 10 // not read within a second
		busy, total = window(100*time.Millisecond, 20*millisecond)
		assert.Equal(t, 20*millisecond, busy)
		assert.Equal(t, 150*millisecond, total, "as much is stolen as in the second before")
	}
	_, total = window(100*time.Millisecond, 190*millisecond)
	assert.Equal(t, 190*millisecond, total, "never less than what ran")
	_, total = second(0, 0)
	assert.Equal(t, 2*units.Second, total, "nothing is stolen any more")
	host.CPU.Idle = 0 // a CPU went offline with its idle time
	host.CPU.Steal -= 10
	_, total = window(time.Second, 0)
	assert.Equal(t, 2*units.Second, total)
}
