// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// exitNames finds the names of the processes of a group that no scan of the group has seen. It uses
// a source of the whole machine. A nil exitNames finds no names.
type exitNames struct {
	source  Names
	path    func() string
	table   *proc.Table
	members map[int32]rowTime // the processes of the group at the last call of name
}

// rowTime is CPU time in the row of a process: the total, and the part between the latest two calls
// of name.
type rowTime struct{ all, last units.CPUTime }

// AwaitNames makes scans list the processes, and wait for the exits of short-lived processes if
// these used more than 2 % of the group's CPU time. Call it before the last scan.
func (c *Source) AwaitNames() { c.last.Store(true) }

// Names is a CPU time source of the whole machine, such as cpu.BPF. It was opened with
// cpu.Options.Names.
type Names interface {
	cpu.Source
	// AwaitExits waits until the next scan will report all exits until now.
	AwaitExits()
}

// NameBy makes the source report the names of short-lived processes in Table.Charges, if another
// source reports them. path returns the path of the group's cgroup in the v2 hierarchy, or an empty
// string if the group has no cgroup. It must be called before the first scan. Close closes the
// other source.
func (c *Source) NameBy(source Names, path func() string) {
	c.names = &exitNames{source: source, path: path, table: proc.New(source.Traits().Traits)}
}

func (n *exitNames) close() error {
	if n == nil {
		return nil
	}
	return n.source.Close()
}

// name charges the CPU time of processes without a row, rest, by name, and returns the charged
// time. Processes without a name remain. If await is set, it waits for exits (Source.AwaitNames).
// total is the CPU time of the group.
func (n *exitNames) name(s *proc.Scan, rest, total units.CPUTime, await bool) (named units.CPUTime) {
	if n == nil {
		return 0
	}
	before := n.members
	n.members = make(map[int32]rowTime, len(s.Rows))
	for p := range s.Table().All() {
		m := rowTime{p.CPU, p.Used}
		if was, ok := before[p.PID]; ok {
			m.last = units.Advance(was.all, p.CPU)
		}
		n.members[p.PID] = m
	}
	if await && rest > total/50 {
		n.source.AwaitExits()
	}
	if n.source.Scan(n.table, cpu.Request{Want: cpu.Want{All: true}}) != nil || n.table.Scans() == 1 {
		return 0
	}
	shown := map[int32]units.CPUTime{} // in the rows of exited processes, since the last call
	for i := range s.Ended {
		if was, ok := before[s.Ended[i].PID]; ok {
			shown[s.Ended[i].PID] = units.Advance(was.all, s.Ended[i].CPU)
		}
	}
	used, all := n.used(shown, func(pid int32) bool {
		_, isMember := n.members[pid]
		_, wasMember := before[pid]
		return isMember || wasMember
	})
	named = share(s, used, min(all, rest))
	// The kernel reports the exit of a process up to an RCU grace period late. The rest is
	// divided among the processes that ended, in proportion to their CPU time in the last interval.
	clear(used)
	for i := range s.Ended {
		used[s.Ended[i].Comm] += before[s.Ended[i].PID].last
	}
	return named + share(s, used, rest-named)
}

// share charges an amount of CPU time by name, in proportion to weights. It returns the amount, or
// 0 if there are no weights.
func share(s *proc.Scan, weights map[proc.Comm]units.CPUTime, amount units.CPUTime) (given units.CPUTime) {
	division := units.Division{Amount: uint64(amount)}
	for _, w := range weights {
		division.Total += uint64(w)
	}
	for _, comm := range slices.SortedFunc(maps.Keys(weights), func(a, b proc.Comm) int { return bytes.Compare(a[:], b[:]) }) {
		if part := units.CPUTime(division.Next(uint64(weights[comm]))); part > 0 {
			s.Charge(proc.Charge{Slot: -1, Named: true, Comm: comm, Path: groupPath, CPU: part})
			given += part
		}
	}
	return given
}

// used returns the CPU time since the last scan of the exited processes of the group, by name, and
// the sum. It leaves out shown, the CPU time by PID that rows have reported.
func (n *exitNames) used(shown map[int32]units.CPUTime, isMember func(pid int32) bool) (used map[proc.Comm]units.CPUTime, all units.CPUTime) {
	used = map[proc.Comm]units.CPUTime{}
	add := func(comm proc.Comm, run units.CPUTime) {
		if run > 0 {
			used[comm] += run
			all += run
		}
	}
	for i := range n.table.Ended {
		if e := &n.table.Ended[i]; isMember(e.PID) {
			add(e.Comm, units.Advance(shown[e.PID], e.LastSlice))
		}
	}
	self, below := int32(os.Getpid()), cmp.Or(n.path(), "/")
	for i := range n.table.Charges {
		c := &n.table.Charges[i]
		inside := c.Slot < 0 && below != "/" && (c.Path == below || strings.HasPrefix(c.Path, below+"/"))
		if c.Slot >= 0 { // of a process in the same cgroup, or of the nearest ancestor
			pid := n.table.Rows[c.Slot].PID
			inside = pid == self || isMember(pid)
		}
		if inside && c.Named {
			add(c.Comm, c.CPU)
		}
	}
	return used, all
}
