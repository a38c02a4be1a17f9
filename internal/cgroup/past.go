// SPDX-License-Identifier: Apache-2.0

package cgroup

import "github.com/energyreceiver/energyreceiver/internal/units"

// Past is what a Tree must know of a cgroup in an earlier one, of the same boot, to go on where that one ended.
type Past struct {
	Path string
	// Counter is the cgroup's CPU counter, and Accounted what is accounted for of it.
	Counter, Accounted units.CPUTime
}

// AppendPast appends the cgroups whose CPU counter is known, as of the last ReadCPUTime and what was accounted for since.
func (t *Tree) AppendPast(past []Past) []Past {
	for _, n := range t.nodes {
		if c := &n.cpu; c.known {
			past = append(past, Past{n.path, c.counter, c.base + c.accounted + c.shortLived})
		}
	}
	return past
}

// readNew reads the counters of cgroups that the first scan after Resume has found: they may have been used for as long as the time
// down, and would else claim that in the interval after.
func (t *Tree) readNew() {
	if !t.resuming {
		return
	}
	for _, n := range t.nodes {
		if !n.cpu.known {
			t.update(n)
		}
	}
}

// Resume makes the tree go on where another one ended: the next ReadCPUTime has what cgroups of the past used since. They stay if they
// still exist. It must follow Restart and precede ReadCPUTime.
func (t *Tree) Resume(past []Past) {
	t.resuming = true
	for i := range past {
		p := &past[i]
		if n := t.Node(p.Path); n != nil {
			n.cpu = cpuTime{known: true, older: true, counter: p.Counter, base: p.Accounted}
		}
	}
}
