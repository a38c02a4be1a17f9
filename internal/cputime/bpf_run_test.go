//go:build linux && (amd64 || arm64)

package cputime

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/cputime/tasks"
)

// tracked is a made-up kernel that also tells what changed, as the task scan does.
type tracked struct {
	*madeUp
	slots   []tasks.Process // the scan's array: what it holds of those that did not change is from before
	lasting int             // how many of them are of the previous listing
	ends    []tasks.Ended
}

func (k *tracked) Update(all bool) (tasks.Listing, error) {
	listed, err := k.Read()
	if err != nil {
		return tasks.Listing{}, err
	}
	if k.r.IntN(10) == 0 { // exec makes another thread the first: that process is missing for once
		i := len(listed) - 1 - k.r.IntN(2)*k.r.IntN(len(listed))
		listed = slices.Delete(listed, i, i+1)
	}
	l := tasks.Listing{Same: len(listed)}
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

func (k *tracked) Drain(yield func(*tasks.Ended)) (count, run uint64, err error) {
	return k.madeUp.Drain(func(e *tasks.Ended) {
		k.ends = append(k.ends, *e)
		yield(e)
	})
}

// retold is the same kernel's list and ends once more, without a word about what changed.
type retold struct{ *tracked }

func (k retold) Read() ([]tasks.Process, error) { return k.slots[:k.lasting], nil }

func (k retold) Drain(yield func(*tasks.Ended)) (uint64, uint64, error) {
	for i := range k.ends {
		yield(&k.ends[i])
	}
	k.ends = k.ends[:0]
	return 0, 0, nil
}

func (retold) Update() {} // hides the other: it is no updater

func TestAPassOverWhatChangedIsThePassOverAll(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			w := begin(t, seed)
			k := &tracked{madeUp: w}
			w.source = newBPF(t.TempDir(), k, k)
			reference := newBPF(t.TempDir(), retold{k}, retold{k})
			w.source.bootNow = func() time.Duration { return w.now }
			reference.bootNow = w.source.bootNow
			var table, want Table
			quick := 0
			for pass := range 600 {
				for range w.r.IntN(6) {
					w.act()
				}
				for range w.r.IntN(4) { // they come and go between two passes
					w.dead = append(w.dead, &life{told: w.pass, Process: tasks.Process{
						Pid: 1000 + w.r.Uint32N(1000), Start: uint64(w.now), Run: w.r.Uint64N(1e6), Cgroup: 1 + w.r.Uint64N(6), Parent: 1 + w.r.Uint32N(300),
					}})
				}
				if w.r.IntN(4) == 0 { // it took its start time before others that are on the list already
					w.spawn()
					w.living[len(w.living)-1].Start -= w.r.Uint64N(5e6)
				}
				if w.r.IntN(4) == 0 {
					w.living[w.r.IntN(len(w.living))].Cgroup = 1 + w.r.Uint64N(6)
				}
				w.now += time.Duration(w.r.Int64N(int64(30 * time.Millisecond)))
				w.pass++
				if w.r.IntN(20) == 0 { // its list is read, and what it said of changes is lost
					w.drainErr = errors.New("refused")
					require.Error(t, w.source.ReadProcesses(&table))
					w.drainErr = nil
				}
				require.NoError(t, w.source.ReadProcesses(&table))
				k.lasting = len(w.source.rows)
				require.NoError(t, reference.ReadProcesses(&want))
				require.Zero(t, want.kept)
				if table.kept > 0 {
					quick++
				}
				require.Equal(t, want.Processes, table.Processes, "pass %d, %d rows kept", pass, table.kept)
				require.Equal(t, want.Ended, table.Ended)
				var active []int32
				for i := range table.Processes {
					if p := &table.Processes[i]; p.Born || p.Used > 0 || p.Unseen > 0 {
						active = append(active, int32(i))
					}
				}
				require.ElementsMatch(t, active, table.Active)
				require.True(t, slices.IsSorted(table.Active))
				require.Equal(t, [3]any{want.Run, want.Unseen, want.UnseenIn}, [3]any{table.Run, table.Unseen, table.UnseenIn})
			}
			assert.Greater(t, quick, 400, "passes that kept rows")
		})
	}
}

func TestAnotherTableGetsAllRows(t *testing.T) {
	w := begin(t, 1)
	k := &tracked{madeUp: w}
	source := newBPF(t.TempDir(), k, k)
	source.bootNow = func() time.Duration { return w.now }
	var first, second Table
	for range 3 {
		require.NoError(t, source.ReadProcesses(&first))
	}
	require.NoError(t, source.ReadProcesses(&second))
	assert.Len(t, second.Processes, len(source.rows))
	assert.Len(t, second.Active, len(second.Processes), "all are new to it")
	require.NoError(t, source.ReadProcesses(&first))
	assert.Zero(t, first.kept)
}
