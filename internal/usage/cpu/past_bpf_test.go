// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

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
	b := k.source(t, Options{})
	table = proc.New(b.Traits().Traits)
	table.Resume(past, before, true)
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 7, table.Find(1).Used)
	assert.EqualValues(t, 11, charged(table, table.Find(1).Slot))
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
