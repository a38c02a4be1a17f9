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

// reading is a simulated host that is read by one Reader after the other.
type reading struct {
	testing.TB
	*hostsim.Host
	exact   bool
	options Options
	reader  *Reader
	source  *failing // nil unless the source is exact
}

func newReading(t testing.TB, exact bool, o Options, cpus ...hostsim.CPU) *reading {
	h := &reading{TB: t, Host: hostsim.New(t.TempDir()), exact: exact, options: o}
	h.options.Root = h.Root()
	if h.EachCPU = cpus; len(cpus) > 1 {
		h.CPUs, h.Topology = 2, []hostsim.Place{{Package: 0}, {Package: 1}}
		require.NoError(t, h.Render())
	}
	h.open()
	t.Cleanup(func() { require.NoError(t, h.reader.Close()) })
	return h
}

func (h *reading) open() {
	if len(h.Topology) > 1 {
		topology, err := divide.OpenTopology(h.Root())
		require.NoError(h, err)
		h.options.Topology = topology
	}
	if procfs := NewProcfs(h.options); h.exact {
		h.source = &failing{Procfs: procfs}
		h.reader = NewReader(h.source, h.options)
	} else {
		h.reader = NewReader(procfs, h.options)
	}
}

// again has another Reader resume.
func (h *reading) again() {
	h.Helper()
	var p Past
	require.NoError(h, h.reader.Past(&p))
	require.NoError(h, h.reader.Close())
	h.open()
	h.reader.Resume(written(h, &p))
}

// written returns a past as it is after it was written and read.
func written(t testing.TB, p *Past) *Past {
	t.Helper()
	text, err := json.Marshal(p)
	require.NoError(t, err)
	read := new(Past)
	require.NoError(t, json.Unmarshal(text, read))
	return read
}

// read lets time pass in which the first process uses ticks, and reads a window.
func (h *reading) read(d time.Duration, used int64) (Window, error) {
	h.Helper()
	h.Run(d, map[int]int64{1: used})
	require.NoError(h, h.Render())
	_, err := h.reader.Begin(h.Now(), Want{All: true})
	require.NoError(h, err)
	return h.reader.Read()
}

// run is a read that must succeed.
func (h *reading) run(d time.Duration, used int64) Node {
	h.Helper()
	w, err := h.read(d, used)
	require.NoError(h, err)
	return w.Node
}

// fail fails a scan a second, and returns in how many of them another source replaced the first.
func (h *reading) fail(scans int, used int64) (replaced int) {
	h.Helper()
	h.source.fail = errors.New("refused")
	for range scans {
		w, err := h.read(time.Second, used)
		require.ErrorIs(h, err, h.source.fail)
		if w.Replaced {
			replaced++
		}
	}
	h.source.fail = nil
	return replaced
}

func (h *reading) used() units.CPUTime { return h.reader.Table().Find(1).Used }

// shortWindow is too short for the ticks of /proc/stat.
const shortWindow = 100 * time.Millisecond

func TestAnotherSourceReplacesOneAfterThreeFailedScansInARow(t *testing.T) {
	for _, window := range []time.Duration{0, shortWindow} {
		h := newReading(t, true, Options{Kind: Auto, Window: window})
		h.Created = 70
		h.run(time.Second, 50)
		for range 3 {
			assert.Zero(t, h.fail(2, 50))
			h.run(time.Second, 50)
		}
		h.CPU.User += 30 // that no scan finds
		before := h.run(time.Second, 50)
		assert.False(t, h.source.closed)
		assert.Equal(t, 1, h.fail(3, 50))
		assert.True(t, h.source.closed)
		assert.Equal(t, "procfs", h.reader.Traits().Name)
		after := h.run(time.Second, 50)
		assert.Equal(t, 200*Tick, after.Busy-before.Busy, "the node's time continues from where the source left it")
		assert.Equal(t, 50*Tick, h.used(), "and the next scan counts from procfs's first one")
		assert.EqualValues(t, 70, h.reader.stat.created, "CPU clocks find new processes by it")
	}
}

func TestASourceThatTheConfigurationInsistsOnIsNotReplaced(t *testing.T) {
	h := newReading(t, true, Options{Kind: KindBPF})
	assert.Zero(t, h.fail(10, 50))
	assert.False(t, h.source.closed)
}

func TestTheTimeOfEachCPUContinuesWhateverTheSource(t *testing.T) {
	for window, want := range map[time.Duration][2][]units.CPUTime{
		0:           {{100 * Tick}, {500 * Tick}},
		shortWindow: {nil, {100 * Tick}}, // the slices of the exact source are used before
	} {
		h := newReading(t, true, Options{Kind: Auto, Window: window, PerCPU: true}, hostsim.CPU{User: 5})
		for range 2 {
			h.EachCPU[0].User += 100
			h.run(time.Second, 50)
		}
		assert.Equal(t, want[0], h.reader.times.CPUs, "windows of %v", window)
		for range 3 {
			h.EachCPU[0].User += 100
			h.fail(1, 50)
		}
		h.EachCPU[0].User += 100
		h.run(time.Second, 50)
		assert.Equal(t, want[1], h.reader.times.CPUs, "windows of %v", window)
	}
}

