// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// fakeCounter is a hook that counts 1000 cycles per millisecond of the node.
type fakeCounter struct {
	fakeVisitor
	window tasks.Counted
	cpu    []int
	on     bool
	err    error
}

func (c *fakeCounter) SetCPUs(online []int) (changed bool, err error) {
	changed = len(online) != len(c.cpu)
	c.cpu = online
	return changed, c.err
}

func (c *fakeCounter) Count(on bool) error {
	c.on = on
	return c.err
}

func (c *fakeCounter) Flush() (tasks.Counted, error) { return c.window, c.err }

// countingNode is a node of one CPU whose three processes each use 100 ms and 10^6 cycles a window
// of a second.
type countingNode struct {
	*node
	counter    *fakeCounter
	switches   uint64 // each second
	lost       uint64 // cycles each second
	percentPMU uint64
	used       uint64 // CPU time of each process in ns each second
}

func newCountingNode(t *testing.T) *countingNode {
	n := &countingNode{node: newNode(t, 500), counter: &fakeCounter{}, percentPMU: 100, used: 1e8}
	root := filepath.Dir(n.source.proc.Path())
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sys/devices/system/cpu"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "sys/devices/system/cpu/online"), []byte("0\n"), 0o600))
	n.source.counting.online = divide.NewOnline(root)
	n.source.hook.open = func() (visitor, error) { return n.counter, n.openErr }
	n.kernel.same = false
	return n
}

// scan scans a window of a second. It returns whether the counter counted in it.
func (n *countingNode) scan() (counted bool) {
	n.Helper()
	if counted = n.counter.on; counted {
		n.counter.window = tasks.Counted{Cycles: 3e6, LostCycles: n.lost, Switches: n.switches, Lacked: 1 - float64(n.percentPMU)/100}
	}
	for i := range n.kernel.listed {
		n.kernel.listed[i].Run += n.used
		if counted {
			n.kernel.listed[i].Events[proc.Cycles] += 1e6
		}
	}
	n.run(time.Second, time.Second, n.switches)
	return counted
}

// windows scans some windows, and returns how many were counted and how many had events.
func (n *countingNode) windows(count int) (counted, valid int) {
	n.Helper()
	for range count {
		if n.scan() {
			counted++
		}
		if n.table.Counting.Valid {
			valid++
			for p := range n.table.All() {
				require.EqualValues(n, 1_000_000, p.Counted[proc.Cycles], "counted, or by the held rate")
			}
		}
	}
	return counted, valid
}

func TestWindowsAreCountedWithinTheBudget(t *testing.T) {
	n := newCountingNode(t)
	n.switches = 5000
	n.windows(5) // the hook is attached
	counted, valid := n.windows(20)
	assert.Equal(t, 20, counted)
	assert.Equal(t, 20, valid)
	assert.Equal(t, []int{0}, n.counter.cpu)
	require.NoError(t, n.source.Traits().Uncounted)

	n.switches = 30_000
	n.windows(5)
	counted, valid = n.windows(20)
	assert.Equal(t, 4, counted)
	assert.Equal(t, 20, valid)
	require.ErrorContains(t, n.source.Traits().Uncounted, "counted in one of 5 windows: at 30000 context switches/s")

	n.switches = 200_000
	n.windows(20)
	counted, valid = n.windows(20)
	assert.Zero(t, counted)
	assert.Zero(t, valid)
	require.ErrorContains(t, n.source.Traits().Uncounted, "not counted: at 115000 context switches/s counting would use 3.")

	n.switches = 5000
	n.windows(40)
	counted, valid = n.windows(20)
	assert.Equal(t, 20, counted)
	assert.Equal(t, 20, valid)
	require.NoError(t, n.source.Traits().Uncounted)
}

