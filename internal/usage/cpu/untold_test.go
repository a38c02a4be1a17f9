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
)

func TestAnUnreportedEndIsUntracedOnce(t *testing.T) {
	k, b, table := fakeBPF(t)
	k.listed = k.listed[:1]
	require.NoError(t, scanAll(b, table)) // a second after process 10 was listed
	assert.Zero(t, table.Untraced, "its end may still be reported")
	assert.Zero(t, table.LostEnds)
	k.now += maxAwait
	require.NoError(t, scanAll(b, table))
	require.Len(t, table.Ended, 1)
	assert.Zero(t, table.Ended[0].LastSlice)
	assert.Equal(t, units.Second+2*Tick, table.Untraced, "what one thread can use until it is seen to be gone")
	assert.EqualValues(t, 1, table.LostEnds)
	assert.Zero(t, table.Run)
	k.ends = []tasks.Ended{{Pid: 10, Start: 2, Run: 5100, Cgroup: 7}}
	require.NoError(t, scanAll(b, table))
	assert.Zero(t, table.Untraced)
	assert.Zero(t, table.Run, "it was given up")
}

func TestAnUnreportedEndOfAYoungProcessIsUntracedForTheWholeInterval(t *testing.T) {
	k, b, table := fakeBPF(t)
	k.listed = append(k.listed, tasks.Process{Pid: 20, Start: uint64(k.now - time.Millisecond), Run: 30, Cgroup: 7, Threads: 3})
	require.NoError(t, scanAll(b, table))
	k.listed = k.listed[:2]
	k.now += 9 * time.Second // and one when it is read: ten times as long as it had lived
	require.NoError(t, scanAll(b, table))
	k.now += maxAwait
	require.NoError(t, scanAll(b, table))
	assert.Equal(t, 3*10*units.Second+2*Tick, table.Untraced)
}

func TestAnEndThatMayHaveBeenLostIsNotCountedTwice(t *testing.T) {
	k, b, table := fakeBPF(t)
	k.count, k.lost = 1, 5100 // it ended just after it was listed
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 5100, table.Untraced)
	k.listed = k.listed[:1]
	require.NoError(t, scanAll(b, table))
	k.now += maxAwait
	require.NoError(t, scanAll(b, table))
	require.Len(t, table.Ended, 1)
	assert.Zero(t, table.Untraced)
}

func TestAZombieWithoutAReportedEndHidesNothing(t *testing.T) {
	k, b, table := fakeBPF(t)
	k.listed[1].Flags = tasks.Zombie
	require.NoError(t, scanAll(b, table))
	k.listed = k.listed[:1]
	require.NoError(t, scanAll(b, table))
	k.now += maxAwait + time.Second
	require.NoError(t, scanAll(b, table))
	require.Len(t, table.Ended, 1)
	assert.Zero(t, table.Untraced, "its times were final")
}