func TestAReaderResumesWhereItWas(t *testing.T) {
	for _, exact := range []bool{false, true} {
		for _, window := range []time.Duration{0, shortWindow} {
			t.Run(fmt.Sprintf("exact=%t window=%v", exact, window), func(t *testing.T) {
				h := newReading(t, exact, Options{Kind: Auto, Window: window})
				h.run(time.Second, 50)
				before := h.run(20*time.Millisecond, 1) // shorter than between two reads of /proc/stat
				h.again()
				assert.Equal(t, before, h.reader.times.Node)
				after := h.run(time.Minute, 700)
				assert.Equal(t, Node{Busy: 700 * Tick, Process: 700 * Tick, Total: 6000 * Tick}, after.since(before))
				assert.Equal(t, 700*Tick, h.used())
				assert.Equal(t, proc.Unbounded, h.reader.table.Unseen.Untraced, "not all that ended is known")
				last := h.run(time.Second, 30)
				assert.Equal(t, 30*Tick, last.Busy-after.Busy)
				assert.Equal(t, 30*Tick, h.used())
				assert.Zero(t, h.reader.table.Unseen.Untraced)
			})
		}
	}
}

func TestTheSourceThatReplacesAnotherResumesToo(t *testing.T) {
	for _, window := range []time.Duration{0, shortWindow} {
		h := newReading(t, true, Options{Kind: Auto, Window: window})
		h.run(time.Second, 0)
		before := h.run(time.Second, 50)
		h.again()
		require.Equal(t, 1, h.fail(3, 20))
		assert.Equal(t, 60*Tick, h.used(), "window %v", window)
		after := h.run(time.Second, 20)
		assert.Equal(t, 80*Tick, after.Busy-before.Busy, "window %v", window)
	}
}

func TestANodeThatCannotBeReadAtFirstResumesLater(t *testing.T) {
	h := newReading(t, true, Options{Window: shortWindow})
	h.run(time.Second, 0)
	before := h.run(time.Second, 50)
	h.again()
	require.NoError(t, os.Remove(h.Root()+"/proc/stat"))
	node, err := h.reader.Begin(h.Now(), Want{All: true})
	require.Error(t, err)
	assert.Equal(t, before, node)
	assert.Equal(t, 100*Tick, h.run(time.Minute, 100).Busy-before.Busy)
}

func TestDomainsResumeWhereTheyWere(t *testing.T) {
	for exact, window := range map[bool]time.Duration{false: 0, true: shortWindow} {
		h := newReading(t, exact, Options{Window: window}, hostsim.CPU{}, hostsim.CPU{})
		stat := func(first, second int) []Node {
			dividetest.Put(t, h.Root(), map[string]string{"proc/stat": statOf(first, second)})
			_, err := h.reader.Begin(h.Now(), Want{All: true})
			require.NoError(t, err)
			return slices.Clone(h.reader.Domains())
		}
		stat(1000, 2000)
		before := stat(1100, 2010)
		_, err := h.reader.Read()
		require.NoError(t, err)
		h.again()
		assert.Equal(t, before, h.reader.Domains())
		after := stat(1150, 2510)
		assert.Equal(t, 50*Tick, after[0].Busy-before[0].Busy)
		assert.Equal(t, 500*Tick, after[1].Busy-before[1].Busy)
	}
}

func TestCPUsOfImpossibleNumbersTakeNoMemory(t *testing.T) {
	c := NewStatClock(t.TempDir())
	c.resume(&Past{CPUs: []PastCPU{{Number: -1}, {Number: math.MaxInt32}, {Number: 1}}})
	assert.Len(t, c.cpus, 2)
}

func TestAWindowAllocatesNothing(t *testing.T) {
	for _, exact := range []bool{false, true} {
		h := newReading(t, exact, Options{Window: shortWindow, PerCPU: true}, hostsim.CPU{}, hostsim.CPU{})
		for pid := 100; pid < 300; pid++ {
			h.Processes[pid] = &hostsim.Process{Parent: 1}
		}
		var p Past
		for range 3 {
			h.run(shortWindow, 1)
			require.NoError(t, h.reader.Past(&p))
		}
		now := h.Now()
		assert.Zero(t, testing.AllocsPerRun(20, func() {
			now = now.Add(shortWindow)
			if _, err := h.reader.Begin(now, Want{}); err != nil {
				panic(err)
			}
			if _, err := h.reader.Read(); err != nil {
				panic(err)
			}
			if h.reader.Traits().Unread != nil || h.reader.Past(&p) != nil {
				panic("all are read")
			}
		}), "exact: %t", exact)
	}
}
