// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// fakeGroup is a group on a simulated host.
type fakeGroup struct {
	used   units.CPUTime
	pids   []int32
	err    error
	listed int // how often its processes were listed
}

func (g *fakeGroup) Used() (units.CPUTime, error) { return g.used, g.err }

func (g *fakeGroup) Processes(yield func(int32)) error {
	g.listed++
	for _, pid := range g.pids {
		yield(pid)
	}
	return g.err
}

// commandHost is a host of two CPUs with a group.
type commandHost struct {
	*hostsim.Host
	group  fakeGroup
	reader *cpu.Reader
	now    time.Time
	last   cpu.Node
}

func newCommandHost(t *testing.T) *commandHost {
	h := &commandHost{Host: hostsim.New(t.TempDir()), now: time.Now()}
	h.CPUs = 2
	cpus := filepath.Join(h.Root(), "sys/devices/system/cpu")
	require.NoError(t, os.MkdirAll(cpus, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(cpus, "online"), []byte("0-1\n"), 0o644))
	h.reader = newReader(h.Root(), NewSource(h.Root(), &h.group))
	t.Cleanup(func() { assert.NoError(t, h.reader.Close()) })
	h.scan(t, 0)
	return h
}

func newReader(root string, source *Source) *cpu.Reader {
	return cpu.NewReader(source, cpu.Options{Root: root, Clock: source})
}

// reopen replaces the reader by one of another source, and scans.
func (h *commandHost) reopen(t *testing.T, source *Source) {
	t.Helper()
	require.NoError(t, h.reader.Close())
	h.reader = newReader(h.Root(), source)
	h.scan(t, 0)
}

// scan lets time pass and scans. It returns what the node's CPU time grew by.
func (h *commandHost) scan(t *testing.T, d time.Duration) cpu.Node {
	t.Helper()
	require.NoError(t, h.Render())
	h.now = h.now.Add(d)
	node, err := h.reader.Begin(h.now, cpu.Want{All: true})
	require.NoError(t, err)
	_, err = h.reader.Read()
	require.NoError(t, err)
	grown := cpu.Node{Busy: node.Busy - h.last.Busy, Total: node.Total - h.last.Total, Process: node.Process - h.last.Process}
	h.last = node
	return grown
}

// shown returns what the rows and the short-lived processes of the scan used.
func (h *commandHost) shown() (rows, short units.CPUTime) {
	table := h.reader.Table()
	for _, slot := range table.Active {
		rows += table.Rows[slot].Used
	}
	for i := range table.Charges {
		short += table.Charges[i].CPU
	}
	return rows, short
}

func TestACommandsCPUTimeIsThatOfItsGroupAndTheRestOfTheNodeIsHidden(t *testing.T) {
	h := newCommandHost(t)
	h.Processes[70] = &hostsim.Process{Parent: 1, Comm: "make", Start: int64(h.Uptime/10/time.Millisecond) + 1, User: 30}
	h.group.pids = []int32{70, 71} // 71 has ended meanwhile
	h.group.used = 456_789_012
	h.CPU.User, h.CPU.Idle = h.CPU.User+100, h.CPU.Idle+100
	node := h.scan(t, time.Second)
	assert.Equal(t, cpu.Node{Busy: units.Second, Process: units.Second, Total: 2 * units.Second}, node)
	rows, short := h.shown()
	assert.Equal(t, 300*millisecond, rows)
	assert.Equal(t, h.group.used, rows+short)
	assert.True(t, h.reader.Table().Unseen.Hidden)

	h.Processes[70].User += 20 // in ticks, which may be more than the group used
	h.group.used += 11 * millisecond
	h.scan(t, time.Second)
	rows, short = h.shown()
	assert.Equal(t, 11*millisecond, rows+short)

	h.group.used += 9 * millisecond
	h.scan(t, time.Second)
	rows, short = h.shown()
	assert.Equal(t, 9*millisecond, rows, "the excess of the scan before")
	assert.Zero(t, short)

	delete(h.Processes, 70)
	h.group.pids, h.group.used = nil, h.group.used+3*millisecond
	h.scan(t, time.Second)
	rows, short = h.shown()
	assert.Zero(t, rows)
	assert.Equal(t, 3*millisecond, short, "what was used before the end")
}

