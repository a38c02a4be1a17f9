// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

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
// and for everything outside of them together. Within each, CPU time is all alike. It fails where the machine has
// no such counters or the kernel does not allow reading them.
func NewCounters(root string, e Event) (*Meter, error) {
	kernel, err := openPerf(root, e)
	if err != nil {
		return nil, err
	}
	return newMeter(newCounters(kernel, string(e)+" by perf events")), nil
}

// counts are the counters of a kernel.
type counts interface {
	// open starts to count for a cgroup, for all that runs where that is "".
	open(cgroup string) (count, error)
	// moved says whether other CPUs are online than at the last call: counters miss those that came meanwhile, and those
	// that went and came back.
	moved() bool
	// identity tells the cgroups that a path may name one after the other apart; not ok where it names none.
	identity(cgroup string) (id uint64, ok bool)
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
	groups map[string]*group // by cgroup, without all
	all    group             // everything
	looked time.Time
	silent units.CPUTime // used since anything was counted
}

// errStopped is of a counter that was taken off its CPU, as when that goes offline.
var errStopped = errors.New("a counter has stopped")

// group is a cgroup with all below it. What was counted in it and in no known one below it, and the CPU time meanwhile of
// those in it and in no known one below it, are its own.
type group struct {
	up      *group // the innermost around it, known or not; nil for everything
	id      uint64 // of the cgroup that is counted
	count   count
	last    uint64
	counted uint64 // in the interval
	known   bool   // counted is
	err     error
	tries   int // to open it, since it was counted
	retry   time.Time
	asked   bool // for it, in the interval

	own   uint64    // counted, until there is CPU time in which it was
	since time.Time // own is, without CPU time
	cpu   uint64    // of the interval
}

// sweepAfter is how often it is looked for cgroups that are no more.
const sweepAfter = time.Minute

// Of what was counted the CPU time may come later, in ticks. What is older than keepOwn is taken for work whose CPU time is
// that of the group around: of what came and went in a cgroup without being seen there.
const keepOwn = 10 * time.Second

// countless is how much CPU time without anything counted is taken for a machine whose counters do not count, as virtual
// ones may not.
const countless = units.Second

var errCountless = errors.New("CPU time stands in: nothing is counted")

func newCounters(kernel counts, what string) *counters {
	c := &counters{kernel: kernel, what: what, groups: map[string]*group{}}
	c.open("", &c.all, time.Time{}) // so that it has counted when it is asked first
	return c
}

func (c *counters) begin(now time.Time, shares []Share) {
	if now.Sub(c.looked) >= sweepAfter {
		c.sweep(now)
	}
	if c.kernel.moved() {
		c.restart()
	}
	c.all.begin()
	for _, g := range c.groups {
		g.begin()
	}
	c.all.asked = true
	fresh := false
	for i := range shares {
		if cgroup := shares[i].Cgroup; cgroup != "" {
			g := c.groups[cgroup]
			if g == nil {
				g, fresh = &group{}, true
				c.groups[cgroup] = g
			}
			g.asked = true
		}
	}
	if fresh {
		c.link()
	}
	c.advance("", &c.all, now)
	if errors.Is(c.all.err, errStopped) {
		c.restart()
		c.advance("", &c.all, now)
	}
	for cgroup, g := range c.groups {
		c.advance(cgroup, g, now)
	}
	c.all.own = units.AddSaturating(c.all.own, c.all.counted)
	for _, g := range c.groups {
		g.own = units.AddSaturating(g.own, g.counted)
	}
	for _, g := range c.groups {
		if around := g.up.nearest(); g.known && around != nil {
			around.own -= min(g.counted, around.own)
		}
	}
	for i := range shares {
		c.silent = units.AddSaturating(c.silent, shares[i].CPU)
		if g := c.of(&shares[i]); g != nil {
			g.cpu = units.AddSaturating(g.cpu, uint64(shares[i].CPU))
		}
	}
	c.all.giveUp(now)
	for _, g := range c.groups {
		g.giveUp(now)
	}
	if c.all.counted > 0 || !c.all.known {
		c.silent = 0
	}
}

