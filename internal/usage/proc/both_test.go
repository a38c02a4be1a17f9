// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

func fillOld(t *scan.Table, now time.Duration, node units.CPUTime, sights []proc.Sight) {
	t.Begin(now)
	for _, s := range sights {
		t.Processes = append(t.Processes, scan.Process{
			PID: s.PID, Start: s.Start, Parent: s.Parent, Threads: s.Threads, CPU: s.CPU, ChildCPU: s.ChildCPU,
			Kernel: s.Is(proc.Kernel), Zombie: s.Is(proc.Zombie),
		})
	}
	t.ChildRounding = 2 * tick
	t.Finish(node)
}

// oldFigures returns the figures of the old table in the form of the new one.
func oldFigures(t *scan.Table) figures {
	rows := &proc.Table{}
	for _, p := range t.Processes {
		row := proc.Process{Sight: proc.Sight{ID: proc.ID{PID: p.PID, Start: p.Start}}, Used: p.Used, Owed: p.Owed}
		rows.Charges = append(rows.Charges, proc.Charge{Slot: proc.Slot(len(rows.Rows)), CPU: p.ShortLived})
		rows.Rows = append(rows.Rows, row)
	}
	for _, e := range t.Ended {
		row := proc.Process{Sight: proc.Sight{ID: proc.ID{PID: e.PID, Start: e.Start}}}
		rows.Ended = append(rows.Ended, proc.Ended{Process: row, LastSlice: e.LastSlice})
	}
	return figuresOf(rows)
}

func TestBothTablesFindTheSame(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			f := newFamily(seed, false)
			var before scan.Table
			now := proc.New(proc.Traits{ChildTimes: true, ChildRounding: 2 * tick})
			for i := range 100 {
				used := f.used
				for range f.r.IntN(60) {
					f.act()
				}
				at := f.now
				sights := f.look()
				node := f.used - used
				fillOld(&before, at, node, sights)
				fill(now, at, node, sights...)
				require.Equal(t, oldFigures(&before), figuresOf(now), "scan %d", i)
				require.Equal(t, before.Untraced, now.Unseen.Untraced, "scan %d", i)
				require.Len(t, before.Processes, now.Len())
				require.Len(t, before.Ended, len(now.Ended))
				check(t, now)
			}
		})
	}
}
