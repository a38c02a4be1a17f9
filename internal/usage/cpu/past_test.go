// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide/dividetest"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// written returns a past as it is after it was written and read.
func written(t testing.TB, p *Past) *Past {
	t.Helper()
	text, err := json.Marshal(p)
	require.NoError(t, err)
	read := new(Past)
	require.NoError(t, json.Unmarshal(text, read))
	return read
}

// restart has another source and table go on.
func (w *watched) restart() {
	p := Past{Now: w.table.Now, Processes: w.table.AppendPast(nil)}
	w.windows.stat.past(&p)
	again := written(w, &p)
	require.NoError(w, w.source.Close())
	w.source, w.windows, w.table, w.node = NewProcfs(Options{Root: w.Root()}), newWindows(w, w.Root()), *proc.New(w.source.Traits().Traits), Node{}
	w.windows.stat.resume(again)
	w.table.Resume(again.Processes, again.Now, again.Exact)
}

func TestNoRestartOfProcfsCountsCPUTimeTwiceOrNever(t *testing.T) {
	t.Parallel()
	live(t, 1, 120, 5)
}

// restarted is a simulated host that is read by one Reader after the other.
type restarted struct {
	testing.TB
	*hostsim.Host
	window time.Duration
	reader *Reader
	source *failing // nil with procfs
}

func restarting(t testing.TB, exact bool, window time.Duration) *restarted {
	h := &restarted{TB: t, Host: hostsim.New(t.TempDir()), window: window}
	h.open(exact)
	t.Cleanup(func() { require.NoError(t, h.reader.Close()) })
	return h
}

func (h *restarted) open(exact bool) {
	options := Options{Root: h.Root(), Kind: Auto, Window: h.window}
	if len(h.Topology) > 1 {
		topology, err := divide.OpenTopology(h.Root())
		require.NoError(h, err)
		options.Topology = topology
	}
	h.source = nil
	if exact {
		h.source = &failing{Procfs: NewProcfs(options)}
		h.reader = NewReader(h.source, options)
		return
	}
	h.reader = NewReader(NewProcfs(options), options)
}

// again has another Reader go on.
func (h *restarted) again(exact bool) {
	h.Helper()
	var p Past
	require.NoError(h, h.reader.Past(&p))
	require.NoError(h, h.reader.Close())
	h.open(exact)
	h.reader.Resume(written(h, &p))
}

// run lets time pass in which processes use ticks, and reads.
func (h *restarted) run(d time.Duration, used map[int]int64) Node {
	h.Helper()
	h.Run(d, used)
	require.NoError(h, h.Render())
	node, err := h.reader.Begin(h.Now(), Want{All: true})
	require.NoError(h, err)
	_, err = h.reader.Read()
	require.NoError(h, err)
	return node
}

func (h *restarted) used(pid int32) units.CPUTime {
	h.Helper()
	p := h.reader.table.Find(pid)
	require.NotNil(h, p)
	return p.Used
}

func TestTheNodeGoesOnWhereItWas(t *testing.T) {
	for _, exact := range []bool{false, true} {
		for _, window := range []time.Duration{0, 100 * time.Millisecond} {
			t.Run(fmt.Sprintf("exact=%t window=%v", exact, window), func(t *testing.T) {
				h := restarting(t, exact, window)
				h.run(time.Second, map[int]int64{1: 50})
				before := h.run(20*time.Millisecond, map[int]int64{1: 1}) // shorter than between two reads of /proc/stat
				h.again(exact)
				assert.Equal(t, before, h.reader.times.Node)
				after := h.run(time.Minute, map[int]int64{1: 700})
				assert.Equal(t, 700*Tick, after.Busy-before.Busy, "busy")
				assert.Equal(t, 700*Tick, after.Process-before.Process, "of processes")
				assert.Equal(t, units.CPUTime(time.Minute)*units.CPUTime(h.CPUs), after.Total-before.Total, "in all")
				assert.Equal(t, 700*Tick, h.used(1))
				assert.Equal(t, proc.Unbounded, h.reader.table.Unseen.Untraced, "not all that ended is known")
				last := h.run(time.Second, map[int]int64{1: 30})
				assert.Equal(t, 30*Tick, last.Busy-after.Busy)
				assert.Equal(t, 30*Tick, h.used(1))
				assert.Zero(t, h.reader.table.Unseen.Untraced)
			})
		}
	}
}

