// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// tracked is a simulated kernel that also reports changes, as the task scan does.
type tracked struct {
	*randomKernel
	slots   []tasks.Process // the scan's array; unchanged slots are stale
	lasting int             // how many of them were in the last list
	ends    []tasks.Ended
}

func (k *tracked) List(all bool) (tasks.Listing, error) {
	l, err := k.randomKernel.List(all)
	if err != nil {
		return l, err
	}
	listed := l.Processes
	if k.r.IntN(10) == 0 { // exec makes another thread the first: the process is missing once
		i := len(listed) - 1 - k.r.IntN(2)*k.r.IntN(len(listed))
		listed = slices.Delete(listed, i, i+1)
	}
	l.Same = len(listed)
	for i, p := range listed {
		p.Cgroups = p.Cgroup
		if i == len(k.slots) {
			k.slots = append(k.slots, tasks.Process{})
		}
		s := &k.slots[i]
		if s.Pid != p.Pid || s.Start != p.Start {
			l.Same = min(l.Same, i)
		} else if s.Run == p.Run && s.Cgroup == p.Cgroup && !all {
			continue
		}
		*s = p
		l.Changed = append(l.Changed, uint64(i))
	}
	l.Processes = k.slots[:len(listed)]
	return l, nil
}

func (k *tracked) Drain(yield func(*tasks.Ended)) (tasks.Lost, error) {
	return k.randomKernel.Drain(func(e *tasks.Ended) {
		k.ends = append(k.ends, *e)
		yield(e)
	})
}

// retold is the same kernel's list and ends once more, without changes.
type retold struct{ *tracked }

func (k retold) List(bool) (tasks.Listing, error) {
	return tasks.Listing{Processes: k.slots[:k.lasting]}, nil
}

func (k retold) Drain(yield func(*tasks.Ended)) (tasks.Lost, error) {
	for i := range k.ends {
		yield(&k.ends[i])
	}
	k.ends = k.ends[:0]
	return tasks.Lost{}, nil
}

func TestAScanOfChangesEqualsAScanOfAllProcesses(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			w := begin(t, seed)
			k := &tracked{randomKernel: w}
			w.source = newBPF(Options{Root: t.TempDir()}, k, k)
			reference := newBPF(Options{Root: t.TempDir()}, retold{k}, retold{k})
			w.source.bootNow = func() time.Duration { return w.now }
			reference.bootNow = w.source.bootNow
			var table, want proc.Table
			quick := 0
			for rescan := range 600 {
				for range w.r.IntN(6) {
					w.act()
				}
				for range w.r.IntN(4) { // they live between two scans
					w.now++
					w.dead = append(w.dead, &life{reported: w.scan, Process: tasks.Process{
						Pid: 1000 + w.r.Uint32N(1000), Start: uint64(w.now), Run: w.r.Uint64N(1e6), Cgroup: 1 + w.r.Uint64N(6), Parent: 1 + w.r.Uint32N(300),
					}})
				}
				if w.r.IntN(4) == 0 { // it took its start time before others that are already listed
					w.spawn()
					w.living[len(w.living)-1].Start -= w.r.Uint64N(5e6)
				}
				if w.r.IntN(4) == 0 {
					w.living[w.r.IntN(len(w.living))].Cgroup = 1 + w.r.Uint64N(6)
				}
				if w.r.IntN(3) == 0 { // the buffer is half full
					w.source.drainBetween()
				}
				w.now += time.Duration(w.r.Int64N(int64(30 * time.Millisecond)))
				w.scan++
				if w.r.IntN(20) == 0 { // the list is read, and its changes are lost
					w.drainErr = errors.New("refused")
					require.Error(t, scanAll(w.source, &table))
					w.drainErr = nil
				}
				require.NoError(t, scanAll(w.source, &table))
				k.lasting = len(w.source.rows)
				require.NoError(t, scanAll(reference, &want))
				require.Zero(t, want.Kept())
				if table.Kept() > 0 {
					quick++
				}
				require.Equal(t, want.Processes, table.Rows, "scan %d, %d rows kept", rescan, table.Kept())
				require.Equal(t, want.Ended, table.Ended)
				var active []int32
				for i := range table.Rows {
					if p := &table.Rows[i]; p.Is(proc.Born) || p.Used > 0 || p.ShortLived > 0 {
						active = append(active, int32(i))
					}
				}
				require.ElementsMatch(t, active, table.Active)
				require.True(t, slices.IsSorted(table.Active))
				require.Equal(t, [3]any{want.Run, want.ShortLived, want.ShortLivedIn}, [3]any{table.Used(nil), unplaced(table), table.ShortLivedIn})
				if w.r.IntN(50) == 0 { // memory is given back
					require.Equal(t, want.Shrink(), table.Shrink())
				}
			}
			assert.Greater(t, quick, 400, "scans that kept rows")
		})
	}
}