// begin forgets what the last interval has used.
func (g *group) begin() {
	if g.cpu > 0 {
		g.own, g.cpu = 0, 0
	}
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
		around := g.up
		for around != nil && around.cpu == 0 {
			around = around.up
		}
		if around != nil {
			around.own = units.AddSaturating(around.own, g.own)
		}
		g.forget()
	}
}

func (c *counters) forget() {
	c.all.forget()
	for _, g := range c.groups {
		g.forget()
	}
}

func (g *group) forget() { g.own, g.since = 0, time.Time{} }

// restart has all counters opened anew.
func (c *counters) restart() {
	c.forget()
	c.all.stop()
	c.all.retry = time.Time{}
	for _, g := range c.groups {
		g.stop()
		g.retry = time.Time{}
	}
}

// nearest is the group, or else the innermost around it, of which it is known what was counted; nil if there is none.
func (g *group) nearest() *group {
	for g != nil && !g.known {
		g = g.up
	}
	return g
}

// of is the group whose own a share is.
func (c *counters) of(s *Share) *group {
	if s.Cgroup == "" {
		return c.all.nearest()
	}
	return c.groups[s.Cgroup].nearest()
}

// link finds the group around each.
func (c *counters) link() {
	for cgroup, g := range c.groups {
		g.up = &c.all
		for dir := path.Dir(cgroup); len(dir) > 1; dir = path.Dir(dir) {
			if around := c.groups[dir]; around != nil {
				g.up = around
				break
			}
		}
	}
}

// advance finds what was counted since the last call.
func (c *counters) advance(cgroup string, g *group, now time.Time) {
	g.counted, g.known = 0, false
	if g.count == nil {
		if g.asked && !now.Before(g.retry) {
			c.open(cgroup, g, now)
		}
		return
	}
	total, err := g.count.read()
	if err != nil {
		g.err, g.retry = err, now.Add(retryAfter)
		g.stop()
		return
	}
	g.counted, g.known = units.Advance(g.last, total), true
	g.last = total
	// The counter is the first cgroup's of this name, which may have been made anew.
	if g.counted == 0 && g.asked && g != &c.all {
		if id, ok := c.kernel.identity(cgroup); !ok || id != g.id {
			g.known = false
			g.stop()
			c.open(cgroup, g, now)
		}
	}
}

func (c *counters) open(cgroup string, g *group, now time.Time) {
	g.tries++
	g.id, _ = c.kernel.identity(cgroup)
	opened, err := c.kernel.open(cgroup)
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

func (g *group) stop() {
	if g.count != nil {
		_ = g.count.close() // it was only read from
	}
	g.count = nil
}

// sweep closes the counters of cgroups that are no more.
func (c *counters) sweep(now time.Time) {
	c.looked = now
	for cgroup, g := range c.groups {
		if _, ok := c.kernel.identity(cgroup); ok || g.asked {
			continue
		}
		g.stop()
		delete(c.groups, cgroup)
	}
	c.link()
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
	for _, g := range c.groups {
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
	var errs []error
	for _, g := range c.groups {
		if g.count != nil {
			errs = append(errs, g.count.close())
		}
	}
	if c.all.count != nil {
		errs = append(errs, c.all.count.close())
	}
	c.groups, c.all = map[string]*group{}, group{}
	return errors.Join(errs...)
}

// cgroupDir returns the directory of a cgroup that perf events can be counted for: that of the version 1
// controller where there is one, or of the v2 hierarchy.
func cgroupDir(root, cgroup string) (string, bool) {
	for _, hierarchy := range []string{"sys/fs/cgroup/perf_event", "sys/fs/cgroup", "sys/fs/cgroup/unified"} {
		dir := filepath.Join(root, hierarchy, cgroup)
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir, true
		}
	}
	return "", false
}
