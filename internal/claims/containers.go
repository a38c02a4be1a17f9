// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// containers knows which processes are in which container's cgroup, and asks the cgroups' own counters for
// what none of them explains.
type containers struct {
	groups   *cpu.Groups
	byCgroup map[string]*membership
	ordered  []*membership // the innermost first
	unsorted bool
}

// membership is a container's cgroup.
type membership struct {
	path      string
	group     cpu.Group
	parent    *membership // the container that it is nested in
	processes int
	// some is one of the processes, seen in this pass, to claim for the others.
	some attribution.Claimant
	seen bool
}

func newContainers(groups *cpu.Groups) *containers {
	return &containers{groups: groups, byCgroup: map[string]*membership{}}
}

// enter counts a process into the container with this cgroup; newborn says that the process is. It returns
// nil for a process that is in none.
func (c *containers) enter(cgroup string, newborn bool) *membership {
	if cgroup == "" {
		return nil
	}
	m := c.byCgroup[cgroup]
	if m == nil {
		m = &membership{path: cgroup, group: c.groups.Watch(cgroup)}
		c.byCgroup[cgroup] = m
		c.ordered = append(c.ordered, m)
		c.unsorted = true
	}
	if !newborn {
		c.groups.Older(m.group)
	}
	m.processes++
	return m
}

// leave counts a process out. The container itself stays until the end of the pass.
func (c *containers) leave(m *membership) {
	if m != nil {
		m.processes--
	}
}

// explain says what a process of the container, or one that it saw end, has used. A cgroup's counter holds
// that of the cgroups below it, so it is explained to those that it is nested in, too.
func (c *containers) explain(m *membership, claimant attribution.Claimant, used units.CPUTime) {
	if m == nil {
		return
	}
	c.link()
	m.some, m.seen = claimant, true
	for ; m != nil; m = m.parent {
		c.groups.Explain(m.group, used)
	}
}

// atMost bounds what is inferred of a process of the container that has ended by what the cgroups that it is in
// still have to explain: where several ended, their sum alone does not say which of them it was.
func (c *containers) atMost(m *membership, inferred units.CPUTime) units.CPUTime {
	c.link()
	for ; m != nil; m = m.parent {
		if room := c.groups.Room(m.group); room < cpu.Unbounded {
			inferred = min(inferred, room)
		}
	}
	return inferred
}

// moved says that a process has left one container for another, either of which may be none, since the last
// pass. Which of them counted what it used meanwhile is not known: it is explained to both.
func (c *containers) moved(from, to *membership, used units.CPUTime) {
	c.link()
	for ; from != nil; from = from.parent {
		if to == nil || (to != from && !strings.HasPrefix(to.path, from.path+"/")) {
			c.groups.Explain(from.group, used)
		}
	}
}

// unseen claims what the containers' processes used without being seen, and forgets the containers that have no
// more processes and no cgroup. What a counter shows at first may be from before anybody watched it.
func (c *containers) unseen(claim func(c attribution.Claimant, cgroup string, used units.CPUTime, atFirst bool)) {
	empty := false
	c.link()
	for _, m := range c.ordered {
		if m.seen {
			used := c.groups.Unseen(m.group)
			claim(m.some, m.path, used, c.groups.First(m.group))
			for up := m.parent; up != nil; up = up.parent {
				c.groups.Explain(up.group, used)
			}
		}
		m.seen = false
		empty = empty || m.processes == 0
	}
	if !empty {
		return
	}
	c.ordered = slices.DeleteFunc(c.ordered, func(m *membership) bool {
		if m.processes > 0 || c.groups.Empty(m.group) {
			return false
		}
		c.groups.Forget(m.group)
		delete(c.byCgroup, m.path)
		c.unsorted = true
		return true
	})
}

// link finds the container that each is nested in, after one came or went.
func (c *containers) link() {
	if !c.unsorted {
		return
	}
	c.unsorted = false
	slices.SortFunc(c.ordered, func(a, b *membership) int {
		return cmp.Or(cmp.Compare(len(b.path), len(a.path)), cmp.Compare(a.path, b.path))
	})
	for _, m := range c.ordered {
		m.parent = nil
		for up := path.Dir(m.path); up != "/" && up != "." && m.parent == nil; up = path.Dir(up) {
			m.parent = c.byCgroup[up]
		}
	}
}
