// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Event is an event that hardware counts (perf_event_open(2), PERF_TYPE_HARDWARE).
type Event string

// The events.
const (
	Cycles       Event = "cycles"
	Instructions Event = "instructions"
	CacheMisses  Event = "cache_misses"
)

// NewCounters weighs CPU time by the events that the hardware counted in the interval: for each
// container's cgroup, and for everything outside of containers together. Within each, all CPU time
// has the same weight. The counters of a cgroup are attached to its node of the tree, and closed
// with it. NewCounters fails if the machine has no such counters or the kernel does not allow
// reading them.
func NewCounters(tree *cgroup.Tree, e Event) (*ByRate, error) {
	kernel, err := openPerf(tree, e)
	if err != nil {
		return nil, err
	}
	return newByRate(newCounters(kernel, tree, e)), nil
}

// counters measures the rate of events per CPU time in each cgroup.
type counters struct {
	kernel counts
	event  Event
	tree   *cgroup.Tree  // groups are attached to its nodes
	all    group         // everything
	silent units.CPUTime // used since an event was counted
}

// group is a cgroup that is counted, including the cgroups inside. Events and CPU time of groups
// inside that could be read are not its own.
type group struct {
	counter
	counters *counters
	asked    bool // a share of the interval is in it

	own   uint64    // events, kept until the CPU time of their processes is claimed
	since time.Time // when own was first kept without CPU time
	cpu   uint64    // own CPU time of the interval
	left  uint64    // events without CPU time of cgroups inside that are gone, for the next interval
}

// keepOwn is how long events wait for their CPU time: procfs shows it only tick by tick. Older
// events are of short-lived processes, whose CPU time is claimed in a group around.
const keepOwn = 10 * time.Second

// silentLimit: after this much CPU time without one event the counters are taken to be fake.
// Virtual machines may pretend to have counters.
const silentLimit = units.Second

var errCountless = errors.New("CPU time is used instead: the counters count no events")

func newCounters(kernel counts, tree *cgroup.Tree, e Event) *counters {
	c := &counters{kernel: kernel, event: e, tree: tree}
	c.all.counters = c
	c.all.open(kernel, time.Time{}) // so that it has counted at the first interval
	return c
}

func (c *counters) counts(n *cgroup.Node, yield func(Event, uint64)) {
	if g := c.at(n); g != nil && g.known {
		yield(c.event, g.total)
	}
}

// at returns the group of a node, or nil if the node has no group.
func (c *counters) at(n *cgroup.Node) *group {
	if n == nil {
		return &c.all
	}
	g, _ := n.At(c).(*group)
	return g
}

// groups returns all groups, each before those around it.
func (c *counters) groups() iter.Seq[*group] {
	return func(yield func(*group) bool) {
		for _, n := range c.tree.Nodes() {
			if g := c.at(n); g != nil && !yield(g) {
				return
			}
		}
		yield(&c.all)
	}
}

// around returns the innermost group around a group, nil if that is everything.
func (g *group) around() *group {
	if g.node == nil {
		return nil
	}
	for n := g.node.Parent(); n != nil; n = n.Parent() {
		if around := g.counters.at(n); around != nil {
			return around
		}
	}
	return &g.counters.all
}

func (c *counters) begin(now time.Time, shares []*Share) {
	if c.kernel.cpusChanged() {
		c.restart()
	}
	for g := range c.groups() {
		g.begin()
	}
	c.ask(shares)
	c.read(now)
	c.divide(shares)
	for g := range c.groups() {
		g.giveUp(now)
	}
	if c.all.counted > 0 || !c.all.known {
		c.silent = 0
	}
}

// ask marks the groups that shares of the interval are in, and makes those that are missing.
func (c *counters) ask(shares []*Share) {
	for _, s := range shares {
		n := s.Cgroup
		g := c.at(n)
		if g == nil {
			g = &group{counters: c, counter: counter{node: n}}
			n.Attach(c, g)
		}
		g.asked = true
	}
}

