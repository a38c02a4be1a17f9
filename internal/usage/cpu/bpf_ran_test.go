// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// hookedBPF returns fakeBPF's source with a hook that lists ran.
func hookedBPF(t *testing.T) (*fakeKernel, *fakeVisitor, *BPF, *proc.Table) {
	t.Helper()
	k, b, table := fakeBPF(t)
	v := &fakeVisitor{}
	b.hook.visitor, b.hook.based, b.hook.most = v, true, 10
	return k, v, b, table
}

type fakeVisitor struct {
	ran    []tasks.Process
	slices []tasks.Slice
	err    error
	visits int
	closed bool
}

func (v *fakeVisitor) Visit(int) (tasks.Listing, int, error) {
	v.visits++
	return tasks.Listing{Processes: v.ran, Slices: v.slices}, len(v.ran), v.err
}

func (v *fakeVisitor) Close() error {
	v.closed = true
	return nil
}

func TestMoreThanPaysAreFoundByAScanOfAll(t *testing.T) {
	k, v, b, table := hookedBPF(t)
	v.ran = make([]tasks.Process, 11)
	k.listed[1].Run += 9
	require.NoError(t, scanRan(b, table))
	assert.EqualValues(t, 9, table.Find(10).Used)
	assert.Equal(t, 1, v.visits)
}

func TestAProcessThatOnlyAVisitSawAgainIsMissedAgain(t *testing.T) {
	k, v, b, table := hookedBPF(t)
	process := k.listed[1]
	k.listed = k.listed[:1]
	require.NoError(t, scanAll(b, table)) // exec was making another thread its first
	v.ran = []tasks.Process{process}
	require.NoError(t, scanRan(b, table))
	require.False(t, table.Find(10).Is(proc.Zombie))
	for range 62 { // its end is not reported
		require.NoError(t, scanAll(b, table))
	}
	assert.Nil(t, table.Find(10))
}

func TestWithoutItsHookTheSourceGoesOn(t *testing.T) {
	k, v, b, table := hookedBPF(t)
	v.err = errors.New("refused")
	k.listed[1].Run += 9
	require.NoError(t, scanRan(b, table))
	assert.EqualValues(t, 9, table.Find(10).Used)
	assert.True(t, v.closed)
	assert.ErrorIs(t, b.Traits().Lacks, v.err)
	k.listed[1].Run += 4
	require.NoError(t, scanRan(b, table))
	assert.EqualValues(t, 4, table.Find(10).Used)
	assert.Equal(t, 1, v.visits)
}

// node is a machine on which a hook can be attached.
type node struct {
	testing.TB
	source   *BPF
	table    proc.Table
	kernel   *fakeKernel
	visitor  *fakeVisitor
	now      time.Duration
	switches uint64
	opened   int
	openErr  error
}

func newNode(t *testing.T, tasksThere int) *node {
	n := &node{TB: t, now: time.Hour, visitor: &fakeVisitor{}, kernel: &fakeKernel{same: true}}
	for i := range 3 { // the number of tasks decides, not the length of the list
		n.kernel.listed = append(n.kernel.listed, tasks.Process{Pid: uint32(1 + i), Start: uint64(1 + i), Threads: 1})
	}
	root := t.TempDir()
	hasTasks(t, root, tasksThere)
	n.source = newBPF(Options{Root: root}, n.kernel, n.kernel)
	n.source.bootNow = func() time.Duration { return n.now }
	n.source.hook.open = func() (visitor, error) {
		n.opened++
		n.visitor.closed = false
		return n.visitor, n.openErr
	}
	return n
}

// run scans for a while, with collections a second apart.
func (n *node) run(d, window time.Duration, switchesPerSecond uint64) {
	n.Helper()
	for until := n.now + d; n.now < until; n.now += window {
		all := n.now%time.Second == 0
		if all {
			n.switches += switchesPerSecond
			stat := fmt.Appendf(nil, "cpu  1 2 3\nintr %0*d\nctxt %d\nbtime 5\n", 5000, 1, n.switches)
			require.NoError(n, os.WriteFile(filepath.Join(n.source.proc.Path(), "stat"), stat, 0o600))
		}
		require.NoError(n, scanFor(n.source, &n.table, Request{Want: Want{All: all}}))
		if c := n.source.hook.opening; c != nil { // as if it had taken no time
			n.source.hook.opening = make(chan opened, 1)
			n.source.hook.opening <- <-c
		}
	}
}

