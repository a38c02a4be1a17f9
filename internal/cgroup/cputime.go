// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"errors"
	"math"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// cpuTime compares the CPU counter of a cgroup to the CPU time of its processes. The counter
// includes all processes. The difference is CPU time of short-lived processes.
type cpuTime struct {
	known     bool // the counter was read in an earlier interval
	first     bool // the counter was read for the first time in this interval
	current   bool // the counter was read in this interval
	older     bool // the cgroup is older than the processes that entered first
	seen      bool // a process of the cgroup itself was accounted for in this interval
	claimant  int32
	processes int   // number of processes accounted for in this interval, including descendant cgroups
	replaced  int32 // see source

	counter    units.CPUTime
	base       units.CPUTime // the counter when watching began
	accounted  units.CPUTime // CPU time of processes since then
	shortLived units.CPUTime // CPU time that was reported as short-lived since then
}

// ReadCPUTime reads the CPU counters of all Nodes, and of the cgroups that are watched. It precedes
// the scan: CPU time between a scan and a later reading would be attributed to short-lived
// processes. Only counters of nodes that are created during the scan are read after it.
//
// A counter that cannot be read does not advance. If another cgroup has replaced the previous one,
// or if the counter is below its previous value, the whole value of the counter counts as new CPU
// time.
//
// The cgroups directly below the root are read first, only for speed. Reading one of them flushes
// the CPU time of all its descendants in one walk (kernel/cgroup/rstat.c, css_rstat_flush).
// Otherwise the kernel searches the list of updated siblings for each cgroup. Reading the root does
// not flush descendants.
func (t *Tree) ReadCPUTime() {
	t.total.known = false
	if t.least > 0 || len(t.nodes) > 1 {
		t.total.known = t.total.find(t)
	}
	for _, n := range t.total.nodes {
		if !n.listed {
			t.advance(n)
		}
	}
	for _, n := range t.nodes {
		n.cpu.processes, n.cpu.first = 0, false
		n.cpu.advance(t.advance(n))
	}
	for _, n := range t.byPath {
		switch {
		case n.listed || n.outermost:
		case t.least > 0 && n.holds >= t.least:
			t.advance(n)
		default:
			n.growth = growth{}
		}
	}
	t.total.freeUnread(t)
}

// ReadNew reads the CPU counters of the nodes made since ReadCPUTime.
func (t *Tree) ReadNew() {
	for _, n := range t.nodes {
		t.readNew(n)
	}
}

func (t *Tree) readNew(n *Node) {
	if !n.cpu.known {
		now := t.readCPU(n)
		n.cpu.advance(&now)
	}
}

// advance updates the CPU time with a reading of the counter.
func (c *cpuTime) advance(now *reading) {
	if c.current = now.ok; !now.ok {
		return
	}
	if c.known && (now.replaced != c.replaced || now.counter < c.counter) {
		*c = cpuTime{current: true}
	}
	if !c.known {
		c.known, c.first = true, true
		if c.older {
			c.base, c.accounted = now.counter, 0
		}
	}
	c.counter, c.replaced = now.counter, now.replaced
}

// Account records the CPU time that a running or exited process of the cgroup used in the interval.
// A counter includes descendant cgroups, so the time is accounted for in all ancestors as well.
// claimant is the caller's number for the process. ShortLived returns it.
func (n *Node) Account(claimant int32, used units.CPUTime) {
	if n == nil {
		return
	}
	n.cpu.claimant, n.cpu.seen = claimant, true
	n.account(nil, 1, used)
}

// AccountChildren records the CPU time of exited children of a process that was accounted for.
func (n *Node) AccountChildren(used units.CPUTime) {
	n.account(nil, 0, used)
}

// account adds to the nodes from n up to top, excluding top.
func (n *Node) account(top *Node, processes int, used units.CPUTime) {
	for ; n != top; n = n.parent {
		n.cpu.processes += processes
		n.cpu.accounted += used
	}
}