// read reads the counters.
func (c *counters) read(now time.Time) {
	c.all.advance(c.kernel, now, true)
	if errors.Is(c.all.err, errStopped) {
		c.restart()
		c.all.advance(c.kernel, now, true)
	}
	for g := range c.groups() {
		if g != &c.all {
			g.advance(c.kernel, now, g.asked)
		}
	}
}

// divide computes each group's own events and CPU time.
func (c *counters) divide(shares []*Share) {
	for g := range c.groups() {
		g.own = units.AddSaturating(g.own, g.counted)
	}
	for g := range c.groups() {
		if around := g.around().nearest(); g.known && around != nil {
			around.own -= min(g.counted, around.own)
		}
	}
	for _, s := range shares {
		c.silent = units.AddSaturating(c.silent, s.CPU)
		if g := c.of(s); g != nil {
			g.cpu = units.AddSaturating(g.cpu, uint64(s.CPU))
		}
	}
}

// begin drops the events that the last interval has used.
func (g *group) begin() {
	if g.cpu > 0 {
		g.own, g.cpu = 0, 0
	}
	g.own, g.left = units.AddSaturating(g.own, g.left), 0
	g.asked = false
}

// giveUp moves events that were kept for too long to the innermost group around whose processes
// ran.
func (g *group) giveUp(now time.Time) {
	switch {
	case g.cpu > 0 || g.own == 0:
		g.since = time.Time{}
	case g.since.IsZero():
		g.since = now
	case now.Sub(g.since) >= keepOwn:
		around := g.around()
		for around != nil && around.cpu == 0 {
			around = around.around()
		}
		if around != nil {
			around.own = units.AddSaturating(around.own, g.own)
		}
		g.forget()
	}
}

func (c *counters) forget() {
	for g := range c.groups() {
		g.forget()
	}
}

func (g *group) forget() { g.own, g.left, g.since = 0, 0, time.Time{} }

// restart has all counters opened anew.
func (c *counters) restart() {
	c.forget()
	for g := range c.groups() {
		_ = g.stop() // it was only read from
		g.retry = time.Time{}
	}
}

// nearest returns the innermost group, from g outwards, that could be read, or nil.
func (g *group) nearest() *group {
	for g != nil && !g.known {
		g = g.around()
	}
	return g
}

// of returns the group that a share belongs to, or nil if no counter could be read.
func (c *counters) of(s *Share) *group { return c.at(s.Cgroup).nearest() }

// Close stops the counter of a cgroup that is gone. The group around gets its events without CPU
// time.
func (g *group) Close() error {
	if around := g.around(); g.cpu == 0 && around != nil {
		around.left = units.AddSaturating(around.left, g.own)
	}
	return g.stop()
}

func (c *counters) rate(s *Share) (uint64, bool) {
	g := c.of(s)
	if g == nil || g.cpu == 0 {
		return 0, false
	}
	return units.MulDiv(g.own, one, g.cpu), true
}

// trouble returns why cgroups cannot be counted. It names no cgroup, as they come and go, and one
// reason, as there are many. A cgroup that is gone is no error unless a process still runs there.
func (c *counters) trouble() error {
	if c.all.err != nil {
		return c.all.err
	}
	if c.silent >= silentLimit {
		return errCountless
	}
	var first error
	for g := range c.groups() {
		if g.err == nil || g.tries <= 1 && errors.Is(g.err, fs.ErrNotExist) {
			continue
		}
		first = lesser(first, withoutPath(g.err))
	}
	if first != nil {
		return fmt.Errorf("some cgroups cannot be counted: %w", first)
	}
	return nil
}

// withoutPath returns why an operation on a file failed, without the file's name.
func withoutPath(err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		return at.Err
	}
	return err
}

func (c *counters) name() string { return string(c.event) + " by perf events" }

func (c *counters) close() error {
	return errors.Join(c.all.stop(), c.tree.Release(c))
}
