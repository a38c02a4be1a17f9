package work

import (
	"errors"
	"os"
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
	// exists says whether there still is such a cgroup.
	exists(cgroup string) bool
}

// count is one counter, over all CPUs.
type count interface {
	// read returns what was counted since it was opened, about where the hardware had to share its counters.
	read() (uint64, error)
	close() error
}

// counters is the work that a kernel's counters tell of.
type counters struct {
	kernel counts
	what   string
	groups map[string]*group
	rest   group
	failed error
	looked time.Time
}

type group struct {
	count count
	last  uint64
	based bool // last is known
	retry time.Time

	cpu     uint64 // of the interval
	counted uint64
	known   bool
	asked   bool
}

// forgetAfter is how often it is looked for cgroups that are no more.
const forgetAfter = time.Minute

func newCounters(kernel counts, what string) *counters {
	c := &counters{kernel: kernel, what: what, groups: map[string]*group{}}
	c.advance("", &c.rest, time.Time{}) // so that it has counted when it is asked first
	return c
}

func (c *counters) begin(now time.Time, shares []Share) {
	c.failed = nil
	if now.Sub(c.looked) >= forgetAfter {
		c.forget(now)
	}
	c.rest.cpu, c.rest.asked = 0, false
	for _, g := range c.groups {
		g.cpu, g.asked = 0, false
	}
	for i := range shares {
		s := &shares[i]
		g := c.of(s.Cgroup)
		if g == nil {
			g = &group{}
			c.groups[s.Cgroup] = g
		}
		g.cpu = units.AddSaturating(g.cpu, uint64(s.CPU))
		g.asked = true
	}
	c.advance("", &c.rest, now)
	for cgroup, g := range c.groups {
		c.advance(cgroup, g, now)
		c.rest.counted -= min(g.counted, c.rest.counted)
		// What ran in a cgroup whose counter is not known is in the rest's, which then says nothing.
		c.rest.known = c.rest.known && (g.known || g.cpu == 0)
	}
}

func (c *counters) of(cgroup string) *group {
	if cgroup == "" {
		return &c.rest
	}
	return c.groups[cgroup]
}

// advance finds what was counted since the last call.
func (c *counters) advance(cgroup string, g *group, now time.Time) {
	g.counted, g.known = 0, false
	if g.count == nil {
		if now.Before(g.retry) {
			return
		}
		opened, err := c.kernel.open(cgroup)
		if err != nil {
			c.failed, g.retry = err, now.Add(retryAfter)
			return
		}
		g.count, g.based = opened, false
	}
	total, err := g.count.read()
	if err != nil {
		c.failed, g.retry = err, now.Add(retryAfter)
		_ = g.count.close() // it was only read from
		g.count = nil
		return
	}
	g.counted, g.known = units.Advance(g.last, total), g.based
	if !g.based {
		g.counted = 0
	}
	g.last, g.based = total, true
}

// forget closes the counters of cgroups that are no more.
func (c *counters) forget(now time.Time) {
	c.looked = now
	for cgroup, g := range c.groups {
		if g.asked || c.kernel.exists(cgroup) {
			continue
		}
		if g.count != nil {
			_ = g.count.close() // it was only read from
		}
		delete(c.groups, cgroup)
	}
}

func (c *counters) rate(s *Share) (uint64, bool) {
	g := c.of(s.Cgroup)
	if !g.known || g.cpu == 0 {
		return 0, false
	}
	return units.MulDiv(g.counted, one, g.cpu), true
}

func (c *counters) trouble() error { return c.failed }
func (c *counters) name() string   { return c.what }

func (c *counters) close() error {
	var errs []error
	for _, g := range c.groups {
		if g.count != nil {
			errs = append(errs, g.count.close())
		}
	}
	if c.rest.count != nil {
		errs = append(errs, c.rest.count.close())
	}
	c.groups, c.rest = map[string]*group{}, group{}
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
