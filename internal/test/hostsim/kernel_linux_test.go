// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package hostsim

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
)

func drained(t *testing.T, k *Kernel) (ended []tasks.Ended, lost, run uint64) {
	missed, err := k.Drain(func(e *tasks.Ended) { ended = append(ended, *e) })
	require.NoError(t, err)
	return ended, missed.Count, missed.Run
}

func TestTheKernelListsTasksToTheNanosecond(t *testing.T) {
	m := machineOf(t, rising())
	k := NewKernel(m)
	m.Step(time.Second)
	a := task(m, 0, 0.3)
	a.Exec("/usr/bin/a")
	a.Shown().Threads = 3
	a.Move("/x")
	a.Resident = 5*page + 1
	m.Step(7)
	zombie := task(m, 0, 0)
	zombie.Exit()
	thread := task(m, 0, 0)
	thread.Shown().Kernel = true

	l, err := k.List(true)
	require.NoError(t, err)
	listed := l.Processes
	require.Len(t, listed, 4)
	want := tasks.Process{
		Pid: 2, Parent: 1, Start: uint64(1001 * time.Second), Run: 2, Cgroup: a.group.id, Threads: 3,
		Execs: 1, Cgroups: listed[1].Cgroups, Resident: 5, Cpu: uint32(m.cpuOf(a)),
	}
	copy(want.Comm[:], "a")
	assert.Equal(t, want, listed[1])
	assert.NotZero(t, listed[1].Cgroups)
	assert.NotEqual(t, listed[1].Cgroups, listed[2].Cgroups)
	assert.NotZero(t, listed[2].Flags&tasks.Zombie)
	assert.NotZero(t, listed[3].Flags&tasks.KernelThread)
	assert.Equal(t, m.Now(), k.Now())

	k.Fails = 1
	_, err = k.List(true)
	require.ErrorIs(t, err, syscall.ENOMEM)
	_, err = k.List(true)
	assert.NoError(t, err)
}

func TestTheKernelReportsChangesSinceTheLastList(t *testing.T) {
	m := machineOf(t, rising())
	k := NewKernel(m)
	a, b, c := task(m, 0, 0), task(m, 0, 0), task(m, 0, 0)
	update := func() (same int, changed []uint64) {
		l, err := k.List(false)
		require.NoError(t, err)
		return l.Same, l.Changed
	}
	same, changed := update()
	assert.Zero(t, same)
	assert.Equal(t, []uint64{0, 1, 2, 3}, changed)
	same, changed = update()
	assert.Equal(t, 4, same)
	assert.Empty(t, changed)

	b.Demand = 1
	m.Step(time.Second)
	same, changed = update()
	assert.Equal(t, 4, same)
	assert.Equal(t, []uint64{2}, changed)

	b.Exit()
	b.Reap(false)
	c.Move("/x")
	same, changed = update()
	assert.Equal(t, 2, same, "init and the first")
	assert.Equal(t, []uint64{2}, changed)
	a.Exec("/bin/a")
	_, changed = update()
	assert.Equal(t, []uint64{1}, changed)
}

func TestTheKernelReportsEachEndOnce(t *testing.T) {
	m := machineOf(t, rising())
	k := NewKernel(m)
	end := func(used time.Duration) *Task {
		a := task(m, 0, 1)
		m.Step(used)
		a.Exit()
		a.Reap(false)
		return a
	}
	a := end(5 * time.Millisecond)
	k.Late = 1
	ended, _, _ := drained(t, k)
	assert.Empty(t, ended, "it is late")
	ended, lost, _ := drained(t, k)
	assert.Equal(t, []tasks.Ended{{
		Pid: uint32(a.PID), Parent: 1, Start: uint64(a.Born), Run: uint64(5 * time.Millisecond), Cgroup: a.group.id, Comm: commOf(a),
	}}, ended)
	assert.Zero(t, lost)
	ended, _, _ = drained(t, k)
	assert.Empty(t, ended)

	k.Loses = 2
	end(time.Millisecond)
	end(2 * time.Millisecond)
	end(4 * time.Millisecond)
	ended, lost, run := drained(t, k)
	assert.Len(t, ended, 1)
	assert.Equal(t, uint64(2), lost)
	assert.Equal(t, uint64(3*time.Millisecond), run)
	assert.Equal(t, 2, k.Lost)
	_, lost, run = drained(t, k)
	assert.Zero(t, lost+run)
}

func TestTheKernelReportsExistingAndNewCgroups(t *testing.T) {
	m := machineOf(t, rising())
	a := task(m, 0, 0)
	a.Move("/a")
	k := NewKernel(m)
	created := func() map[uint64]string {
		paths := map[uint64]string{}
		require.NoError(t, k.DrainCgroups(func(id uint64, path string) { paths[id] = path }))
		return paths
	}
	first := created()
	assert.Equal(t, "/", first[1])
	assert.Equal(t, "/a", first[a.group.id])
	a.Move("/b/c")
	id := a.group.id
	a.Move("/a")
	m.RemoveCgroup("/b/c")
	assert.Equal(t, map[uint64]string{id: "/b/c", a.machine.cgroups["/b"].id: "/b"}, created(), "though it is gone")
	assert.Empty(t, created())
}

func TestTheKernelReportsOnWhichCPUsThreadsRan(t *testing.T) {
	m := machineOf(t, paired())
	k := NewKernel(m)
	several, one := task(m, 0, 2.5), pinned(m, 0, 0, 0.5)
	on := func(pid int) map[uint32]time.Duration {
		l, err := k.List(false)
		require.NoError(t, err)
		of := map[uint32]time.Duration{}
		for _, p := range l.Processes {
			for at := p.Slice; int(p.Pid) == pid && at > 0; at = l.Slices[at].Next {
				of[l.Slices[at].Cpu] += time.Duration(l.Slices[at].Run)
			}
		}
		return of
	}
	on(several.PID)
	m.Step(time.Second)
	want := map[uint32]time.Duration{}
	for _, s := range several.Slices() {
		want[uint32(s.CPU)] = s.Used
	}
	require.Len(t, want, 3, "a task has a thread for each CPU that it uses")
	assert.Equal(t, want, on(several.PID))
	assert.Empty(t, on(several.PID), "not again")
	one.Pin(1)
	m.Step(time.Second)
	assert.Empty(t, on(one.PID), "a thread that was on two CPUs counts for the last one")
	several.Exit()
	several.Reap(false)
	assert.NotContains(t, k.placed, several)
}

func TestTheKernelReportsAHalfFullBuffer(t *testing.T) {
	l := NewLife(machineOf(t, rising()))
	k := NewKernel(l.Machine)
	var drains []int
	require.NoError(t, k.Watch(func() {
		ended, _, _ := drained(t, k)
		drains = append(drains, len(ended))
	}))
	flicker := func(n int) {
		for range n {
			l.Apply(Event{Act: Flicker, B: 40_000}) // which its parent waits for
		}
	}
	flicker(halfFull - 1)
	assert.Empty(t, drains)
	flicker(halfFull + 1)
	assert.Equal(t, []int{halfFull, halfFull}, drains)
	require.NoError(t, k.Close())
	flicker(halfFull)
	assert.Len(t, drains, 2)
}
