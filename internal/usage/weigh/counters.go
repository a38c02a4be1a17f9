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

// Event is what the hardware counts (perf_event_open(2), PERF_TYPE_HARDWARE).
type Event string

// The events.
const (
	Cycles       Event = "cycles"
	Instructions Event = "instructions"
	CacheMisses  Event = "cache_misses"
)

// NewCounters returns a meter that weighs CPU time by what the hardware counted meanwhile, for each container's cgroup
// and for everything outside of them together. Within each, CPU time is all alike. The counters of a cgroup are kept at its
// node of the tree. It fails if the machine has no such counters or the kernel does not allow reading them.
func NewCounters(tree *cgroup.Tree, e Event) (*ByRate, error) {
	kernel, err := openPerf(tree, e)
	if err != nil {
		return nil, err
	}
	return newByRate(newCounters(kernel, tree, string(e)+" by perf events")), nil
}

// counts are the counters of a kernel. A nil node stands for all that runs.
type counts interface {
	// open starts to count for a cgroup.
	open(n *cgroup.Node) (count, error)
	// moved reports whether other CPUs are online than at the last call: counters miss those that came meanwhile, and those
	// that went and came back.
	moved() bool
	// identity tells the cgroups that a path may name one after the other apart. It is not ok if the path names none.
	identity(n *cgroup.Node) (id uint64, ok bool)
}

// count is one counter, over all CPUs.
type count interface {
	// read returns what was counted since it was opened, about where the hardware had to share its counters. It is
	// errStopped where the counter of a CPU does not count any more, though it can be read.
	read() (uint64, error)
	close() error
}

// counters is the work that a kernel's counters tell of.
type counters struct {
	kernel counts
	what   string
	tree   *cgroup.Tree
	slot   cgroup.Slot   // of the tree's nodes, where their groups are
	all    group         // everything
	silent units.CPUTime // used since anything was counted
}

// errStopped is of a counter that was taken off its CPU, as when that goes offline.
var errStopped = errors.New("a counter has stopped")

// group is a cgroup with all below it. What was counted in it and in no known one below it, and the CPU time meanwhile of
// those in it and in no known one below it, are its own.
type group struct {
	counters *counters
	node     *cgroup.Node // nil for everything
	id       uint64       // of the cgroup that is counted
	count    count
	last     uint64
	counted  uint64 // in the interval
	known    bool   // counted is
	err      error
	tries    int // to open it, since it was counted
	retry    time.Time
	asked    bool // for it, in the interval

	own   uint64    // counted, until there is CPU time in which it was
	since time.Time // own is, without CPU time
	cpu   uint64    // of the interval
	left  uint64    // counted without CPU time by cgroups inside that are gone, until the next interval
}

// Of what was counted the CPU time may come later, in ticks. What is older than keepOwn is taken for work whose CPU time is
// that of the group around: of what came and went in a cgroup without being seen there.
const keepOwn = 10 * time.Second

// countless is how much CPU time without anything counted is taken for a machine whose counters do not count, as virtual
// ones may not.
const countless = units.Second

var errCountless = errors.New("CPU time stands in: nothing is counted")

func newCounters(kernel counts, tree *cgroup.Tree, what string) *counters {
	c := &counters{kernel: kernel, what: what, tree: tree, slot: tree.NewSlot()}
	c.all.counters = c
	c.all.open(time.Time{}) // so that it has counted when it is asked first
	return c
}

// at returns the group of a node, nil if there is none.
func (c *counters) at(n *cgroup.Node) *group {
	if n == nil {
		return &c.all
	}
	g, _ := n.At(c.slot).(*group)
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

func (c *counters) begin(now time.Time, shares []Share) {
	if c.kernel.moved() {
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

// ask takes note of the cgroups that are asked for in the interval.
func (c *counters) ask(shares []Share) {
	c.all.asked = true
	for i := range shares {
		n := shares[i].Cgroup
		g := c.at(n)
		if g == nil {
			g = &group{counters: c, node: n}
			n.Attach(c.slot, g)
		}
		g.asked = true
	}
}

// read finds what was counted in the interval.
func (c *counters) read(now time.Time) {
	c.all.advance(now)
	if errors.Is(c.all.err, errStopped) {
		c.restart()
		c.all.advance(now)
	}
	for g := range c.groups() {
		if g != &c.all {
			g.advance(now)
		}
	}
}

// divide finds what was counted in each group and in no known one inside, and the CPU time of that.
func (c *counters) divide(shares []Share) {
	for g := range c.groups() {
		g.own = units.AddSaturating(g.own, g.counted)
	}
	for g := range c.groups() {
		if around := g.around().nearest(); g.known && around != nil {
			around.own -= min(g.counted, around.own)
		}
	}
	for i := range shares {
		c.silent = units.AddSaturating(c.silent, shares[i].CPU)
		if g := c.of(&shares[i]); g != nil {
			g.cpu = units.AddSaturating(g.cpu, uint64(shares[i].CPU))
		}
	}
}

// begin forgets what the last interval has used.
func (g *group) begin() {
	if g.cpu > 0 {
		g.own, g.cpu = 0, 0
	}
	g.own, g.left = units.AddSaturating(g.own, g.left), 0
	g.asked = false
}

// giveUp leaves what a group has counted and nobody claims to the innermost around it where somebody ran.
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

// nearest is the group, or else the innermost around it, of which it is known what was counted; nil if there is none.
func (g *group) nearest() *group {
	for g != nil && !g.known {
		g = g.around()
	}
	return g
}

// of is the group whose own a share is.
func (c *counters) of(s *Share) *group { return c.at(s.Cgroup).nearest() }

// advance finds what was counted since the last call.
func (g *group) advance(now time.Time) {
	g.counted, g.known = 0, false
	if g.count == nil {
		if g.asked && !now.Before(g.retry) {
			g.open(now)
		}
		return
	}
	total, err := g.count.read()
	if err != nil {
		g.err, g.retry = err, now.Add(retryAfter)
		_ = g.stop() // it was only read from
		return
	}
	g.counted, g.known = units.Advance(g.last, total), true
	g.last = total
	// The counter is the first cgroup's of this name, which may have been made anew.
	if g.counted == 0 && g.asked && g.node != nil {
		if id, ok := g.counters.kernel.identity(g.node); !ok || id != g.id {
			g.known = false
			_ = g.stop() // it was only read from
			g.open(now)
		}
	}
}

func (g *group) open(now time.Time) {
	kernel := g.counters.kernel
	g.tries++
	if g.node != nil {
		g.id, _ = kernel.identity(g.node)
	}
	opened, err := kernel.open(g.node)
	if err == nil {
		if g.last, err = opened.read(); err != nil {
			_ = opened.close() // it was only read from
		}
	}
	if g.err = err; err != nil {
		g.retry = now.Add(retryAfter)
		return
	}
	g.count, g.tries = opened, 0
}

func (g *group) stop() (err error) {
	if g.count != nil {
		err = g.count.close()
	}
	g.count = nil
	return err
}

// Close stops the counter of a cgroup that is gone. What it has counted without CPU time is left to what is around it.
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

// trouble does not tell which cgroups fail, as they come and go, and not why each, as they are many. One that is gone is
// no trouble, unless somebody goes on running there.
func (c *counters) trouble() error {
	if c.all.err != nil {
		return c.all.err
	}
	if c.silent >= countless {
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

func (c *counters) name() string { return c.what }

func (c *counters) close() error {
	return errors.Join(c.all.stop(), c.tree.Release(c.slot))
}
