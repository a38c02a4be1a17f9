// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// failing is an exact source whose scans fail while fail is set.
type failing struct {
	*Procfs
	fail   error
	closed bool
}

func (f *failing) Traits() Traits {
	return Traits{Name: "failing", Traits: proc.Traits{Exact: true, ChildTimes: true}}
}
func (f *failing) Close() error { f.closed = true; return f.Procfs.Close() }
func (f *failing) Scan(t *proc.Table, of Request) error {
	if f.fail != nil {
		return f.fail
	}
	return f.Procfs.Scan(t, of)
}

func newFailing(t *testing.T, kind SourceKind) (*hostsim.Host, *failing, *Reader) {
	host := hostsim.New(t.TempDir())
	source := &failing{Procfs: NewProcfs(Options{Root: host.Root()})}
	r := NewReader(source, Options{Root: host.Root(), Kind: kind})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return host, source, r
}

const busy = units.Second / 2

// read advances by a second in which the first process uses busy of a CPU, and reads one interval.
func read(t *testing.T, host *hostsim.Host, r *Reader) (node Node, replaced bool, err error) {
	host.Run(time.Second, map[int]int64{1: 50})
	require.NoError(t, host.Render())
	_, err = r.Begin(host.Now(), Want{All: true})
	require.NoError(t, err)
	w, err := r.Read()
	return w.Node, w.Replaced, err
}

func TestProcfsReplacesASourceAfterThreeFailedScansInARow(t *testing.T) {
	host, source, r := newFailing(t, Auto)
	host.Created = 70
	before, _, err := read(t, host, r)
	require.NoError(t, err)
	refused := errors.New("refused")
	source.fail = refused
	for rescan := range 3 {
		_, replaced, err := read(t, host, r)
		require.ErrorIs(t, err, refused)
		require.Equal(t, rescan == 2, replaced)
	}
	assert.True(t, source.closed)
	assert.Equal(t, "procfs", r.Traits().Name)
	after, _, err := read(t, host, r)
	require.NoError(t, err)
	assert.Equal(t, 4*busy, after.Busy-before.Busy, "the node's time goes on from where the source left it")
	assert.Equal(t, busy, r.Table().Find(1).Used, "and the next scan counts from procfs's first one")
	assert.EqualValues(t, 70, r.stat.created, "CPU clocks find new processes by it")
}

func TestTheNodesTimeContinuesWithoutAJumpWhenTheClockIsReplaced(t *testing.T) {
	host := hostsim.New(t.TempDir())
	source := &failing{Procfs: NewProcfs(Options{Root: host.Root()})}
	r := NewReader(source, Options{Root: host.Root(), Kind: Auto, Window: TickWindow / 2})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	_, _, err := read(t, host, r)
	require.NoError(t, err)
	host.CPU.User += 30 // that no scan finds
	before, _, err := read(t, host, r)
	require.NoError(t, err)
	source.fail = errors.New("refused")
	for window := range 3 {
		failed, replaced, err := read(t, host, r)
		require.ErrorIs(t, err, source.fail)
		if require.Equal(t, window == 2, replaced); !replaced {
			assert.Equal(t, before, failed)
		}
	}
	after, _, err := read(t, host, r)
	require.NoError(t, err)
	assert.Equal(t, 4*busy, after.Busy-before.Busy)
}

func TestTheTimeOfEachCPUContinuesWhateverTheSource(t *testing.T) {
	for window, want := range map[time.Duration][2][]units.CPUTime{
		TickWindow:     {{100 * Tick}, {500 * Tick}},
		TickWindow / 2: {nil, {100 * Tick}}, // the slices of the exact source are used before
	} {
		host := hostsim.New(t.TempDir())
		host.EachCPU = []hostsim.CPU{{User: 5}}
		source := &failing{Procfs: NewProcfs(Options{Root: host.Root()})}
		r := NewReader(source, Options{Root: host.Root(), Kind: Auto, Window: window, PerCPU: true})
		advance := func() []units.CPUTime {
			host.EachCPU[0].User += 100
			_, _, _ = read(t, host, r)
			return r.times.CPUs
		}
		advance()
		assert.Equal(t, want[0], advance(), "windows of %v", window)
		source.fail = errors.New("refused")
		for range 3 {
			advance()
		}
		assert.Equal(t, want[1], advance(), "windows of %v", window)
		assert.Equal(t, "procfs", r.Traits().Name)
		require.NoError(t, r.Close())
	}
}

func TestAScanThatSucceedsForgetsTheFailuresBefore(t *testing.T) {
	host, source, r := newFailing(t, Auto)
	for range 5 {
		source.fail = errors.New("refused")
		for range 2 {
			_, replaced, err := read(t, host, r)
			require.Error(t, err)
			require.False(t, replaced)
		}
		source.fail = nil
		_, _, err := read(t, host, r)
		require.NoError(t, err)
	}
}

func TestASourceThatTheConfigurationInsistsOnIsNotReplaced(t *testing.T) {
	host, source, r := newFailing(t, KindBPF)
	source.fail = errors.New("refused")
	for range 10 {
		_, replaced, err := read(t, host, r)
		require.Error(t, err)
		require.False(t, replaced)
	}
	assert.False(t, source.closed)
}

func TestAWindowAllocatesNothing(t *testing.T) {
	host := hostsim.New(t.TempDir())
	r := NewReader(NewProcfs(Options{Root: host.Root()}), Options{Root: host.Root()})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	_, _, err := read(t, host, r)
	require.NoError(t, err)
	assert.Zero(t, testing.AllocsPerRun(20, func() {
		if _, err := r.Begin(host.Now(), Want{}); err != nil {
			panic(err)
		}
		if _, err := r.Read(); err != nil {
			panic(err)
		}
		if r.Traits().Unread != nil {
			panic("all are read")
		}
	}))
}
