// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// byDomain returns the CPU time of ended processes, by domain: the last slices of rows by slot, and
// the charges of processes that had no row.
func byDomain(t *proc.Table) map[proc.Slot][2]units.CPUTime {
	sums := map[proc.Slot][2]units.CPUTime{}
	add := func(slot proc.Slot, parts []units.CPUTime) {
		sum := sums[slot]
		sums[slot] = [2]units.CPUTime{sum[0] + parts[0], sum[1] + parts[1]}
	}
	for i := range t.Charges {
		add(t.Charges[i].Slot, t.ChargeParts(&t.Charges[i]))
	}
	for i := range t.Ended {
		e := &t.Ended[i]
		add(e.Slot, t.Splits.Parts(e.Split, e.LastSlice, e.LastCPU))
	}
	return sums
}

// Processes that no scan listed are charged to their cgroup, or in the root cgroup to their nearest
// ancestor. One is listed, one ended before the first scan, and three are parents in a circle.
func TestADrainBetweenScansChangesNoResult(t *testing.T) {
	for name, drained := range map[string][]int{"none": nil, "each": {0, 1, 2, 3, 4, 5, 6, 7}, "once": {4}, "last": {7}} {
		t.Run(name, func(t *testing.T) {
			k, b, table := dividedBPF(t, Options{})
			k.listed[0].Run += 7
			k.listed = k.listed[:1]
			start := uint64(k.now) + 1
			for i := range uint32(3) {
				k.ends = append(k.ends, tasks.Ended{
					Pid: 40 + i, Start: start, Run: 1, Cgroup: rootCgroup, Parent: 40 + (i+1)%3, Weights: []uint64{1, 0},
				})
			}
			for i, e := range []tasks.Ended{
				{Pid: 30, Start: start, Run: 1001, Cgroup: 5, Weights: []uint64{5, 3}},
				{Pid: 31, Start: start, Run: 13, Cgroup: rootCgroup, Parent: 32, Weights: []uint64{0, 13}},
				{Pid: 10, Start: 2, Run: 5123, Cgroup: 7, Parent: 1, Weights: []uint64{1, 2}},
				{Pid: 32, Start: start, Run: 17, Cgroup: rootCgroup, Parent: 1, Weights: []uint64{0, 0}},
				{Pid: 33, Start: start, Run: 997, Cgroup: 5, Weights: []uint64{3, 4}},
				{Pid: 34, Start: start, Run: 19, Cgroup: 4711, Weights: []uint64{19, 0}},
				{Pid: 35, Start: start, Run: 23, Cgroup: rootCgroup, Parent: 4712, Weights: []uint64{1, 22}},
				{Pid: 36, Start: uint64(time.Second), Run: 1 << 40, Cgroup: 5}, // before the baseline, and before the programs knew the domains
			} {
				k.ends = append(k.ends, e)
				if slices.Contains(drained, i) {
					b.ends.drainBetween()
					require.Empty(t, k.ends)
				}
			}
			require.NoError(t, scanAll(b, table))
			assert.EqualValues(t, 3+7+1001+13+123+17+997+19+23, table.Used(nil))
			assert.Equal(t, map[proc.Slot][2]units.CPUTime{
				0: {625 + 17 + 427, 376 + 13 + 570}, table.Ended[0].Slot: {40, 83}, -1: {3 + 19 + 1, 22},
			}, byDomain(table))
			assert.Empty(t, b.ends.ended)
			assert.Empty(t, b.ends.short.sums)
			require.NoError(t, scanAll(b, table))
			assert.Zero(t, table.Used(nil), "once")
		})
	}
}

func TestAProcessThatIsListedLateIsDrainedAsItself(t *testing.T) {
	k, b, table := fakeBPF(t)
	start := uint64(k.now) + uint64(time.Minute)
	k.listed = append(k.listed, tasks.Process{Pid: 20, Start: start, Run: 30, Cgroup: 5, Threads: 1})
	require.NoError(t, scanAll(b, table))
	k.listed = k.listed[:2]
	k.ends = []tasks.Ended{{Pid: 20, Start: start, Run: 42, Cgroup: 5}}
	b.ends.drainBetween()
	require.NoError(t, scanAll(b, table))
	require.Len(t, table.Ended, 1)
	assert.EqualValues(t, 12, table.Ended[0].LastSlice)
}

