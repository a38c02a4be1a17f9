// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"errors"
	"os"
	"path/filepath"
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

// atOnce is a clock by which nothing takes time.
func atOnce() time.Duration { return 0 }

// slowly returns a clock by which reading takes so long that it is done once a second.
func slowly() func() time.Duration {
	var now time.Duration
	return func() time.Duration { now += 5 * time.Millisecond; return now }
}

// newPrecise returns a clock of a machine, which may be divided.
func newPrecise(t testing.TB, root string, topology *divide.Topology, now func() time.Duration) *preciseClock {
	stat := NewStatClock(root)
	if topology != nil {
		stat.divide(topology)
	}
	p := newPreciseClock(root, stat, &proc.Table{}, now)
	t.Cleanup(func() { assert.NoError(t, errors.Join(p.Close(), stat.Close())) })
	return p
}

func TestThePreciseClockResolvesWindowsShorterThanATick(t *testing.T) {
	root := t.TempDir()
	cpus := filepath.Join(root, "sys/devices/system/cpu")
	require.NoError(t, os.MkdirAll(cpus, 0o755))
	online := filepath.Join(cpus, "online")
	r := newPrecise(t, root, nil, atOnce)
	table, now := r.table, time.Now()
	node := func(run units.CPUTime) Node {
		t.Helper()
		table.Charges = []proc.Charge{{Slot: -1, CPU: run}}
		now = now.Add(time.Second)
		times, err := r.Read(now)
		require.NoError(t, err)
		return times.Node
	}
	_, err := r.Read(now)
	require.ErrorIs(t, err, os.ErrNotExist)
	dividetest.Put(t, root, map[string]string{"proc/stat": statOf(0, 0)})
	require.NoError(t, os.WriteFile(online, []byte("0-2,5\n"), 0o644))
	assert.Zero(t, node(77*ms), "the baseline")
	assert.Equal(t, Node{Busy: 3 * ms, Process: 3 * ms, Total: 4 * units.Second}, node(3*ms))
	require.NoError(t, os.WriteFile(online, []byte("0\n"), 0o644))
	assert.Equal(t, Node{Busy: 5 * ms, Process: 5 * ms, Total: 5 * units.Second}, node(2*ms))
	require.NoError(t, os.WriteFile(online, []byte("?"), 0o644))
	assert.Equal(t, 6*units.Second, node(0).Total, "as many as were last known")
	assert.Equal(t, 9*units.Second, node(3*units.Second).Total, "never less than what ran")
	table.Unseen.Untraced = 36_000 * units.Second // the whole life of a process whose end was lost
	before := r.node.Node
	lost := node(0)
	assert.Equal(t, before.Total+units.Second, lost.Total)
	assert.Equal(t, before.Busy+units.Second, lost.Busy, "no more than the window has room for")
	table.Unseen.Untraced = 0
	now = now.Add(-time.Hour)
	assert.Equal(t, 10*units.Second, node(0).Total, "no clock takes it back")
}

func TestStolenTimeIsNeitherBusyNorIdleInShortWindows(t *testing.T) {
	i := newInterrupted(t, slowly())
	window := func(d time.Duration, run units.CPUTime) Node { return i.window(d, proc.Process{Used: run})[0] }
	second := func(run, stolen int64) Node {
		i.host.CPU.User += run
		i.host.CPU.Steal += stolen
		i.host.CPU.Idle += 200 - run - stolen
		return window(time.Second, units.CPUTime(run)*Tick)
	}
	assert.Equal(t, Node{Busy: 300 * ms, Process: 300 * ms, Total: 1500 * ms}, second(30, 50))
	for range 9 {
		i.host.CPU.Steal += 10 // not read within a second
		stolen := window(100*time.Millisecond, 20*ms)
		assert.Equal(t, Node{Busy: 20 * ms, Process: 20 * ms, Total: 150 * ms}, stolen, "as much as in the second before")
	}
	assert.Equal(t, 190*ms, window(100*time.Millisecond, 190*ms).Total, "never less than what ran")
	assert.Equal(t, 2*units.Second, second(0, 0).Total, "nothing is stolen any more")
	i.host.CPU.Idle = 0 // a CPU went offline with its idle time
	i.host.CPU.Steal -= 10
	assert.Equal(t, 2*units.Second, window(time.Second, 0).Total)
}

// interrupted is a machine of two packages with a CPU each, whose windows are counted.
type interrupted struct {
	*testing.T
	host  *hostsim.Host
	r     *preciseClock
	table *proc.Table
	now   time.Time
	last  []Node // of the node and of the packages
}

