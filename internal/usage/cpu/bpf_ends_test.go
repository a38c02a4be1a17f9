// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide/dividetest"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Processes that no scan listed, one that is listed, one that the scan before took no notice of,
// and a parent that ended.
func TestADrainBetweenScansChangesNoResult(t *testing.T) {
	run := func(t *testing.T, divided bool, drained []int) *proc.Table {
		k, b, table := fakeBPF(t)
		if divided {
			b.topology = topologyOf(t, dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"}))
		}
		require.NoError(t, scanAll(b, table))
		k.listed[0].Run += 7
		k.listed = k.listed[:1]
		start := uint64(k.now) + 1
		ends := []tasks.Ended{
			{Pid: 30, Start: start, Run: 1001, Cgroup: 5, Weights: []uint64{5, 3}},
			{Pid: 31, Start: start, Run: 13, Cgroup: rootCgroup, Parent: 32, Weights: []uint64{0, 13}},
			{Pid: 10, Start: 2, Run: 5123, Cgroup: 7, Parent: 1, Weights: []uint64{1, 2}},
			{Pid: 32, Start: start, Run: 17, Cgroup: rootCgroup, Parent: 1, Weights: []uint64{0, 0}},
			{Pid: 33, Start: start, Run: 997, Cgroup: 5, Weights: []uint64{3, 4}},
			{Pid: 34, Start: start, Run: 19, Cgroup: 4711, Weights: []uint64{19, 0}},
			{Pid: 35, Start: start, Run: 23, Cgroup: rootCgroup, Parent: 4712, Weights: []uint64{1, 22}},
			{Pid: 36, Start: uint64(time.Second), Run: 1 << 40, Cgroup: 5, Weights: []uint64{1, 0}}, // ended before the baseline
		}
		for i := range ends {
			k.ends = append(k.ends, ends[i])
			if slices.Contains(drained, i) {
				b.drainBetween()
				require.Empty(t, k.ends)
			}
		}
		require.NoError(t, scanAll(b, table))
		assert.Empty(t, b.ended)
		assert.Empty(t, b.shortLived)
		return table
	}
	for name, divided := range map[string]bool{"one domain": false, "two domains": true} {
		t.Run(name, func(t *testing.T) {
			want := run(t, divided, nil)
			require.EqualValues(t, 7+1001+13+123+17+997+19+23, want.Run)
			for name, drained := range map[string][]int{"each": {0, 1, 2, 3, 4, 5, 6, 7}, "once": {4}, "last": {7}} {
				got := run(t, divided, drained)
				assert.Equal(t, want.Processes[0].ShortLived, got.Processes[0].ShortLived, name)
				assert.Equal(t, slices.Clone(want.ShortLivedParts(&want.Processes[0])), got.ShortLivedParts(&got.Processes[0]), name)
				assert.Equal(t, slices.Clone(want.UnplacedParts()), got.UnplacedParts(), name)
				assert.Equal(t, want.Ended[0].LastSlice, got.Ended[0].LastSlice, name)
				assert.Equal(t, slices.Clone(want.LastSliceParts(&want.Ended[0])), got.LastSliceParts(&got.Ended[0]), name)
				assert.Equal(t, want.Run, got.Run, name)
				assert.Equal(t, want.ShortLived, got.ShortLived, name)
			}
		})
	}
}

func TestAProcessThatIsListedLateIsDrainedAsItself(t *testing.T) {
	k, b, table := fakeBPF(t)
	k.listed = append(k.listed, tasks.Process{Pid: 20, Start: uint64(k.now) + 5, Run: 30, Cgroup: 5, Threads: 1})
	require.NoError(t, scanAll(b, table))
	k.listed = k.listed[:2]
	k.ends = []tasks.Ended{{Pid: 20, Start: uint64(table.Rows[2].Start), Run: 42, Cgroup: 5}}
	b.drainBetween()
	require.NoError(t, scanAll(b, table))
	require.Len(t, table.Ended, 1)
	assert.EqualValues(t, 12, table.Ended[0].LastSlice)
}

func TestNothingIsDrainedBeforeTheFirstScan(t *testing.T) {
	k := &fakeKernel{now: 100 * time.Second, ends: []tasks.Ended{{Pid: 20, Start: 5, Run: 1000, Cgroup: 5}}}
	b := newBPF(Options{Root: t.TempDir()}, k, k)
	b.drainBetween()
	assert.Len(t, k.ends, 1)
}

func TestWhatIsLostBetweenScansIsInTheNext(t *testing.T) {
	k, b, table := fakeBPF(t)
	k.count, k.lost = 2, 30
	b.drainBetween()
	k.count, k.lost = 1, 4
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 3, table.Unseen.LostEnds)
	assert.EqualValues(t, 34, table.Unseen.Untraced)
	require.NoError(t, scanAll(b, table))
	assert.Zero(t, table.Unseen.LostEnds)
}