func TestNothingIsDrainedBeforeTheFirstScan(t *testing.T) {
	k := &fakeKernel{now: 100 * time.Second, ends: []tasks.Ended{{Pid: 20, Start: 5, Run: 1000, Cgroup: 5}}}
	k.source(t, Options{}).ends.drainBetween()
	assert.Len(t, k.ends, 1)
}

func TestWhatIsLostBetweenScansIsInTheNext(t *testing.T) {
	k, b, table := fakeBPF(t)
	k.lost = tasks.Lost{Count: 2, Run: 30, Incomplete: 5}
	b.ends.drainBetween()
	k.lost = tasks.Lost{Count: 1, Run: 4, Incomplete: 10}
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 2+1+5+10, table.Unseen.LostExits)
	assert.EqualValues(t, 34, table.Unseen.Untraced, "what incomplete ends lack was missing in earlier scans")
	require.NoError(t, scanAll(b, table))
	assert.Zero(t, table.Unseen)
}

// 200,000 processes of ever new parents and cgroups take no more memory than a few.
func TestAStormTakesBoundedMemory(t *testing.T) {
	for name, cgroup := range map[string]func(i uint64) uint64{
		"one cgroup":   func(uint64) uint64 { return 5 },
		"many cgroups": func(i uint64) uint64 { return 1000 + i },
		"many parents": func(uint64) uint64 { return rootCgroup },
	} {
		t.Run(name, func(t *testing.T) {
			k, b, table := dividedBPF(t, Options{Names: true})
			const batches, batch = 20, 10_000
			start := uint64(k.now)
			for i := range uint64(batches * batch) {
				start++
				pid := uint32(100 + i)
				k.ends = append(k.ends, tasks.Ended{
					Pid: pid, Start: start, Run: 2, Cgroup: cgroup(i), Parent: pid - 1, Weights: []uint64{1, 1},
				})
				if len(k.ends) == batch {
					b.ends.drainBetween()
				}
			}
			assert.LessOrEqual(t, len(b.ends.short.sums), maxOrigins)
			assert.LessOrEqual(t, b.ends.short.named, maxNamed)
			assert.LessOrEqual(t, len(b.ends.forks), maxForks)
			assert.Empty(t, b.ends.ended)
			require.NoError(t, scanAll(b, table))
			assert.EqualValues(t, 2*batches*batch, table.Used(nil))
			assert.Zero(t, table.Unseen.Untraced)
			assert.LessOrEqual(t, len(table.Charges), maxOrigins+1)
			require.NoError(t, scanAll(b, table))
			assert.Zero(t, table.Used(nil), "once")
			assert.Empty(t, b.ends.short.sums)
			assert.Empty(t, b.ends.forks)
		})
	}
}

// Children end faster than a small buffer has room for between two scans.
func TestNoEndIsLostInAForkStorm(t *testing.T) {
	bothLists(t, func(t *testing.T) {
		replace(t, &openEndings, func(o tasks.Options) (endings, error) {
			return orNil[endings](tasks.OpenEndings(32<<10, o))
		})
		unlessMissed(t, func(t *testing.T) string {
			group, anchor := newCgroupWithARow(t)
			other := newCgroup(t)
			o := observe(t)
			neighbor := startBurner(t, other, "burn:20", "say", "wait", "burn:30")
			neighbor.said()
			o.scan()
			before := group.used()
			storm := startBurner(t, group, "fork:3000:50") // a buffer has room for 819
			last := neighbor.end()
			storm.end()
			// What wait4 returns lacks the last microseconds of each process.
			used := float64(group.used() - before)
			found := o.soon(func() bool { return float64(o.inside[group.id]) >= 0.99*used })
			require.Less(t, float64(o.inside[group.id]), 1.01*used)
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
		hook, err := tasks.OpenEndings(4096, tasks.Options{})
		require.NoError(t, err)
		e := &newBPF(Options{Root: t.TempDir()}, nil, hook).ends
		e.newest = 1
		require.NoError(t, hook.Watch(e.drainBetween))
		drained := func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.short.sums)+len(e.ended) > 0
		}
		for !drained() {
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, hook.Close())
		e.short.sums = nil // the race detector would see a drain that still runs
	}
}