// clocked is a host with a group of one old process, which has a CPU clock.
type clocked struct {
	*commandHost
	source *Source
	clock  map[int32]units.CPUTime
}

func newClocked(t *testing.T) *clocked {
	h := &clocked{commandHost: newCommandHost(t), clock: map[int32]units.CPUTime{70: 0}}
	h.Processes[70], h.group.pids = &hostsim.Process{Parent: 1, Comm: "server", Start: 1}, []int32{70}
	h.source = NewSource(h.Root(), &h.group)
	h.source.clock = func(pid int32) (used units.CPUTime, err error) {
		used, ok := h.clock[pid]
		if !ok {
			err = unix.EINVAL
		}
		return used, err
	}
	h.reopen(t, h.source)
	return h
}

// window runs a short window. It returns the CPU time in rows, the CPU time in no row, and the number
// of listings.
func (h *clocked) window(t *testing.T, clock, group units.CPUTime) (rows, short units.CPUTime, listed int) {
	t.Helper()
	time.Sleep(10 * time.Millisecond)
	before := h.group.listed
	if _, ok := h.clock[70]; ok {
		h.clock[70] += clock
	}
	h.group.used += group
	h.now = h.now.Add(10 * time.Millisecond)
	_, err := h.reader.Begin(h.now, cpu.Want{})
	require.NoError(t, err)
	_, err = h.reader.Read()
	require.NoError(t, err)
	rows, short = h.shown()
	return rows, short, h.group.listed - before
}

func TestShortWindowsReadTheClocksOfTheListedProcessesUnlessTheseLackCPUTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newClocked(t)
		expect := func(clock, group, rows, short units.CPUTime, listed int) {
			t.Helper()
			gotRows, gotShort, gotListed := h.window(t, clock, group)
			assert.Equal(t, []any{rows, short, listed}, []any{gotRows, gotShort, gotListed})
		}
		expect(5*millisecond, 5*millisecond, 5*millisecond, 0, 0)
		expect(0, 0, 0, 0, 0)
		expect(5*millisecond, 6*millisecond, 5*millisecond, 0, 0)
		expect(5*millisecond, 7*millisecond, 5*millisecond, 3*millisecond, 1) // of another process
		expect(5*millisecond, 3*millisecond, 3*millisecond, 0, 0)
		time.Sleep(relist)
		expect(0, 2*millisecond, 2*millisecond, 0, 1)
		h.Processes[71] = &hostsim.Process{Parent: 1, Comm: "sh", Start: int64(h.Uptime/10/time.Millisecond) + 1}
		require.NoError(t, h.Render())
		h.group.pids, h.clock[71] = []int32{70, 71}, 0
		time.Sleep(relist)
		expect(0, 0, 0, 0, 1)
		expect(0, 0, 0, 0, 1) // the young process may execute another program
		delete(h.clock, 71)
		delete(h.Processes, 71)
		require.NoError(t, h.Render())
		expect(0, millisecond, 0, millisecond, 1)
		expect(0, 0, 0, 0, 0)
	})
}

func TestCPUTimeOfShortLivedProcessesAddsUpOverShortWindowsAndIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, names := newClocked(t), &fakeNames{}
		h.source.NameBy(names, func() string { return "/a/group" })
		h.scan(t, 0) // the baseline of the names
		used, named := units.CPUTime(0), units.CPUTime(0)
		names.fill = func(s *proc.Scan) {
			s.Charge(proc.Charge{Slot: -1, Named: true, Comm: commOf("as"), Path: "/a/group", CPU: used - named})
		}
		for range 24 {
			used += 9 * millisecond / 10
			_, short, _ := h.window(t, 0, 9*millisecond/10)
			by, rest := h.named()
			named += by["as"]
			assert.Equal(t, by["as"], short)
			assert.Zero(t, rest, "without a name")
			assert.LessOrEqual(t, used-named, unexplained)
		}
		used += 9 * millisecond / 10
		h.source.AwaitNames() // the last scan lists the processes
		_, short, listed := h.window(t, 0, 9*millisecond/10)
		assert.Equal(t, 1, listed)
		assert.Equal(t, used, named+short)
	})
}

// laggingGroup is a group that uses CPU time between its reading and those of its processes.
type laggingGroup struct{ fakeGroup }

