// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// insert adds a process to the table as if the last scan had shown it.
func (t *Table) insert(p Process) {
	p.Slot = t.slots
	t.slots++
	t.Processes = append(t.Processes, p)
	t.sort(byPID)
}

// unlisted returns a thread of this process, which /proc does not list but shows by its number, and its content.
func unlisted(t *testing.T, source *Procfs) Process {
	t.Helper()
	tid, stop := make(chan int), make(chan struct{})
	t.Cleanup(func() { close(stop) })
	thread := func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		tid <- unix.Gettid()
		<-stop
	}
	go thread()
	own := <-tid
	if own == os.Getpid() { // the process's first thread, which is now in use: the next one is another thread
		go thread()
		own = <-tid
	}
	var p Process
	require.NoError(t, source.readProcess(int32(own), &p, true))
	return p
}

func TestProcessThatTheListingLacksIsFoundByItsNumber(t *testing.T) {
	source := realProc(t)
	lacking := unlisted(t, source)
	var table Table
	require.NoError(t, source.ReadProcesses(&table))
	require.Nil(t, find(table.Processes, lacking.PID))
	table.insert(lacking)
	require.NoError(t, source.ReadProcesses(&table))
	found := find(table.Processes, lacking.PID)
	require.NotNil(t, found)
	assert.False(t, found.Born)
	assert.True(t, slices.IsSortedFunc(table.Processes, func(a, b Process) int { return byPID(&a, &b) }))
}

func TestThreadThatHasTheNumberOfAnEndedProcessIsNoProcess(t *testing.T) {
	source := realProc(t)
	thread := unlisted(t, source)
	var table Table
	require.NoError(t, source.ReadProcesses(&table))
	old := thread
	old.Start -= time.Duration(Tick)
	table.insert(old)
	require.NoError(t, source.ReadProcesses(&table))
	assert.Nil(t, find(table.Processes, thread.PID), "its time is in its process's")
	assert.True(t, slices.ContainsFunc(table.Ended, func(e Ended) bool { return e.PID == thread.PID }))
}

// processTime returns the CPU time of this process.
func processTime(t *testing.T) units.CPUTime {
	t.Helper()
	var ts unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts))
	return units.CPUTime(ts.Nano())
}

func TestOwnCPUTimeIsFoundOnThisMachine(t *testing.T) {
	source := realProc(t)
	own := int32(os.Getpid())
	var table Table
	read := func() (Node, *Process) {
		node, err := source.ReadNode()
		require.NoError(t, err)
		require.NoError(t, source.ReadProcesses(&table))
		p := find(table.Processes, own)
		require.NotNil(t, p)
		return node, p
	}
	first := processTime(t)
	_, p := read()
	assert.Zero(t, p.Used)
	slot := p.Slot
	burnt := processTime(t)
	for processTime(t) < burnt+300*ms {
	}
	node, p := read()
	last := processTime(t)
	assert.False(t, p.Born)
	assert.Equal(t, slot, p.Slot)
	// User and system time are each rounded down to a tick, and the scans use some time, too.
	const rounding = 2 * Tick
	assert.Greater(t, p.Used, 300*ms-rounding)
	assert.Less(t, p.Used, last-first+rounding)
	assert.LessOrEqual(t, node.Busy, node.Total)
	assert.LessOrEqual(t, node.Process, node.Busy)
	assert.GreaterOrEqual(t, node.Total, 250*ms)
	boot, err := BootTime("/")
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now().Add(-table.Now), boot, 2*time.Minute)
}