func TestAnotherTableGetsAllRows(t *testing.T) {
	w := begin(t, 1)
	k := &tracked{randomKernel: w}
	source := newBPF(Options{Root: t.TempDir()}, k, k)
	source.bootNow = func() time.Duration { return w.now }
	var first, second proc.Table
	for range 3 {
		require.NoError(t, scanAll(source, &first))
	}
	require.NoError(t, scanAll(source, &second))
	assert.Equal(t, len(source.rows), second.Len())
	assert.Len(t, second.Active, len(second.Processes), "all are new to it")
	require.NoError(t, scanAll(source, &first))
	assert.Zero(t, first.Kept())
}

// asked is a kernel that counts the scans in which all processes are described.
type asked struct {
	*fakeKernel
	all int
}

func (k *asked) List(all bool) (tasks.Listing, error) {
	l := tasks.Listing{Processes: k.listed, Same: len(k.listed)}
	if all {
		k.all++
		for i := range k.listed {
			l.Changed = append(l.Changed, uint64(i))
		}
	}
	return l, nil
}

func TestAllProcessesAreDescribedOnlyWhereTheirSizesAreAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		interval time.Duration
		sizes    bool
		want     int
	}{
		"windows":                   {100 * time.Millisecond, false, 1},
		"collections":               {10 * time.Second, false, 1},
		"sizes, in windows":         {100 * time.Millisecond, true, 600},
		"sizes, in collections":     {10 * time.Second, true, 60},
		"collections that are rare": {2 * time.Minute, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			k := &asked{fakeKernel: &fakeKernel{now: time.Hour, listed: []tasks.Process{{Pid: 1, Start: 1, Run: 1, Threads: 1}}}}
			b := newBPF(Options{Root: t.TempDir()}, k, k)
			b.bootNow = func() time.Duration { return k.now }
			table, request := &proc.Table{}, Request{Want: Want{All: true, Resident: c.sizes}}
			for ; k.now < time.Hour+10*time.Minute; k.now += c.interval {
				require.NoError(t, scanFor(b, table, request))
			}
			assert.Equal(t, c.want, k.all)
			if !c.sizes {
				return
			}
			k.now -= 5 * time.Minute
			require.NoError(t, scanFor(b, table, request))
			assert.Equal(t, c.want+1, k.all, "the clock went back")
		})
	}
}

func TestTasksThatLookHiddenAreCountedAgainSoon(t *testing.T) {
	root := t.TempDir()
	tasksThere := func(n int) {
		require.NoError(t, os.MkdirAll(filepath.Join(root, "proc"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, "proc/loadavg"), fmt.Appendf(nil, "0.00 0.00 0.00 1/%d 1\n", n), 0o600))
	}
	k := &asked{fakeKernel: &fakeKernel{now: time.Hour, listed: []tasks.Process{{Pid: 1, Start: 1, Run: 1, Threads: 1}}}}
	b := newBPF(Options{Root: root}, k, k)
	b.bootNow = func() time.Duration { return k.now }
	table := &proc.Table{}
	hidden := func(after time.Duration, there int) bool {
		tasksThere(there)
		k.now += after
		require.NoError(t, scanAll(b, table))
		return table.Unseen.Hidden
	}
	assert.True(t, hidden(0, 1000))
	assert.True(t, hidden(recheck/2, 1))
	assert.False(t, hidden(recheck/2, 1))
	assert.Equal(t, 1, k.all, "without describing all processes")
	assert.False(t, hidden(countAgain/2, 1000), "not yet")
	assert.True(t, hidden(countAgain/2, 1000))
}