func (g *laggingGroup) Processes(yield func(int32)) error {
	g.used += 2 * millisecond
	return g.fakeGroup.Processes(yield)
}

func TestTheCPUTimeOfAProcessThatRunsBeforeTheFirstScanIsAllOfItsRow(t *testing.T) {
	h := newCommandHost(t)
	group := &laggingGroup{fakeGroup{used: 5 * millisecond, pids: []int32{70}}}
	h.Processes[70] = &hostsim.Process{Parent: 1, Comm: "server", Start: 1, User: 30}
	h.reopen(t, NewSource(h.Root(), group))
	rows, short := h.shown()
	assert.Zero(t, rows+short)
	h.Processes[70].User++
	group.used += 8 * millisecond
	h.scan(t, time.Second)
	rows, short = h.shown()
	assert.Equal(t, 8*millisecond, rows)
	assert.Zero(t, short)
}

func TestTheNodeIsNeverLessBusyThanTheCommandAndMakesUpForLateTicks(t *testing.T) {
	h := newCommandHost(t)
	h.group.used += 90 * millisecond
	h.CPU.Idle += 20 // no tick of the command yet, and those of 0.2 s of idle time
	node := h.scan(t, 100*time.Millisecond)
	assert.Equal(t, 90*millisecond, node.Busy)
	assert.Equal(t, 200*millisecond, node.Total)
	h.CPU.User += 9
	h.CPU.Idle += 11
	node = h.scan(t, 100*time.Millisecond)
	assert.Zero(t, node.Busy, "it was counted before")

	h.CPU.User += 12 // late ones
	h.CPU.Idle += 10
	node = h.scan(t, 100*time.Millisecond)
	assert.Equal(t, 100*millisecond, node.Busy, "what is not idle")
	assert.Equal(t, 200*millisecond, node.Total, "the ticks of /proc/stat make no time")
}

func TestTimeThatAnotherMachineHadIsTheNodesAndNotBusy(t *testing.T) {
	h := newCommandHost(t)
	h.CPU.User, h.CPU.Steal, h.CPU.IRQ, h.CPU.Idle = h.CPU.User+50, h.CPU.Steal+60, h.CPU.IRQ+10, h.CPU.Idle+80
	assert.Equal(t, cpu.Node{Busy: 600 * millisecond, Process: 600 * millisecond, Total: 2 * units.Second}, h.scan(t, time.Second))
}

func TestTheBusyTimeOfAStatThatIsNotThisMachinesIsTakenAsItIs(t *testing.T) {
	h := newCommandHost(t)
	h.group.used = 5 * millisecond
	assert.Equal(t, cpu.Node{Busy: 5 * millisecond, Process: 5 * millisecond, Total: 20 * units.Second}, h.scan(t, 10*time.Second), "a sandbox counts nothing")
}

func TestAScanOfACommandThatFailsIsMadeUpForByTheNext(t *testing.T) {
	h := newCommandHost(t)
	h.group.used, h.group.err = 5*millisecond, errors.New("gone")
	_, err := h.reader.Begin(h.now.Add(time.Second), cpu.Want{All: true})
	require.ErrorIs(t, err, h.group.err)
	h.group.err = nil
	_, err = h.reader.Begin(h.now.Add(2*time.Second), cpu.Want{All: true})
	require.NoError(t, err)
	h.group.err = errors.New("gone again")
	w, err := h.reader.Read()
	require.ErrorIs(t, err, h.group.err)
	assert.False(t, w.Replaced)
	h.group.err = nil
	h.group.used += 2 * millisecond
	node := h.scan(t, 3*time.Second)
	assert.Equal(t, 6*units.Second, node.Total)
	_, short := h.shown()
	assert.Equal(t, 7*millisecond, short)
}

func TestACommandIsNeverReplacedByProcfs(t *testing.T) {
	h := newCommandHost(t)
	h.group.err = errors.New("gone")
	for range 6 {
		_, _ = h.reader.Begin(h.now, cpu.Want{All: true})
		w, err := h.reader.Read()
		require.Error(t, err)
		assert.False(t, w.Replaced)
	}
	h.group.err = nil
	h.scan(t, time.Second)
	assert.Equal(t, "command", h.reader.Traits().Name)
}