func TestHeldRatesAndCountersEndWithCounting(t *testing.T) {
	n := newCountingNode(t)
	n.switches = 30_000
	_, valid := n.windows(30)
	require.NotZero(t, valid)
	n.switches = 5000
	n.windows(20)
	n.switches, n.percentPMU = 30_000, 50
	_, valid = n.windows(20)
	require.Zero(t, valid, "the rates are from before all windows were counted")
	n.percentPMU = 100
	require.Equal(t, []int{0}, n.counter.cpu)
	n.switches = 200_000
	n.windows(60)
	require.Empty(t, n.counter.cpu, "closed")
	n.switches = 30_000
	var counted int
	for valid = 0; valid == 0; {
		counted, valid = n.windows(1)
	}
	assert.Equal(t, 1, counted, "the first rates are new")
	n.counter.err = errors.New("no descriptors")
	n.windows(10)
	n.counter.err = nil
	_, valid = n.windows(100)
	assert.Zero(t, valid)
	assert.Empty(t, n.counter.cpu, "closed")
}

func TestTheReasonHasTheSameFiguresUntilItIsAnother(t *testing.T) {
	n := newCountingNode(t)
	texts := map[string]bool{}
	for i := range 100 {
		n.switches = uint64(i/50*30_000 + i%7*100)
		n.percentPMU = 50 + uint64(i%7)
		n.windows(1)
		if err := n.source.Traits().Uncounted; err != nil {
			texts[err.Error()] = true
		}
	}
	assert.Len(t, texts, 2, "other users of the PMU, and context switches: %v", texts)
}

func TestTheBudgetDoesNotSwitchBackAndForth(t *testing.T) {
	for name, c := range map[string]struct {
		from countMode
		rate uint64 // switches per second
		to   countMode
		each uint64 // flushes per second
	}{
		"few":                {countAlways, 9_900, countAlways, 0},
		"too many":           {countAlways, 10_100, countSometimes, 0},
		"slightly fewer":     {countSometimes, 9_900, countSometimes, 0},
		"fewer":              {countSometimes, 7_900, countAlways, 0},
		"far too many":       {countSometimes, 51_000, countNever, 0},
		"slightly too many":  {countNever, 49_000, countNever, 0},
		"fewer than that":    {countNever, 39_000, countSometimes, 0},
		"few after too many": {countNever, 5_000, countAlways, 0},
		"many CPUs":          {countAlways, 0, countSometimes, 300},
		"too many CPUs":      {countAlways, 0, countNever, 400}, // each counted window needs two flushes
	} {
		b := countBudget{mode: c.from}
		b.add(considerEvery, c.rate*uint64(considerEvery/time.Second), c.each*uint64(considerEvery/time.Second))
		assert.Equal(t, c.to, b.mode, name)
	}
}

func TestEventsWithoutThePMUOrWithLossesAreNotTrainedOn(t *testing.T) {
	n := newCountingNode(t)
	n.windows(5)
	assert.Equal(t, proc.Counting{Valid: true, Trainable: true}, n.table.Counting)
	n.lost = 1e5
	n.scan()
	assert.Equal(t, proc.Counting{Valid: true}, n.table.Counting)
	n.lost, n.percentPMU = 0, 60
	n.scan()
	assert.Equal(t, proc.Counting{}, n.table.Counting)
	require.ErrorContains(t, n.source.Traits().Uncounted, "other users have the PMU of a CPU")
	n.percentPMU = 100
	n.scan()
	assert.True(t, n.table.Counting.Trainable)
	n.used = 1e5
	n.scan()
	assert.Equal(t, proc.Counting{Valid: true}, n.table.Counting, "little load")
	n.used = 1e8
	n.kernel.err = errors.New("refused")
	require.Error(t, scanAll(n.source, &n.table))
	n.kernel.err = nil
	n.scan()
	assert.False(t, n.table.Counting.Valid, "longer than the window")
	n.scan()
	assert.True(t, n.table.Counting.Valid)
	n.counter.err = errors.New("no descriptors")
	n.scan()
	assert.False(t, n.table.Counting.Valid)
	require.ErrorContains(t, n.source.Traits().Uncounted, "hardware events are not counted: no descriptors")
}

