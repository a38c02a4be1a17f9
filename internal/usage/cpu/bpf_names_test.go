// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

func named(name string, uid uint32, e tasks.Ended) tasks.Ended {
	e.UID = uid
	copy(e.Comm[:15], name)
	return e
}

// byName returns what a table has by name, as name/user/slot/path.
func byName(t *proc.Table) map[string]units.CPUTime {
	got := map[string]units.CPUTime{}
	for i := range t.Charges {
		if c := &t.Charges[i]; c.Named {
			got[fmt.Sprintf("%s/%d/%d/%s", c.Comm.String(), c.UID, c.Slot, c.Path)] += c.CPU
		}
	}
	return got
}

func TestShortLivedProcessesAreNamedByCgroupUserAndName(t *testing.T) {
	for _, between := range []bool{false, true} {
		k, b, table := fakeBPFOf(t, Options{Names: true})
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
				b.ends.drainBetween()
			}
		}
		require.NoError(t, scanAll(b, table))
		assert.Equal(t, map[string]units.CPUTime{
			"cc1/1000/0/": 130, "cc1/0/0/": 7, "as/1000/0/": 11, "as/1000/1/": 13, "rm/0/-1//gone/already": 17, "sh/0/1/": 23,
		}, byName(table))
		assert.EqualValues(t, 100+30+7+11+13+17+19+23+29, unplaced(table))
		assert.Equal(t, unplaced(table), table.Used(nil))
		require.NoError(t, scanAll(b, table))
		assert.Empty(t, table.Charges)
	}
}

// exit notes the end of a child of process 1 that used 2 ns.
func (k *fakeKernel) exit(name string, uid uint32, cgroup uint64) {
	k.ends = append(k.ends, named(name, uid, tasks.Ended{Pid: 100, Start: uint64(k.now), Run: 2, Cgroup: cgroup, Parent: 1}))
}

// A user runs processes under ever new names, as another user and in other cgroups too.
func TestNamesAreBounded(t *testing.T) {
	k, b, table := fakeBPFOf(t, Options{Names: true})
	k.now++
	for i := range 1000 {
		k.exit(fmt.Sprint("a", i), 1000, 5)
	}
	b.ends.drainBetween()
	k.exit("honest", 1001, 5)
	k.exit("honest", 1000, 7)
	require.NoError(t, scanAll(b, table))
	got := byName(table)
	assert.Len(t, got, maxNamesOf+2)
	assert.EqualValues(t, 2, got["honest/1001/0/"], "another user has names of its own")
	assert.EqualValues(t, 2, got["honest/1000/1/"], "and another cgroup")
	assert.EqualValues(t, 2*(1000-maxNamesOf), charged(table, 0), "the rest is charged to its cgroup without a name")
	assert.EqualValues(t, 2*1002, table.Used(nil))

	for i := range 3 * maxNamed {
		k.exit(fmt.Sprint(i), uint32(i), 5)
	}
	require.NoError(t, scanAll(b, table))
	assert.Len(t, byName(table), maxNamed)
	assert.EqualValues(t, 2*3*maxNamed, table.Used(nil))
	k.exit("later", 1000, 5)
	require.NoError(t, scanAll(b, table))
	assert.Equal(t, map[string]units.CPUTime{"later/1000/0/": 2}, byName(table))
}

// On a v1 host the root cgroup holds the processes of all users.
func TestAUserCannotTakeAllNamesOfTheRootCgroup(t *testing.T) {
	k, b, table := fakeBPFOf(t, Options{Names: true})
	k.now++
	for i := range 2 * maxNamed {
		k.exit(fmt.Sprint(i), 1000, rootCgroup)
	}
	b.ends.drainBetween()
	k.exit("honest", 1001, rootCgroup)
	require.NoError(t, scanAll(b, table))
	got := byName(table)
	assert.Len(t, got, maxNamesInRoot+1)
	assert.EqualValues(t, 2, got["honest/1001/0/"])
	assert.EqualValues(t, 2*(2*maxNamed+1), table.Used(nil))
}

func TestNamedTimeIsDividedByDomain(t *testing.T) {
	k, b, table := dividedBPF(t, Options{Names: true})
	k.ends = []tasks.Ended{named("cc1", 0, tasks.Ended{Pid: 100, Start: uint64(k.now) + 1, Run: 80, Cgroup: 5, Weights: []uint64{5, 3}})}
	require.NoError(t, scanAll(b, table))
	require.Len(t, byName(table), 1)
	assert.Equal(t, []units.CPUTime{50, 30}, table.ChargeParts(&table.Charges[0]))
}

func TestBPFReturnsThePathOfACgroupByItsID(t *testing.T) {
	_, b, _ := fakeBPF(t)
	b.cgroups.Remember(4711, "/docker/web")
	r := NewReader(b, Options{})
	assert.Equal(t, "/docker/web", r.CgroupPath(4711))
	assert.Empty(t, r.CgroupPath(4712))
	assert.Empty(t, NewReader(NewProcfs(Options{Root: t.TempDir()}), Options{}).CgroupPath(4711))
}