func newInterrupted(t *testing.T, clock func() time.Duration) *interrupted {
	host := hostsim.New(t.TempDir())
	host.CPUs, host.EachCPU, host.Topology = 2, make([]hostsim.CPU, 2), []hostsim.Place{{Package: 0}, {Package: 1}}
	host.CPU.IRQ, host.EachCPU[0].IRQ = 1, 1
	require.NoError(t, host.Render())
	topology, err := divide.OpenTopology(host.Root())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, topology.Close()) })
	i := &interrupted{T: t, host: host, r: newPrecise(t, host.Root(), topology, clock), now: time.Now(), last: make([]Node, 3)}
	i.table = i.r.table
	i.table.Divide(topology)
	i.window(0)
	return i
}

// window returns what the node's and the packages' time grew by in a window.
func (i *interrupted) window(d time.Duration, ran ...proc.Process) (grown []Node) {
	i.Helper()
	require.NoError(i, i.host.Render())
	i.now = i.now.Add(d)
	i.table.Rows, i.table.Active = ran, nil
	for row := range ran {
		i.table.Active = append(i.table.Active, int32(row))
	}
	times, err := i.r.Read(i.now)
	require.NoError(i, err)
	for k, n := range append([]Node{times.Node}, times.Domains...) {
		grown = append(grown, n.since(i.last[k]))
		i.last[k] = n
	}
	return grown
}

// pass adds to what /proc/stat counts, in ticks: interrupts on each CPU, and idle time.
func (i *interrupted) pass(first, second, each int64) {
	for cpu, irq := range []int64{first, second} {
		i.host.EachCPU[cpu].SoftIRQ += irq
		i.host.EachCPU[cpu].Idle += each - irq
	}
	i.host.CPU.SoftIRQ += first + second
	i.host.CPU.Idle += 2*each - first - second
}

func TestInterruptsAreBusyInShortWindows(t *testing.T) {
	i := newInterrupted(t, slowly())
	app := proc.Process{Used: 20 * ms, Sight: proc.Sight{LastCPU: 1}}
	i.pass(3, 1, 10)
	assert.Equal(t, []Node{
		{Busy: 60 * ms, Total: 200 * ms, Process: 20 * ms, Interrupt: 40 * ms},
		{Busy: 30 * ms, Total: 100 * ms, Interrupt: 30 * ms},
		{Busy: 30 * ms, Total: 100 * ms, Process: 20 * ms, Interrupt: 10 * ms},
	}, i.window(100*time.Millisecond, app), "the first has its own")
	i.pass(20, 0, 100)
	i.window(time.Second)
	i.pass(90, 10, 10) // not read within a second
	assert.Equal(t, []Node{
		{Busy: 20 * ms, Total: 200 * ms, Interrupt: 20 * ms},
		{Busy: 20 * ms, Total: 100 * ms, Interrupt: 20 * ms},
		{Total: 100 * ms},
	}, i.window(100*time.Millisecond), "as many as in the last count")
	assert.Equal(t, Node{Busy: 205 * ms, Total: 205 * ms, Process: 185 * ms, Interrupt: 20 * ms},
		i.window(100*time.Millisecond, proc.Process{Used: 185 * ms})[0], "never less than what ran")
}

func TestShortWindowsHaveTheirOwnInterruptsWhereReadingIsQuick(t *testing.T) {
	i := newInterrupted(t, atOnce)
	for _, storm := range []int64{0, 5, 0, 1, 10, 2} {
		i.pass(storm, 0, 10)
		of := units.CPUTime(storm) * Tick
		assert.Equal(t, []Node{
			{Busy: of, Total: 200 * ms, Interrupt: of}, {Busy: of, Total: 100 * ms, Interrupt: of}, {Total: 100 * ms},
		}, i.window(100*time.Millisecond))
	}
	i.pass(5, 0, 10)
	i.host.CPU.Steal, i.host.EachCPU[1].Steal = 4, 4
	assert.Equal(t, []Node{
		{Busy: 50 * ms, Total: 160 * ms, Interrupt: 50 * ms},
		{Busy: 50 * ms, Total: 100 * ms, Interrupt: 50 * ms}, {Total: 60 * ms},
	}, i.window(100*time.Millisecond))
	i.pass(0, 0, 10)
	i.host.CPU.Steal, i.host.EachCPU[1].Steal = 104, 104 // more than there was
	stolen := i.window(100 * time.Millisecond)
	assert.Equal(t, []Node{{}, {}}, []Node{stolen[0], stolen[2]})
}