// AccountMove records CPU time of a process that moved between two cgroups. The time was accounted
// for in to. AccountMove adds it to from and to the ancestors of from that do not contain to,
// because the counter of either cgroup may include it. Either may be nil.
func AccountMove(from, to *Node, used units.CPUTime) {
	top := from
	for top != nil && (to == nil || to != top && !isInside(to.path, top.path)) {
		top = top.parent
	}
	from.account(top, 1, used)
}

// Clamp returns inferred, limited to the time that the counters of the cgroup and of its ancestors
// leave unaccounted.
func (n *Node) Clamp(inferred units.CPUTime) units.CPUTime {
	for ; n != nil; n = n.parent {
		if c := &n.cpu; c.current {
			inferred = min(inferred, units.Advance(c.base+c.accounted+c.shortLived, c.counter))
		}
	}
	return inferred
}

// ShortLived calls yield for each cgroup with an accounted process in this interval, innermost
// first, with the CPU time in its counter that was not accounted for. first reports whether the
// counter was read for the first time, so that it may include CPU time of earlier intervals. The
// CPU time of each process may lag behind the counter by rounding, and the CPU time of all
// processes of a cgroup together by late. These differences do not count as short-lived processes.
//
// ShortLived reads the counters of nodes made since ReadCPUTime. Otherwise the next interval would
// count CPU time again that this interval counted from child times of processes.
func (t *Tree) ShortLived(rounding, late units.CPUTime, yield func(n *Node, claimant int32, used units.CPUTime, first bool)) {
	for _, n := range t.nodes {
		if n.cpu.seen {
			n.cpu.seen = false
			t.readNew(n)
			used := n.cpu.takeShortLived(rounding, late)
			yield(n, n.cpu.claimant, used, n.cpu.first)
			n.parent.account(nil, 1, used)
		}
	}
}

// Unaccounted returns the sum of the unaccounted CPU time over cgroups with an accounted process in
// this interval. Time in a nested cgroup is included once for each of these cgroups that contains
// it.
func (t *Tree) Unaccounted(rounding, late units.CPUTime) (all units.CPUTime) {
	for _, n := range t.nodes {
		if n.cpu.seen {
			all += n.cpu.unaccounted(rounding, late)
		}
	}
	return all
}

// takeShortLived returns the unaccounted CPU time, and records it as short-lived.
func (c *cpuTime) takeShortLived(rounding, late units.CPUTime) units.CPUTime {
	used := c.unaccounted(rounding, late)
	c.shortLived += used
	return used
}

// unaccounted returns the CPU time in the counter that exceeds the sum of the accounted time, the
// rounding of all processes, and late.
func (c *cpuTime) unaccounted(rounding, late units.CPUTime) units.CPUTime {
	if !c.known {
		return 0
	}
	return units.Advance(c.base+c.accounted+c.shortLived+units.CPUTime(c.processes)*rounding+late, c.counter)
}

// rebase discards the CPU time until now, because the next process that enters an empty cgroup did
// not use it.
func (c *cpuTime) rebase() {
	if c.known && c.current {
		c.base, c.accounted, c.shortLived = c.counter, 0, 0
	}
}

var errNoUsage = errors.New("cpu.stat has no usage_usec")

// parseCPUStat returns usage_usec of cpu.stat of version 2 (cgroup-v2.rst), in nanoseconds.
func parseCPUStat(text []byte) (uint64, error) {
	for line := range bytes.Lines(text) {
		if digits, ok := bytes.CutPrefix(line, []byte("usage_usec ")); ok {
			n, err := parseLine(digits)
			if n > math.MaxUint64/1000 {
				return 0, kernfs.ErrRange
			}
			return n * 1000, err
		}
	}
	return 0, errNoUsage
}

// parseLine reads a number that ends with a newline. Without a newline the number may be truncated.
func parseLine(text []byte) (uint64, error) {
	if !bytes.HasSuffix(text, []byte{'\n'}) {
		return 0, kernfs.ErrCut
	}
	return parseNumber(text)
}

func parseNumber(text []byte) (uint64, error) {
	return kernfs.ParseUint(bytes.TrimSpace(text))
}
