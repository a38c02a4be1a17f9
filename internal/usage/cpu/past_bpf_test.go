// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// resumedBPF returns a source and a table that continue from the past of others, of the same kernel.
func resumedBPF(t testing.TB, k *fakeKernel, now time.Duration, past []proc.Past, exact bool) (*BPF, *proc.Table) {
	b := k.source(t, Options{})
	table := proc.New(b.Traits().Traits)
	table.Resume(past, now, exact)
	return b, table
}

func TestBPFCountsSinceThePast(t *testing.T) {
	k, _, table := fakeBPF(t)
	before, past := table.Now, table.AppendPast(nil)

	start := uint64(k.now) + 1
	k.now += time.Minute
	k.listed[0].Run += 7
	k.listed[1] = tasks.Process{Pid: 20, Start: start, Run: 30, Threads: 1} // and 10 has ended
	k.ends = []tasks.Ended{
		{Pid: 21, Start: start, Run: 11, Cgroup: 5}, // after the source was opened, and before the scan
		{Pid: 5, Start: 3, Run: 1 << 40, Cgroup: 5}, // had ended before
	}
	b, table := resumedBPF(t, k, before, past, true)
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 7, table.Find(1).Used)
	assert.EqualValues(t, 11, beside(table, table.Find(1).Slot))
	assert.EqualValues(t, 30, table.Find(20).Used, "of a new one all")
	assert.EqualValues(t, 48, table.Used(nil))
	require.Len(t, table.Ended, 1)
	assert.Zero(t, table.Ended[0].LastSlice, "nothing reports it")
	assert.Equal(t, proc.Unseen{Untraced: proc.Unbounded}, table.Unseen)
	assert.Zero(t, table.Awaited(), "its end is not waited for")

	k.listed[0].Run += 5
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 5, table.Find(1).Used)
	assert.Zero(t, table.Unseen.Untraced)
}

func TestBPFGoesOnFromTicks(t *testing.T) {
	const start = 7_654_321_000 // ns, of which /proc shows hundredths of a second
	k := &fakeKernel{now: 100 * time.Second, listed: []tasks.Process{
		{Pid: 1, Start: 1, Run: 1000, Threads: 1}, {Pid: 10, Start: start, Run: uint64(58 * time.Millisecond), Threads: 1},
	}}
	b, table := resumedBPF(t, k, 90*time.Second, []proc.Past{
		{PID: 1, Threads: 1}, {PID: 10, Threads: 1, Start: time.Duration(start).Truncate(time.Duration(Tick)), CPU: 4 * Tick},
	}, false)
	require.NoError(t, scanAll(b, table))
	assert.Empty(t, table.Ended)
	assert.Equal(t, 18*ms, table.Find(10).Used)
	assert.Equal(t, units.CPUTime(1000), table.Find(1).Used)
}
