// SPDX-License-Identifier: Apache-2.0

package cgroup

import "github.com/energyreceiver/energyreceiver/internal/units"

// Past is the state of a cgroup in an earlier Tree of the same boot. A Tree can resume from it.
type Past struct {
	Path string
	// Counter is the cgroup's CPU counter, and Accounted the accounted part of the counter.
	Counter, Accounted units.CPUTime
}

// AppendPast appends the state of the cgroups whose CPU counter was read: the counter at the last
// ReadCPUTime, and the CPU time that was accounted for.
func (t *Tree) AppendPast(past []Past) []Past {
	for _, n := range t.nodes {
		if c := &n.cpu; c.known {
			past = append(past, Past{n.path, c.counter, c.base + c.accounted + c.shortLived})
		}
	}
	return past
}

// Resume continues from the state of an earlier tree: the next ReadCPUTime includes the CPU time
// that its cgroups have used since then. Cgroups that no longer exist are dropped. Resume must
// follow Restart and precede ReadCPUTime.
func (t *Tree) Resume(past []Past) {
	for i := range past {
		p := &past[i]
		if n := t.Node(p.Path); n != nil {
			n.cpu = cpuTime{known: true, older: true, replaced: n.cpuFrom.replaced, counter: p.Counter, base: p.Accounted}
		}
	}
}