func TestEndsThatLackTimesOfThreadsAreLostEnds(t *testing.T) {
	k, b, table := fakeBPF(t)
	k.incomplete = 2
	b.drainBetween()
	k.incomplete = 1
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 3, table.Unseen.LostEnds)
	assert.Zero(t, table.Unseen.Untraced, "the time was missing in earlier scans")
	require.NoError(t, scanAll(b, table))
	assert.Zero(t, table.Unseen.LostEnds)
}

// A million processes of ever new parents and cgroups take no more memory than a few.
func TestAStormTakesBoundedMemory(t *testing.T) {
	for name, cgroup := range map[string]func(i uint64) uint64{
		"one cgroup":   func(uint64) uint64 { return 5 },
		"many cgroups": func(i uint64) uint64 { return 1000 + i },
		"many parents": func(uint64) uint64 { return rootCgroup },
	} {
		t.Run(name, func(t *testing.T) {
			k, b, table := fakeBPF(t)
			b.names = true
			const batches, batch = 20, 10_000
			start := uint64(k.now)
			for i := range uint64(batches * batch) {
				start++
				pid := uint32(100 + i)
				k.ends = append(k.ends, tasks.Ended{Pid: pid, Start: start, Run: 2, Cgroup: cgroup(i), Parent: pid - 1})
				if len(k.ends) == batch {
					b.drainBetween()
				}
			}
			assert.LessOrEqual(t, len(b.shortLived), maxOrigins)
			assert.LessOrEqual(t, b.named, maxNamed)
			assert.LessOrEqual(t, len(b.forks), maxForks)
			assert.Empty(t, b.ended)
			require.NoError(t, scanAll(b, table))
			assert.EqualValues(t, 2*batches*batch, table.Used(nil))
			assert.Zero(t, table.Unseen.Untraced)
			require.NoError(t, scanAll(b, table))
			assert.EqualValues(t, 2*batches*batch, table.Used(nil), "once")
			assert.LessOrEqual(t, len(b.homes), maxOrigins+1)
		})
	}
}

// Children end faster than a small buffer has room for between two scans.
func TestNoEndIsLostInAForkStorm(t *testing.T) {
	bothLists(t, func(t *testing.T) {
		opened := openEndings
		openEndings = func(o tasks.Options) (endings, error) { return orNil[endings](tasks.OpenEndings(32<<10, o)) }
		t.Cleanup(func() { openEndings = opened })
		unlessMissed(t, func(t *testing.T) string {
			group, other := newCgroup(t), newCgroup(t)
			anchor := startBurner(t, group, "say", "wait")
			anchor.said()
			o := observe(t)
			neighbor := startBurner(t, other, "burn:20", "say", "wait", "burn:30")
			neighbor.said()
			o.scan()
			storm := startBurner(t, group, "fork:3000:50") // a buffer has room for 819
			last := neighbor.end()
			used := storm.end()
			found := o.soon(func() bool { return float64(o.inside[group.id]) >= 0.99*float64(used) })
			require.Less(t, float64(o.inside[group.id]), 1.01*float64(used))
			anchor.end()
			if !found || o.lost > 0 {
				return time.Duration(o.inside[group.id]).String()
			}
			assert.InDelta(t, float64(last), float64(o.inside[other.id]), float64(2*ms))
			return ""
		})
	})
}

func TestASourceIsClosedDuringAForkStorm(t *testing.T) {
	openHere(t)
	startBurner(t, nil, "fork:10000000:50") // longer than the test, which ends it
	for range 5 {
		ends, err := tasks.OpenEndings(4096, tasks.Options{})
		require.NoError(t, err)
		b := newBPF(Options{Root: t.TempDir()}, nil, ends)
		b.newest = 1
		require.NoError(t, b.watch())
		drained := func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.shortLived)+len(b.ended) > 0
		}
		for !drained() {
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, ends.Close())
		b.shortLived = nil // the race detector would see a drain that still runs
	}
}
