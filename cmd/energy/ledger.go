// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// ledger adds up processes over scrapes. It remembers the CPU time and energy of processes whose series the exporter
// has dropped.
type ledger struct {
	strict  bool // the collector was started by this process: no series was dropped before the first scrape
	begun   bool
	last    map[string]microjoules
	dropped microjoules
	earlier microjoules
	active  microjoules
}

// check is a sum that must hold: processes + unattributed == active, to the microjoule.
type check struct {
	processes    microjoules
	ended        microjoules // of which in processes that have ended
	earlier      microjoules // of which in processes that were gone before the first table
	unattributed microjoules
	active       microjoules
	loose        bool // the sum need not hold: the figures are Kepler's
}

func (c check) ok() bool { return c.loose || c.processes+c.unattributed == c.active }

func (c check) err() error {
	if c.ok() {
		return nil
	}
	return fmt.Errorf("the sum is wrong: processes %.6f J + unattributed %.6f J are not active %.6f J",
		c.processes.joules(), c.unattributed.joules(), c.active.joules())
}

// add adds a scrape. The same one may come twice.
func (l *ledger) add(s *snapshot) check {
	c := check{loose: s.kepler}
	for _, z := range s.zones {
		if z.besides == "" {
			c.active += z.active
			c.unattributed += z.unattributed
		}
	}
	if c.active < l.active { // the collector was restarted
		*l = ledger{strict: l.strict}
	}
	l.active = c.active
	now := make(map[string]microjoules, len(s.processes))
	for _, p := range s.processes {
		now[p.key] = p.energy
		c.processes += p.energy
		if p.ended {
			c.ended += p.energy
		}
	}
	for key, energy := range l.last {
		if _, there := now[key]; !there {
			l.dropped += energy
		}
	}
	l.last = now
	c.processes += l.dropped
	c.ended += l.dropped
	if missing := c.active - c.processes - c.unattributed; !l.strict && !c.loose && s.hasFigures() && missing >= 0 {
		if !l.begun {
			l.earlier = missing
		}
		l.begun = true
		l.earlier = min(l.earlier, missing)
	}
	c.earlier = l.earlier
	c.processes += l.earlier
	c.ended += l.earlier
	return c
}
