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

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// noting is a random kernel that keeps the ends that it reported.
type noting struct {
	*randomKernel
	ends []tasks.Ended
}

func (k *noting) Drain(yield func(*tasks.Ended)) (tasks.Lost, error) {
	return k.randomKernel.Drain(func(e *tasks.Ended) {
		k.ends = append(k.ends, *e)
		yield(e)
	})
}

// retold is the same kernel's list and ends once more, without changes.
type retold struct{ *noting }

func (k retold) List(bool) (tasks.Listing, error) { return tasks.Listing{Processes: k.listed}, nil }

func (k retold) Drain(yield func(*tasks.Ended)) (tasks.Lost, error) {
	for i := range k.ends {
		yield(&k.ends[i])
	}
	k.ends = k.ends[:0]
	return tasks.Lost{}, nil
}

// row is what a table has of a process, however it numbers its rows.
type row struct {
	proc.Sight
	used   units.CPUTime
	listed bool // in Active, if it is active
}

// foundIn returns the rows of a table, what ended, and what was charged by cgroup.
func foundIn(t *proc.Table) (rows map[proc.ID]row, last map[proc.ID]units.CPUTime, charged map[uint64]units.CPUTime) {
	rows, last, charged = map[proc.ID]row{}, map[proc.ID]units.CPUTime{}, map[uint64]units.CPUTime{}
	for p := range t.All() {
		r := row{p.Sight, p.Used, slices.Contains(t.Active, p.Slot) == p.IsActive()}
		r.Split, r.Flags = 0, r.Flags&^proc.Charged // which of the rows of a cgroup is charged depends on the slots
		rows[p.ID] = r
	}
	for i := range t.Ended {
		last[t.Ended[i].ID] = t.Ended[i].LastSlice
	}
	for i := range t.Charges {
		cgroup := uint64(0)
		if slot := t.Charges[i].Slot; slot >= 0 {
			cgroup = t.Rows[slot].Cgroup
		}
		charged[cgroup] += t.Charges[i].CPU
	}
	return rows, last, charged
}

func TestAScanOfChangesEqualsAScanOfAllProcesses(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			w := begin(t, seed)
			k := &noting{randomKernel: w}
			w.source = newBPF(Options{Root: t.TempDir()}, k, k)
			reference := newBPF(Options{Root: t.TempDir()}, retold{k}, retold{k})
			w.source.bootNow = func() time.Duration { return w.now }
			reference.bootNow = w.source.bootNow
			var table, want proc.Table
			for rescan := range 600 {
				for range w.r.IntN(8) {
					w.act()
				}
				for range w.r.IntN(4) { // they live between two scans
					w.now++
					w.dead = append(w.dead, &life{reported: w.scan, Process: tasks.Process{
						Pid: 1000 + w.r.Uint32N(1000), Start: uint64(w.now), Run: w.r.Uint64N(1e6), Cgroup: 1 + w.r.Uint64N(6), Parent: 1 + w.r.Uint32N(300),
					}})
				}
				if w.r.IntN(3) == 0 { // the buffer is half full
					w.source.ends.drainBetween()
				}
				w.now += time.Duration(w.r.Int64N(int64(30 * time.Millisecond)))
				w.scan++
				if w.r.IntN(20) == 0 { // the list is read, and its changes are lost
					w.drainErr = errors.New("refused")
					require.Error(t, scanAll(w.source, &table))
					w.drainErr = nil
				}
				require.NoError(t, scanAll(w.source, &table))
				require.NoError(t, scanAll(reference, &want))
				rows, last, charged := foundIn(&table)
				wantRows, wantLast, wantCharged := foundIn(&want)
				require.Equal(t, wantRows, rows, "scan %d", rescan)
				require.Equal(t, wantLast, last)
				require.Equal(t, wantCharged, charged)
				if w.r.IntN(50) == 0 {
					table.Shrink()
				}
			}
		})
	}
}

func TestAnotherTableGetsAllRows(t *testing.T) {
	w := begin(t, 1)
	for range 3 {
		require.NoError(t, scanAll(w.source, &w.table))
	}
	var second proc.Table
	w.still(func() { require.NoError(t, scanAll(w.source, &second)) })
	assert.Equal(t, len(w.living), second.Len())
	assert.Len(t, second.Active, len(w.living), "all are new to it")
	w.still(func() { require.NoError(t, scanAll(w.source, &w.table)) })
	w.requireRows()
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
			k, b := aKernelOfOneProcess(t.TempDir())
			table, request := &proc.Table{}, Request{Want: Want{All: true, Resident: c.sizes}}
			for ; k.now < time.Hour+10*time.Minute; k.now += c.interval {
				require.NoError(t, scanFor(b, table, request))
			}
			assert.Equal(t, c.want, k.described)
			if !c.sizes {
				return
			}
			k.now -= 5 * time.Minute
			require.NoError(t, scanFor(b, table, request))
			assert.Equal(t, c.want+1, k.described, "the clock went back")
		})
	}
}

// aKernelOfOneProcess returns a kernel whose clock is set by the test.
func aKernelOfOneProcess(root string) (*fakeKernel, *BPF) {
	k := &fakeKernel{now: time.Hour, same: true, listed: []tasks.Process{{Pid: 1, Start: 1, Run: 1, Threads: 1}}}
	b := newBPF(Options{Root: root}, k, k)
	b.bootNow = func() time.Duration { return k.now }
	return k, b
}

// hasTasks writes the number of tasks of a machine, in /proc/loadavg.
func hasTasks(t *testing.T, root string, n int) {
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "proc/loadavg"), fmt.Appendf(nil, "0.00 0.00 0.00 1/%d 1\n", n), 0o600))
}

func TestTasksThatLookHiddenAreCountedAgainSoon(t *testing.T) {
	root := t.TempDir()
	k, b := aKernelOfOneProcess(root)
	table := &proc.Table{}
	hidden := func(after time.Duration, there int) bool {
		hasTasks(t, root, there)
		k.now += after
		require.NoError(t, scanAll(b, table))
		return table.Unseen.Hidden
	}
	assert.True(t, hidden(0, 1000))
	assert.True(t, hidden(recheck/2, 1))
	assert.False(t, hidden(recheck/2, 1))
	assert.Equal(t, 1, k.described, "without describing all processes")
	assert.False(t, hidden(countAgain/2, 1000), "not yet")
	assert.True(t, hidden(countAgain/2, 1000))
}
