// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// resumedBPF returns a source and a table that go on from the past of others, of the same kernel.
func resumedBPF(t testing.TB, k *fakeKernel, p *Past) (*BPF, *proc.Table) {
	b := newBPF(Options{Root: t.TempDir()}, k, k)
	b.bootNow = func() time.Duration { k.now += time.Second; return k.now }
	table := &proc.Table{}
	resumeTable(table, written(t, p), true)
	return b, table
}

func TestBPFCountsSinceThePast(t *testing.T) {
	k, b, table := fakeBPF(t)
	require.NoError(t, scanAll(b, table))
	p := Past{Exact: true}
	p.Now, p.Processes = table.Now, table.AppendPast(p.Processes[:0])

	start := uint64(k.now) + 1
	k.now += time.Minute
	k.listed[0].Run += 7
	k.listed[1] = tasks.Process{Pid: 20, Start: start, Run: 30, Threads: 1} // and 10 has ended
	k.ends = []tasks.Ended{
		{Pid: 21, Start: start, Run: 11, Cgroup: 5}, // after the source was opened, and before the scan
		{Pid: 5, Start: 3, Run: 1 << 40, Cgroup: 5}, // had ended before
	}
	b, table = resumedBPF(t, k, &p)
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 7, table.Rows[0].Used)
	assert.EqualValues(t, 11, beside(table, 0))
	assert.EqualValues(t, 30, table.Rows[1].Used, "of a new one all")
	assert.EqualValues(t, 48, table.Used(nil))
	require.Len(t, table.Ended, 1)
	assert.Zero(t, table.Ended[0].LastSlice, "nothing tells it")
	assert.Equal(t, proc.Unbounded, table.Unseen.Untraced)
	assert.Zero(t, table.Unseen.LostEnds)
	assert.Empty(t, b.missing, "its end is not waited for")

	k.listed[0].Run += 5
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 5, table.Rows[0].Used)
	assert.Zero(t, table.Unseen.Untraced)
}

func TestBPFGoesOnFromTicks(t *testing.T) {
	const start = 7_654_321_000 // ns, of which /proc shows hundredths of a second
	k := &fakeKernel{now: 100 * time.Second, listed: []tasks.Process{
		{Pid: 1, Start: 1, Run: 1000, Threads: 1}, {Pid: 10, Start: start, Run: uint64(58 * time.Millisecond), Threads: 1},
	}}
	p := Past{Now: 90 * time.Second, Processes: []scan.PastProcess{
		{PID: 1, Threads: 1}, {PID: 10, Threads: 1, Start: time.Duration(start).Truncate(time.Duration(Tick)), CPU: 4 * Tick},
	}}
	b, table := resumedBPF(t, k, &p)
	require.NoError(t, scanAll(b, table))
	assert.Empty(t, table.Ended)
	assert.Equal(t, 18*ms, table.Rows[1].Used)
	assert.Equal(t, 1000*units.CPUTime(1), table.Rows[0].Used)
}

// restart resumes with another source and table. Ends that were not reported yet are never
// reported. Ends between the start of the source and its first scan are reported in time.
func (w *randomKernel) restart() {
	p := Past{Exact: true}
	p.Now, p.Processes = w.table.Now, w.table.AppendPast(p.Processes[:0])
	for range w.r.IntN(60) {
		w.act()
	}
	for _, p := range w.dead {
		w.lost += p.Run - p.shown
	}
	w.dead = nil
	w.source, w.table = newBPF(Options{Root: w.TempDir()}, w, w), proc.Table{}
	w.source.bootNow = func() time.Duration { return w.now }
	resumeTable(&w.table, written(w, &p), true)
	for range w.r.IntN(60) {
		w.act()
	}
	for _, p := range w.dead {
		p.reported = w.scan
	}
	w.read()
}

// TempDir returns a directory for a source.
func (w *randomKernel) TempDir() string { return w.TB.(*testing.T).TempDir() }
