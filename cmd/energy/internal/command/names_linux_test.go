// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

const millisecond = units.CPUTime(time.Millisecond)

// fakeNames is a source of the whole machine.
type fakeNames struct {
	cpu.Source
	awaited, closed bool
	err             error
	fill            func(s *proc.Scan)
}

func (f *fakeNames) AwaitExits()  { f.awaited = true }
func (f *fakeNames) Close() error { f.closed = true; return nil }

func (*fakeNames) Traits() cpu.Traits { return cpu.Traits{Traits: proc.Traits{Exact: true}} }

func (f *fakeNames) Scan(t *proc.Table, _ cpu.Request) error {
	s := t.Begin(t.Now + time.Second)
	if f.err != nil {
		return f.err
	}
	if f.fill != nil {
		f.fill(s)
	}
	s.End(0)
	return nil
}

// see reports processes that have used some CPU time.
func see(s *proc.Scan, comm string, used units.CPUTime, pids ...int32) {
	for _, pid := range pids {
		s.See(&proc.Sight{ID: proc.ID{PID: pid}, Comm: commOf(comm), CPU: used})
	}
}

func commOf(name string) (c proc.Comm) {
	copy(c[:], name)
	return c
}

// named returns the CPU time of the scan by name, and that without a name.
func (h *commandHost) named() (by map[string]units.CPUTime, rest units.CPUTime) {
	by = map[string]units.CPUTime{}
	table := h.reader.Table()
	for i := range table.Charges {
		if c := &table.Charges[i]; c.Named {
			by[c.Comm.String()] += c.CPU
		} else {
			rest += c.CPU
		}
	}
	return by, rest
}

func TestShortLivedProcessesOfACommandHaveNames(t *testing.T) {
	h := newCommandHost(t)
	names := &fakeNames{}
	c := NewSource(h.Root(), &h.group)
	c.NameBy(names, func() string { return "/a/group" })
	h.reopen(t, c)

	h.Processes[70] = &hostsim.Process{Parent: 1, Comm: "make", Start: int64(h.Uptime/10/time.Millisecond) + 1, User: 10}
	h.group.pids, h.group.used = []int32{70}, 400*millisecond
	names.fill = func(s *proc.Scan) {
		see(s, "", 0, 1, 70, int32(os.Getpid()))
		for _, c := range []proc.Charge{
			{Comm: commOf("cc1"), Slot: 1, CPU: 100 * millisecond},
			{Comm: commOf("cc1"), Slot: 2, CPU: 50 * millisecond},
			{Comm: commOf("as"), Slot: -1, Path: "/a/group/command", CPU: 30 * millisecond},
			{Comm: commOf("foreign"), Slot: 0, CPU: units.Second},
			{Comm: commOf("foreign"), Slot: -1, Path: "/a/group2", CPU: units.Second},
		} {
			c.Named = true
			s.Charge(c)
		}
	}
	h.scan(t, time.Second)
	by, rest := h.named()
	assert.Equal(t, map[string]units.CPUTime{"cc1": 150 * millisecond, "as": 30 * millisecond}, by)
	assert.Equal(t, 120*millisecond, rest)

	h.group.used += 20 * millisecond // less than the names report
	h.scan(t, time.Second)
	by, rest = h.named()
	assert.Equal(t, 20*millisecond, by["cc1"]+by["as"])
	assert.Zero(t, rest)

	h.Processes[70].User += 5
	h.group.used, names.fill = h.group.used+50*millisecond, nil
	h.scan(t, time.Second)
	delete(h.Processes, 70)
	h.group.pids, h.group.used = nil, h.group.used+7*millisecond
	names.fill = func(s *proc.Scan) {
		see(s, "make", 2*millisecond, 70)
		s.Miss(s.Table().Find(70))
	}
	h.scan(t, time.Second)
	by, rest = h.named()
	assert.Equal(t, map[string]units.CPUTime{"make": 7 * millisecond}, by, "the rest is of the process that ended")
	assert.Zero(t, rest)

	names.err = errors.New("failed")
	h.group.used += 3 * millisecond
	h.scan(t, time.Second)
	by, rest = h.named()
	assert.Empty(t, by)
	assert.Equal(t, 3*millisecond, rest)
	require.NoError(t, c.Close())
	assert.True(t, names.closed)
}

func TestTheLastScanOfACommandWaitsForTheNamesOfExits(t *testing.T) {
	h := newCommandHost(t)
	names := &fakeNames{}
	names.fill = func(s *proc.Scan) {
		if names.awaited {
			s.Charge(proc.Charge{Slot: -1, Named: true, Comm: commOf("python3"), Path: "/a/group", CPU: units.Second})
		}
	}
	c := NewSource(h.Root(), &h.group)
	c.NameBy(names, func() string { return "/a/group" })
	h.reopen(t, c)
	h.group.used = units.Second
	h.scan(t, time.Second)
	assert.False(t, names.awaited, "another scan follows")

	c.AwaitNames()
	h.group.used += 20 * millisecond
	h.scan(t, time.Second)
	assert.False(t, names.awaited, "it is 2 % of the command")

	h.group.used += 21 * millisecond
	h.scan(t, time.Second)
	by, rest := h.named()
	assert.Equal(t, map[string]units.CPUTime{"python3": 21 * millisecond}, by)
	assert.Zero(t, rest)
}

func TestNamesShareNoCPUTimeThatRowsHaveShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, names := newClocked(t), &fakeNames{}
		names.fill = func(s *proc.Scan) { see(s, "server", 0, 70) }
		h.source.NameBy(names, func() string { return "/a/group" })
		h.scan(t, 0) // the baseline of the names
		names.fill = func(*proc.Scan) { t.Error("a short window needs no names") }
		for range 9 {
			h.window(t, 10*millisecond, 10*millisecond)
		}
		delete(h.clock, 70)
		delete(h.Processes, 70)
		require.NoError(t, h.Render())
		h.group.pids = nil
		names.fill = func(s *proc.Scan) {
			see(s, "server", 100*millisecond, 70)
			s.Miss(s.Table().Find(70))
			s.Charge(proc.Charge{Slot: -1, Named: true, Comm: commOf("cc1"), Path: "/a/group", CPU: 10 * millisecond})
		}
		h.window(t, 0, 20*millisecond)
		by, rest := h.named()
		assert.Equal(t, map[string]units.CPUTime{"server": 10 * millisecond, "cc1": 10 * millisecond}, by)
		assert.Zero(t, rest)
	})
}
