// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// firstScan identifies processes with these task names, whose slots are their indices, as a first
// scan that may leave all names to later scans.
func (i *identified) firstScan(comms ...string) *proc.Table {
	i.t.Helper()
	i.id.postponed.atOnce = 0
	i.id.First(true, true)
	table := &proc.Table{}
	for slot, comm := range comms {
		p := &hostsim.Process{Comm: comm, Exe: "/bin/server", Args: []string{"server"}, Cgroup: "0::/docker/" + hexA}
		i.host.Processes[10+slot] = p
		row := counted(10+slot, p)
		row.Slot, row.Cgroup = int32(slot), 5
		table.Rows = append(table.Rows, *row)
	}
	require.NoError(i.t, i.host.Render())
	for slot := range table.Rows {
		i.id.Identify(&table.Rows[slot], 0)
	}
	i.id.IdentifyPostponed(table)
	i.id.First(false, false)
	return table
}

func TestTheFirstScanFindsOnlyTheWorkloadsOfProcesses(t *testing.T) {
	i := newIdentified(t, false)
	i.firstScan("task", "fifteen-letters", "kvm")
	for slot, want := range []string{"task", "server", "server"} {
		got, _ := i.id.Identity(int32(slot))
		assert.Equal(t, want, got.Executable, "cut names and hypervisors are read at once")
		assert.Equal(t, hexA, got.Container.ID)
	}
}

func TestAProcessThatRunsAfterTheFirstScanIsNamed(t *testing.T) {
	i := newIdentified(t, false)
	row := &i.firstScan("task").Rows[0]
	i.id.Identity(0)
	row.Used = 1
	got, changed := i.look(row, time.Second)
	assert.Equal(t, "/bin/server", got.Path)
	assert.True(t, changed)
}

func TestSleepersAreNamedWithinMinutesWithoutANewIdentity(t *testing.T) {
	i := newIdentified(t, false)
	table := i.firstScan("first", "second")
	table.Now = namedWithin / 2
	i.id.IdentifyPostponed(table)
	for slot, want := range []string{"server", "second"} {
		got, _ := i.id.Identity(int32(slot))
		assert.Equal(t, want, got.Executable)
	}
	table.Now = namedWithin
	read := i.bytesRead(func() { i.id.IdentifyPostponed(table) })
	assert.Equal(t, map[string]int{"exe": len("/bin/server")}, read)
	got, changed := i.id.Identity(1)
	assert.Equal(t, "server", got.Executable)
	assert.False(t, changed)
}

func TestTheFirstScanReadsNoCgroupFileOnceThePathsOfTheScanAgree(t *testing.T) {
	for path, files := range map[string]int{"/docker/" + hexA: 1, "/other": 3} {
		i := newIdentified(t, false)
		i.id.wanted.CgroupPath = func(uint64) string { return path }
		read := i.bytesRead(func() { i.firstScan("a", "b", "c") })
		assert.Equal(t, files*len("0::/docker/"+hexA+"\n"), read["cgroup"], path)
	}
}