func TestAHookThatEventsAreRefusedForIsAttachedWithoutThem(t *testing.T) {
	why := errors.New("no descriptors")
	for name, before := range map[string]func(c *eventCounting){
		"counting has ended":    func(c *eventCounting) { c.refused = why },
		"too many to count now": func(c *eventCounting) { c.budget.mode = countNever },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 10_000)
			n.source.counting.online = divide.NewOnline(t.TempDir())
			h := &n.source.hook
			h.events = true
			h.open = func() (visitor, error) {
				if h.events {
					return nil, why
				}
				return n.visitor, nil
			}
			for range 1500 { // longer than dwell
				before(&n.source.counting)
				n.run(50*time.Millisecond, 50*time.Millisecond, 5000)
			}
			assert.NotNil(t, h.visitor)
			assert.ErrorIs(t, n.source.Traits().Uncounted, why)
		})
	}
}

// softwareEvents are events of the kernel in place of hardware events.
var softwareEvents = perfevent.NewHardware(unix.PERF_TYPE_SOFTWARE, [3]uint64{
	unix.PERF_COUNT_SW_CPU_CLOCK, unix.PERF_COUNT_SW_CONTEXT_SWITCHES, unix.PERF_COUNT_SW_PAGE_FAULTS,
})

func TestAPartThatCannotCountEventsIsOpenedWithoutThem(t *testing.T) {
	skipUnlessPossible(t, tryScan())
	why := errors.New("no memory for events")
	scan, ends, ran := openScan, openEndings, openRan
	for name, fail := range map[string]func(t *testing.T){
		"scan": func(t *testing.T) {
			replace(t, &openScan, func(o tasks.Options) (lister, error) {
				if o.Events != nil {
					return nil, why
				}
				return scan(o)
			})
		},
		"exits": func(t *testing.T) {
			replace(t, &openEndings, func(o tasks.Options) (endings, error) {
				if o.Events != nil {
					return nil, why
				}
				return ends(o)
			})
		},
		"hook": func(t *testing.T) {
			replace(t, &openRan, func(with lister, events bool) (visitor, error) {
				if events {
					return nil, why
				}
				return ran(with, events)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			fail(t)
			source := openHereWith(t, Options{Hardware: softwareEvents})
			source.attachHook(t)
			var table proc.Table
			for range 2 {
				require.NoError(t, scanAll(source, &table))
			}
			assert.NotNil(t, table.Find(int32(os.Getpid())))
			assert.Equal(t, "bpf (task scan)", source.Traits().Name)
			require.NoError(t, source.Traits().Lacks)
			require.ErrorIs(t, source.Traits().Uncounted, why)
		})
	}
}

func TestTheEventsOfAProcessAreFoundInEachWindow(t *testing.T) {
	const faults = int(proc.CacheMisses)
	bothLists(t, func(t *testing.T) {
		source := openHereWith(t, Options{Hardware: softwareEvents})
		require.NoError(t, source.Traits().Uncounted)
		source.attachHook(t)
		var table proc.Table
		self := int32(os.Getpid())
		rescan := func() *proc.Process {
			require.NoError(t, scanAll(source, &table))
			return table.Find(self)
		}
		for range 2 {
			rescan()
		}
		before := minorFaults(t)
		rescan()
		require.True(t, table.Counting.Valid)

		pages := 1000
		memory, err := unix.Mmap(-1, 0, pages*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		require.NoError(t, err)
		defer func() { require.NoError(t, unix.Munmap(memory)) }()
		require.NoError(t, unix.Madvise(memory, unix.MADV_NOHUGEPAGE))
		for i := range pages {
			memory[i*os.Getpagesize()] = 1
		}
		turn(20_000_000) // longer than a tick of the scheduler, without a wait
		p := rescan()
		after := minorFaults(t)
		assert.GreaterOrEqual(t, p.Counted[faults], uint64(pages))
		assert.LessOrEqual(t, p.Counted[faults], uint64(after-before))
		assert.Greater(t, p.Counted[proc.Cycles], uint64(time.Millisecond))
	})
}

func minorFaults(t *testing.T) int64 {
	var usage unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return usage.Minflt
}
