// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Whatever happens on a host, each scan finds all processes with their times, and all of it adds up to
// what ran. In every second history other sources and tables resume.
func TestSourcesFindAllThatRuns(t *testing.T) {
	for kind, seeds := range map[SourceKind]uint64{KindProcfs: 2, KindClocks: 3} {
		for seed := range seeds {
			t.Run(string(kind)+"/"+strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				findAll(t, kind, seed)
			})
		}
	}
}

// living is a host whose processes live at random, and a source that scans it.
type living struct {
	*hostsim.Life
	kind    SourceKind
	source  Source
	clocks  *Clocks // the source, nil if it is procfs
	table   *proc.Table
	windows *windows
}

func (l *living) open(t *testing.T) {
	o := Options{Root: l.Host.Root()}
	if l.windows = newWindows(t, o.Root); l.kind == KindProcfs {
		l.source = NewProcfs(o)
	} else {
		l.clocks = NewSimulatedClocks(o, l.Host.CPUClock)
		l.source = l.clocks
	}
	l.table = proc.New(l.source.Traits().Traits)
}

// resume makes another source and table continue.
func (l *living) resume(t *testing.T) {
	p := Past{Now: l.table.Now, Processes: l.table.AppendPast(nil)}
	l.windows.stat.past(&p)
	require.NoError(t, l.source.Close())
	l.open(t)
	again := written(t, &p)
	l.windows.stat.resume(again)
	l.table.Resume(again.Processes, again.Now, again.Exact)
}

func findAll(t *testing.T, kind SourceKind, seed uint64) {
	l := &living{Life: hostsim.NewLife(twoSockets(t, 2)), kind: kind}
	l.Host.Cached = true
	if seed%2 == 0 {
		l.LimitPIDs(64)
	}
	l.open(t)
	defer func() { require.NoError(t, l.source.Close()) }()
	var found units.CPUTime
	ran, left, looked, late, scans := time.Duration(-1), 0, 0, 0, 0
	for _, e := range hostsim.NewHistory(seed, 2000, hostsim.CommonWeights()) {
		if l.Apply(e); e.Act != hostsim.Advance {
			continue
		}
		l.Step(time.Duration(e.A%3000) * time.Millisecond)
		require.NoError(t, l.Render())
		all := e.B%3 == 0
		_, err := l.windows.read(l.source, l.table, Want{All: all})
		require.NoError(t, err)
		if ran < 0 {
			ran = l.Ran()
		}
		if scans++; l.checkRows(t, all) > 2*maxDebt {
			late++
		}
		if l.clocks != nil {
			left, looked = left+len(l.clocks.gate.left), looked+l.table.Len()
		}
		found += l.table.Used(nil)
		traits := l.table.Traits()
		most := units.CPUTime(l.Ran()-ran) + units.CPUTime(l.table.Len())*(traits.Rounding+traits.ChildRounding)
		require.LessOrEqual(t, found, most)
		if seed%2 == 1 && e.B%32 == 0 {
			l.resume(t)
		}
	}
	assert.Greater(t, float64(found), 0.9*float64(l.Ran()-ran))
	assert.GreaterOrEqual(t, left, looked/20, "left out")
	assert.LessOrEqual(t, late, scans/100, "scans that lacked more than the bound")
}

// checkRows compares the table with the host. It returns how much CPU time the table lacks. A process
// that was moved to another cgroup may run or end unnoticed by clocks for a while.
func (l *living) checkRows(t *testing.T, all bool) (late time.Duration) {
	t.Helper()
	open := l.clocks == nil || l.clocks.gate.open
	var pids []int
	for p := range l.table.All() {
		pids = append(pids, int(p.PID))
		now := l.Host.Processes[int(p.PID)]
		if now == nil {
			require.False(t, open, "process %d", p.PID)
			require.Zero(t, p.Used)
			continue
		}
		clock, err := l.Host.CPUClock(p.PID)
		require.NoError(t, err)
		if l.clocks == nil {
			clock -= now.Fraction
		}
		require.LessOrEqual(t, p.CPU, units.CPUTime(clock))
		late += clock - time.Duration(p.CPU)
		if open {
			require.Equal(t, units.CPUTime(clock), p.CPU)
		}
		if open && all {
			require.Equal(t, now.Parent, int(p.Parent))
		}
		require.Equal(t, time.Duration(now.Start)*hostsim.Tick, p.Start)
	}
	require.Subset(t, pids, slices.Collect(maps.Keys(l.Host.Processes)))
	return late
}
