// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide/dividetest"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

func named(name string, uid uint32, e tasks.Ended) tasks.Ended {
	e.UID = uid
	copy(e.Comm[:15], name)
	return e
}

// byName returns what a table has by name, as name/user/row/path.
func byName(t *proc.Table) map[string]units.CPUTime {
	got := map[string]units.CPUTime{}
	for i := range t.ShortLivedBy {
		n := &t.ShortLivedBy[i]
		got[fmt.Sprintf("%s/%d/%d/%s", n.Comm.String(), n.UID, n.Row, n.Path)] += n.Used
	}
	return got
}

func TestShortLivedProcessesAreNamedByCgroupUserAndName(t *testing.T) {
	for _, between := range []bool{false, true} {
		k, b, table := fakeBPF(t)
		b.names = true
		b.cgroups.Remember(4711, "/gone/already")
		start := uint64(k.now) + 1
		for i, e := range []tasks.Ended{
			named("cc1", 1000, tasks.Ended{Run: 100, Cgroup: 5}),
			named("cc1", 1000, tasks.Ended{Run: 30, Cgroup: 5}),
			named("cc1", 0, tasks.Ended{Run: 7, Cgroup: 5}),
			named("as", 1000, tasks.Ended{Run: 11, Cgroup: 5}),
			named("as", 1000, tasks.Ended{Run: 13, Cgroup: 7}),
			named("rm", 0, tasks.Ended{Run: 17, Cgroup: 4711}), // no process of the cgroup is left
			named("ls", 0, tasks.Ended{Run: 19, Cgroup: 4712}), // nor is its path known
			named("sh", 0, tasks.Ended{Run: 23, Cgroup: rootCgroup, Parent: 10}),
			named("sh", 0, tasks.Ended{Run: 29, Cgroup: rootCgroup, Parent: 4713}), // no ancestor
		} {
			e.Pid, e.Start = uint32(100+i), start
			k.ends = append(k.ends, e)
			if between {
				b.drainBetween()
			}
		}
		require.NoError(t, scanAll(b, table))
		assert.Equal(t, map[string]units.CPUTime{
			"cc1/1000/0/": 130, "cc1/0/0/": 7, "as/1000/0/": 11, "as/1000/1/": 13, "rm/0/-1//gone/already": 17, "sh/0/1/": 23,
		}, byName(table))
		assert.EqualValues(t, 100+30+7+11+13+17+19+23+29, unplaced(table))
		assert.Equal(t, unplaced(table), table.Used(nil))
		assert.Empty(t, table.ShortLivedIn)
		require.NoError(t, scanAll(b, table))
		assert.Empty(t, table.ShortLivedBy)
	}
}

func TestTheProgramsTellTheUserOfEachProcess(t *testing.T) {
	k, b, table := fakeBPF(t)
	k.listed[1].Uid, k.listed[1].Run = 1000, k.listed[1].Run+1
	require.NoError(t, scanAll(b, table))
	assert.True(t, table.Rows[1].HasUID)
	assert.EqualValues(t, 1000, table.Rows[1].UID)
}

// A user runs processes under ever new names, as another user and in other cgroups too.
func TestNamesAreBounded(t *testing.T) {
	k, b, table := fakeBPF(t)
	b.names = true
	start, sum := uint64(k.now), units.CPUTime(0)
	exit := func(name string, uid uint32, cgroup uint64) {
		start++
		sum += 2
		k.ends = append(k.ends, named(name, uid, tasks.Ended{Pid: 100, Start: start, Run: 2, Cgroup: cgroup, Parent: 1}))
	}
	for i := range 1000 {
		exit(fmt.Sprint("a", i), 1000, 5)
	}
	b.drainBetween()
	exit("honest", 1001, 5)
	exit("honest", 1000, 7)
	require.NoError(t, scanAll(b, table))
	got := byName(table)
	assert.Len(t, got, maxNamesOf+2)
	assert.EqualValues(t, 2, got["honest/1001/0/"], "another user has names of its own")
	assert.EqualValues(t, 2, got["honest/1000/1/"], "and another cgroup")
	assert.EqualValues(t, 2*(1000-maxNamesOf), beside(table, 0), "the rest has no name, but a cgroup")
	assert.Equal(t, sum, table.Used(nil))

	for i := range 3 * maxNamed {
		exit(fmt.Sprint(i), uint32(i), 5)
	}
	require.NoError(t, scanAll(b, table))
	assert.Len(t, table.ShortLivedBy, maxNamed)
	assert.Equal(t, sum, table.Used(nil))
	exit("later", 1000, 5)
	require.NoError(t, scanAll(b, table))
	assert.Equal(t, map[string]units.CPUTime{"later/1000/0/": 2}, byName(table))
}

// On a v1 host the root cgroup holds the processes of all users.
func TestAUserCannotTakeAllNamesOfTheRootCgroup(t *testing.T) {
	k, b, table := fakeBPF(t)
	b.names = true
	start, sum := uint64(k.now), units.CPUTime(0)
	exit := func(name string, uid uint32) {
		start++
		sum += 2
		k.ends = append(k.ends, named(name, uid, tasks.Ended{Pid: 100, Start: start, Run: 2, Cgroup: rootCgroup, Parent: 1}))
	}
	for i := range 2 * maxNamed {
		exit(fmt.Sprint(i), 1000)
	}
	b.drainBetween()
	exit("honest", 1001)
	require.NoError(t, scanAll(b, table))
	got := byName(table)
	assert.Len(t, got, maxNamesInRoot+1)
	assert.EqualValues(t, 2, got["honest/1001/0/"])
	assert.Equal(t, sum, table.Used(nil))
}

func TestNamedTimeIsDividedByDomain(t *testing.T) {
	k, b, table := fakeBPF(t)
	b.names = true
	b.topology = topologyOf(t, dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"}))
	require.NoError(t, scanAll(b, table))
	k.ends = []tasks.Ended{named("cc1", 0, tasks.Ended{Pid: 100, Start: uint64(k.now) + 1, Run: 80, Cgroup: 5, Weights: []uint64{5, 3}})}
	require.NoError(t, scanAll(b, table))
	require.Len(t, table.ShortLivedBy, 1)
	assert.Equal(t, []units.CPUTime{50, 30}, slices.Clone(table.PartsBy(&table.ShortLivedBy[0])))
	assert.Equal(t, []units.CPUTime{50, 30}, slices.Clone(table.UnplacedParts()))
}

func TestBPFReturnsThePathOfACgroupByItsID(t *testing.T) {
	_, b, _ := fakeBPF(t)
	b.cgroups.Remember(4711, "/docker/web")
	r := NewReader(b, Options{})
	assert.Equal(t, "/docker/web", r.CgroupPath(4711))
	assert.Empty(t, r.CgroupPath(4712))
	assert.Empty(t, NewReader(NewProcfs(Options{Root: t.TempDir()}), Options{}).CgroupPath(4711))
}
