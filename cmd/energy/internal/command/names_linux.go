// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
)

// exitNames finds the names of the processes of a group that no scan of the group has seen, by a
// source of the whole machine. It may be nil.
type exitNames struct {
	source  Names
	path    func() string
	table   scan.Table
	members map[int32]bool // the processes of the group in the last scan
	await   atomic.Bool    // see Source.AwaitNames
}

// AwaitNames makes scans wait for the exits of short-lived processes if these used more than 2 % of the
// group's CPU time. Call it before the last scan.
func (c *Source) AwaitNames() {
	if c.names != nil {
		c.names.await.Store(true)
	}
}

// Names is a CPU time source of the whole machine, such as cpu.BPF. It was opened with
// cpu.Options.Names.
type Names interface {
	cpu.Source
	// AwaitExits waits until the next scan has the exits until now.
	AwaitExits()
}

// NameBy makes the source report the names of short-lived processes in Table.ShortLivedBy, if
// another source reports them. path returns the path of the group's cgroup in the v2 hierarchy, or
// an empty string if the group has no cgroup. It must be called before the first scan. Close closes the
// other source.
func (c *Source) NameBy(source Names, path func() string) {
	c.names = &exitNames{source: source, path: path}
}

func (n *exitNames) close() error {
	if n == nil {
		return nil
	}
	return n.source.Close()
}

// name lists the part of t.ShortLived with a name, by name, and returns its CPU time. total is the CPU
// time of the group.
func (n *exitNames) name(t *scan.Table, total units.CPUTime) (named units.CPUTime) {
	if n == nil {
		return 0
	}
	members := make(map[int32]bool, len(t.Processes))
	for i := range t.Processes {
		members[t.Processes[i].PID] = true
	}
	before := n.members
	n.members = members
	if n.await.Load() && t.ShortLived > total/50 {
		n.source.AwaitExits()
	}
	if n.source.Scan(&n.table, cpu.Request{Want: cpu.Want{All: true}}) != nil || n.table.Scans() == 1 {
		return 0
	}
	used, all := n.used(func(pid int32) bool { return members[pid] || before[pid] })
	named = share(t, used, min(all, t.ShortLived))
	// The kernel reports the exit of a process up to an RCU grace period late. The rest is
	// divided among the processes that ended, in proportion to their CPU time in the last interval.
	clear(used)
	for i := range t.Ended {
		used[t.Ended[i].Comm] += t.Ended[i].Used
	}
	return named + share(t, used, t.ShortLived-named)
}

// share lists an amount of CPU time by name, in proportion to weights. It returns the amount, or 0
// if there are no weights.
func share(t *scan.Table, weights map[scan.Comm]units.CPUTime, amount units.CPUTime) (given units.CPUTime) {
	division := units.Division{Amount: uint64(amount)}
	for _, w := range weights {
		division.Total += uint64(w)
	}
	for _, comm := range slices.SortedFunc(maps.Keys(weights), func(a, b scan.Comm) int { return bytes.Compare(a[:], b[:]) }) {
		if part := units.CPUTime(division.Next(uint64(weights[comm]))); part > 0 {
			t.ShortLivedBy = append(t.ShortLivedBy, scan.NamedTime{Comm: comm, Row: -1, Path: groupPath, Used: part})
			given += part
		}
	}
	return given
}

// used returns the CPU time since the last scan of the exited processes of the group, by name, and
// the sum.
func (n *exitNames) used(isMember func(pid int32) bool) (used map[scan.Comm]units.CPUTime, all units.CPUTime) {
	used = map[scan.Comm]units.CPUTime{}
	add := func(comm scan.Comm, run units.CPUTime) {
		if run > 0 {
			used[comm] += run
			all += run
		}
	}
	for i := range n.table.Ended {
		if e := &n.table.Ended[i]; isMember(e.PID) {
			add(e.Comm, e.LastSlice)
		}
	}
	self, below := int32(os.Getpid()), cmp.Or(n.path(), "/")
	for i := range n.table.ShortLivedBy {
		by := &n.table.ShortLivedBy[i]
		inside := by.Row < 0 && below != "/" && (by.Path == below || strings.HasPrefix(by.Path, below+"/"))
		if by.Row >= 0 { // of a process in the same cgroup, or of the nearest ancestor
			pid := n.table.Processes[by.Row].PID
			inside = pid == self || isMember(pid)
		}
		if inside {
			add(by.Comm, by.Used)
		}
	}
	return used, all
}