func TestTheHookIsAttachedWhileItPays(t *testing.T) {
	n := newNode(t, 10_000)
	n.run(20*time.Second, time.Second, 5000)
	require.Zero(t, n.opened, "without windows")
	n.run(10*time.Second, 10*time.Millisecond, 5000)
	require.Equal(t, 1, n.opened)
	visits := n.visitor.visits
	assert.Greater(t, visits, 600)
	n.run(70*time.Second, 10*time.Millisecond, 5000)
	assert.Equal(t, 70*99, n.visitor.visits-visits, "all scans but those that end a collection")
	n.run(10*time.Second, 10*time.Millisecond, 5e6)
	assert.True(t, n.visitor.closed, "too many switches")
	n.run(20*time.Second, 10*time.Millisecond, 5000)
	require.Equal(t, 1, n.opened, "not within the minute")
	n.run(60*time.Second, 10*time.Millisecond, 5000)
	require.Equal(t, 2, n.opened)
	n.run(70*time.Second, time.Second, 5000)
	assert.True(t, n.visitor.closed, "without windows")
	require.NoError(t, n.source.Close())
}

func TestTheHookDoesNotComeAndGo(t *testing.T) {
	n := newNode(t, 1000)
	for range 60 { // about what it costs and saves
		n.run(2*time.Second, 20*time.Millisecond, 30_000)
		n.run(2*time.Second, 20*time.Millisecond, 20_000)
	}
	assert.LessOrEqual(t, n.opened, 1)
	require.NoError(t, n.source.Close())
}

func TestAFewProcessesAreScannedWithoutAHook(t *testing.T) {
	n := newNode(t, 150)
	n.run(20*time.Second, 10*time.Millisecond, 1000)
	assert.Zero(t, n.opened)
}

func TestAHookThatIsRefusedIsNotTriedAgain(t *testing.T) {
	n := newNode(t, 10_000)
	n.openErr = errors.New("no such kernel function")
	failing := n.source.hook.open
	n.source.hook.open = func() (visitor, error) {
		_, err := failing()
		return nil, err
	}
	n.run(200*time.Second, 50*time.Millisecond, 5000)
	assert.Equal(t, 1, n.opened)
	assert.ErrorIs(t, n.source.Traits().Lacks, n.openErr)
	require.NoError(t, n.source.Close())
}

func TestAHookThatIsBeingAttachedIsClosedWithTheSource(t *testing.T) {
	n := newNode(t, 10_000)
	attached := make(chan struct{})
	open := n.source.hook.open
	n.source.hook.open = func() (visitor, error) {
		<-attached
		return open()
	}
	n.source.hook.attach()
	for range 3 {
		n.now += time.Second
		require.NoError(t, scanAll(n.source, &n.table), "without waiting")
	}
	close(attached)
	require.NoError(t, n.source.Close())
	assert.True(t, n.visitor.closed)
}

func TestAPartialScanAllocatesNothing(t *testing.T) {
	k, v, b, table := hookedBPF(t)
	for i := range 1000 {
		k.listed = append(k.listed, tasks.Process{Pid: uint32(100 + i), Start: uint64(100 + i), Run: uint64(i), Threads: 1})
	}
	require.NoError(t, scanAll(b, table))
	v.ran = slices.Clone(k.listed[100:110])
	v.ran[3].Slice, v.slices = 2, []tasks.Slice{{}, {Cpu: 4, Run: 3}, {Cpu: 7, Run: 2, Next: 1}}
	rescan := func() {
		for i := range v.ran {
			v.ran[i].Run += 5
		}
		require.NoError(t, scanRan(b, table))
		if p := &table.Rows[table.Active[3]]; len(table.Splits.Slices(p.Split, p.Used, p.LastCPU)) != 2 {
			t.Error("it has two slices")
		}
	}
	rescan()
	assert.Zero(t, testing.AllocsPerRun(50, rescan))
	assert.Len(t, table.Active, 10)
}