func TestTheSourceThatReplacesAnotherGoesOnToo(t *testing.T) {
	for _, window := range []time.Duration{0, 100 * time.Millisecond} {
		h := restarting(t, true, window)
		h.run(time.Second, nil)
		before := h.run(time.Second, map[int]int64{1: 50})
		h.again(true)
		h.source.fail = errors.New("refused")
		var after Node
		for range 3 {
			h.Run(time.Second, map[int]int64{1: 20})
			require.NoError(t, h.Render())
			var err error
			after, err = h.reader.Begin(h.Now(), Want{All: true})
			require.NoError(t, err)
			_, err = h.reader.Read()
			require.Error(t, err)
		}
		require.Equal(t, "procfs", h.reader.Traits().Name)
		assert.Equal(t, 60*Tick, h.used(1), "window %v", window)
		after = h.run(time.Second, map[int]int64{1: 20})
		assert.Equal(t, 80*Tick, after.Busy-before.Busy, "window %v", window)
	}
}

func TestANodeThatCannotBeReadAtFirstGoesOnLater(t *testing.T) {
	h := restarting(t, true, 100*time.Millisecond)
	h.run(time.Second, nil)
	before := h.run(time.Second, map[int]int64{1: 50})
	h.again(true)
	h.Run(time.Minute, map[int]int64{1: 100})
	require.NoError(t, h.Render())
	stat, err := os.ReadFile(h.Root() + "/proc/stat")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(h.Root()+"/proc/stat", []byte("cpu"), 0o600))
	node, err := h.reader.Begin(h.Now(), Want{All: true})
	require.Error(t, err)
	assert.Equal(t, before, node)
	require.NoError(t, os.WriteFile(h.Root()+"/proc/stat", stat, 0o600))
	node, err = h.reader.Begin(h.Now(), Want{All: true})
	require.NoError(t, err)
	assert.Equal(t, 100*Tick, node.Busy-before.Busy)
}

func TestDomainsGoOnWhereTheyWere(t *testing.T) {
	for exact, window := range map[bool]time.Duration{false: 0, true: 100 * time.Millisecond} {
		domainsGoOn(t, exact, window)
	}
}

func domainsGoOn(t *testing.T, exact bool, window time.Duration) {
	h := restarting(t, exact, window)
	h.CPUs, h.Topology = 2, []hostsim.Place{{Package: 0}, {Package: 1}}
	require.NoError(t, h.Render())
	h.open(exact)
	stat := func(first, second int) []Node {
		text := fmt.Sprintf("cpu  %d 0 0 9000 0 0 0 0 0 0\ncpu0 %d 0 0 4000 0 0 0 0 0 0\ncpu1 %d 0 0 5000 0 0 0 0 0 0\nintr 0\n",
			first+second, first, second)
		dividetest.Put(t, h.Root(), map[string]string{"proc/stat": text})
		_, err := h.reader.Begin(h.Now(), Want{All: true})
		require.NoError(t, err)
		return slices.Clone(h.reader.Domains())
	}
	stat(1000, 2000)
	before := stat(1100, 2010)
	_, err := h.reader.Read()
	require.NoError(t, err)
	h.again(exact)
	assert.Equal(t, before, h.reader.Domains())
	after := stat(1150, 2510)
	assert.Equal(t, 50*Tick, after[0].Busy-before[0].Busy)
	assert.Equal(t, 500*Tick, after[1].Busy-before[1].Busy)
}

// readerWith returns a Reader whose last scan has so many processes.
func readerWith(n int) *Reader {
	r := NewReader(NewProcfs(Options{Root: "/nowhere"}), Options{})
	past := make([]proc.Past, n)
	for i := range past {
		past[i] = proc.Past{PID: int32(i + 1), Start: time.Duration(i) * time.Second, CPU: 5 * Tick}
	}
	r.table.Resume(past, 0, false)
	return r
}

func TestTakingThePastAllocatesNothing(t *testing.T) {
	r := readerWith(500)
	var p Past
	require.NoError(t, r.Past(&p))
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = r.Past(&p) }))
}

func TestCPUsOfImpossibleNumbersTakeNoMemory(t *testing.T) {
	t.Parallel()
	c := NewStatClock(t.TempDir())
	c.resume(&Past{CPUs: []PastCPU{{Number: -1}, {Number: math.MaxInt32}, {Number: 1}}})
	assert.Len(t, c.cpus, 2)
}