// The lines of many CPUs may all come to their next tick in one window.
func TestInterruptsInPackagesAddUpToTheNodesWhateverTheLinesOfCPUsShow(t *testing.T) {
	i := newInterrupted(t, atOnce)
	interrupts := func(node, first, second int64) (in [2]units.CPUTime) {
		i.pass(first, second, 10)
		i.host.CPU.SoftIRQ += node - first - second
		window := i.window(100 * time.Millisecond)
		assert.Equal(t, units.CPUTime(node)*Tick, window[0].Interrupt)
		return [2]units.CPUTime{window[1].Interrupt, window[2].Interrupt}
	}
	assert.Equal(t, [2]units.CPUTime{0, 0}, interrupts(2, 0, 0), "nothing shows where they were")
	assert.Equal(t, [2]units.CPUTime{3 * Tick, Tick}, interrupts(4, 6, 2))
	assert.Equal(t, [2]units.CPUTime{6 * Tick, 2 * Tick}, interrupts(8, 0, 0), "where they were before")
	assert.Equal(t, [2]units.CPUTime{0, 0}, interrupts(0, 1, 1))
	assert.Equal(t, [2]units.CPUTime{0, 9 * Tick}, interrupts(9, 0, 9))
	assert.Equal(t, [2]units.CPUTime{0, 10 * Tick}, interrupts(12, 0, 10), "no more than its CPU had")
}

// The columns of /proc/stat are whole ticks, also where a thread used less.
func TestKsoftirqdIsNoInterruptThoughItsTickComesLater(t *testing.T) {
	var o outside
	for window := range 10 {
		o.softirqd += 5 * ms
		o.count(&domainTime{}, &domainTime{Node: Node{Interrupt: units.CPUTime(window%2) * Tick}}, 100*ms)
		assert.Zero(t, o.interrupts)
	}
	o.softirqd += 10 * units.Second // of which the column shows nothing
	o.count(&domainTime{}, &domainTime{}, 100*ms)
	o.count(&domainTime{}, &domainTime{Node: Node{Interrupt: 5 * Tick}}, 100*ms)
	assert.Equal(t, 4*Tick, o.interrupts, "no debt but a tick")
}

// What processes do not claim is Node.Interrupt without Table.Softirqd, whichever source counts.
func TestKsoftirqdIsNoInterrupt(t *testing.T) {
	i := newInterrupted(t, atOnce)
	stat := NewStatClock(i.host.Root())
	stat.divide(i.r.stat.topology)
	t.Cleanup(func() { assert.NoError(t, stat.Close()) })
	counted := func() (interrupts []units.CPUTime) {
		times, err := stat.Read(i.now)
		require.NoError(t, err)
		return []units.CPUTime{times.Node.Interrupt, times.Domains[0].Interrupt, times.Domains[1].Interrupt}
	}
	last := counted()
	thread := proc.Process{Used: 30 * ms, Sight: proc.Sight{Flags: proc.Kernel}}
	copy(thread.Comm[:], "ksoftirqd/0")
	for range 3 {
		i.pass(5, 0, 10)
		window := i.window(100*time.Millisecond, thread)
		assert.Equal(t, Node{Busy: 50 * ms, Total: 200 * ms, Process: 30 * ms, Interrupt: 50 * ms}, window[0])
		now := counted()
		for k := range now {
			assert.Equal(t, now[k]-last[k], window[k].Interrupt, "as /proc/stat counts")
		}
		last = now
		parts := make([]units.CPUTime, 2)
		assert.Equal(t, thread.Used, i.table.Softirqd(parts))
		assert.Equal(t, []units.CPUTime{thread.Used, 0}, parts)
	}
	i = newInterrupted(t, atOnce)
	thread.Flags = 0
	i.pass(5, 0, 10)
	assert.Equal(t, 80*ms, i.window(100*time.Millisecond, thread)[0].Busy, "a user may take the name")
}

func TestTheTimeSinceTheLastScanIsThatOfProcStatAfterAHandOver(t *testing.T) {
	for name, busy := range map[string]int64{"busy": 14, "less than shown early": 2, "standing still": 0} {
		t.Run(name, func(t *testing.T) {
			i := newInterrupted(t, slowly())
			run := func(ticks int64) {
				i.host.EachCPU[1].User += ticks
				i.host.CPU.User += ticks
				require.NoError(t, i.host.Render())
			}
			i.window(time.Second, proc.Process{Used: 9 * Tick, Sight: proc.Sight{LastCPU: 1}})
			i.window(100*time.Millisecond, proc.Process{Used: 5 * Tick, Sight: proc.Sight{LastCPU: 1}}) // /proc/stat is not read
			run(busy)
			i.r.handOver()
			for k, n := range append([]Node{i.r.stat.node.Node}, i.r.stat.times().Domains...) {
				grown := n.since(i.last[k])
				assert.Equal(t, grown.Process, grown.Busy)
				assert.Equal(t, []units.CPUTime{1, 0, 1}[k]*Tick*units.CPUTime(max(busy, 5)-5), grown.Process)
			}
		})
	}
}
