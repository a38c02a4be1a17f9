// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"errors"
	"slices"
	"time"
)

// kernel opens counters. Tests replace it.
type kernel interface {
	// check returns an error unless the files below root belong to this kernel.
	check(root string) error
	// open starts counters for events of a PMU on a CPU, at 0.
	open(pmu uint32, configs []uint64, cpu int) (counters, error)
}

// counters count the events of one CPU. perfevent.Group implements it.
type counters interface {
	Read(counts []uint64) (enabled uint64, err error)
	Close() error
}

// group has the wanted events of a PMU on one package, die or core. One CPU of the package, die or
// core counts them.
type group struct {
	key    groupKey
	pmu    *pmu
	cpu    int
	events []groupEvent // one for each event of the PMU

	open    counters // nil until they could be opened
	counts  []uint64 // counts of the current read
	enabled uint64   // enabled time at the last read, in ns
	failed  bool     // the last read failed
	err     error    // why the counters are not open
	tried   time.Time
}

// groupKey identifies the events that a group counts. It stays the same when another CPU counts
// them.
type groupKey struct {
	pmu           string
	physical, die uint64 // die is 0 if packages are counted as a whole
	core          uint64 // only for the PMU power_core
}

// groupEvent is one event of a group.
type groupEvent struct {
	event
	zone *zone
	last uint64 // counter at the last good read
	rest uint64 // fraction of a microjoule at the last good read, in units of 1/scale.den
}

// errStopped is the error of counters that can be read but no longer count, because the last CPU of
// their package or core went offline.
var errStopped = errors.New("the counter has stopped")

// read adds the counts since the last read to the zones. Counters that stopped, or failed twice,
// are opened again.
func (g *group) read(k kernel, at time.Time) error {
	if g.open != nil {
		err := g.collect()
		if err == nil {
			g.failed = false
			return nil
		}
		if !g.failed && !errors.Is(err, errStopped) {
			g.failed = true
			return err
		}
	}
	if g.err != nil && at.Sub(g.tried) < openEvery {
		return g.err
	}
	g.tried = at
	if g.err = g.reopen(k); g.err != nil {
		return g.err
	}
	return g.collect()
}

// collect adds the counts since the last read to the zones.
func (g *group) collect() error {
	enabled, err := g.open.Read(g.counts)
	if err != nil {
		return err
	}
	for i := range g.events {
		g.events[i].advance(g.counts[i])
	}
	if enabled == g.enabled {
		return errStopped
	}
	g.enabled = enabled
	return nil
}

// advance adds the energy since the last read to the zone. If a count decreases, the difference is
// so large that power.Counter rejects it as impossible.
func (s *groupEvent) advance(now uint64) {
	s.zone.energy += s.scale.microjoules(now-s.last, &s.rest)
	s.last = now
}

// reopen opens new counters, and then closes the previous ones.
func (g *group) reopen(k kernel) error {
	fresh, err := k.open(g.pmu.number, g.pmu.configs, g.cpu)
	if err != nil {
		return err
	}
	_ = g.close() // they were only read from
	g.open, g.enabled, g.failed = fresh, 0, false
	for i := range g.events {
		g.events[i].last = 0
	}
	return nil
}

// fail sets the error of the zones whose energy is incomplete without the group.
func (g *group) fail(err error) {
	for i := range g.events {
		if z := g.events[i].zone; z.err == nil {
			z.err = err
		}
	}
}

// same reports whether o counts the same events, possibly on another CPU.
func (g *group) same(o *group) bool {
	return g.key == o.key && g.pmu.number == o.pmu.number && slices.Equal(g.pmu.configs, o.pmu.configs)
}

func (g *group) close() error {
	if g.open == nil {
		return nil
	}
	err := g.open.Close()
	g.open = nil
	return err
}
