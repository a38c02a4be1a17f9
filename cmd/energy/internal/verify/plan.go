// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"slices"
)

// maxSockets is how many sockets are loaded one by one.
const maxSockets = 4

// plan returns the steps of a run that takes so many seconds. Rest and load alternate, so that lags
// show, and full load comes twice. withMixed adds the steps that compare weights.
func plan(m *Machine, seconds float64, withMixed bool) []*Step {
	all := m.all()
	steps := []*Step{
		{Name: "rest", Load: Idle, To: 3},
		{Name: "all CPUs", Load: Spin, CPUs: all, To: 2},
		{Name: "rest after all CPUs", Load: Idle, To: 2},
		{Name: "memory-bound", Load: Memory, CPUs: all, To: 2},
	}
	if m.Sockets > 1 {
		for socket := range min(m.Sockets, maxSockets) {
			if cpus := m.sockets()[socket]; len(cpus) > 0 {
				steps = append(steps, &Step{Name: fmt.Sprintf("socket %d", socket), Load: Spin, CPUs: cpus, To: 1.5})
			}
		}
	}
	steps = append(steps, &Step{Name: "rest after parts", Load: Idle, To: 1.5})
	if len(all) > 1 {
		steps = append(steps, &Step{Name: "one core", Load: Spin, CPUs: all[:1], To: 1.5})
	}
	if siblings := m.siblings(); len(siblings) == 2 && len(all) > 2 {
		steps = append(steps, &Step{Name: "two threads of one core", Load: Spin, CPUs: siblings, To: 1.5})
	}
	if cpus := m.spread(); withMixed {
		half := len(cpus) / 2
		steps = append(steps,
			&Step{Name: "memory-bound on half the cores", Load: Memory, CPUs: cpus[:half], To: 2},
			&Step{Name: "spinning on the other half", Load: Spin, CPUs: cpus[half:], To: 2},
			&Step{Name: "both halves at once", Load: Mixed, CPUs: cpus, To: 3})
	}
	steps = append(steps,
		&Step{Name: "all CPUs again", Load: Spin, CPUs: all, To: 2},
		&Step{Name: "rest at the end", Load: Idle, To: 2})
	parts := 0.
	for _, s := range steps {
		parts += s.To
	}
	at := 0.
	for _, s := range steps {
		s.From = at
		at += s.To * seconds / parts
		s.To = at
	}
	return steps
}

// spread returns one CPU of each of an even number of cores. Both halves of the result use each
// socket equally.
func (m *Machine) spread() []int {
	var halves [2][]int
	seen, single := map[[2]int]bool{}, map[int]int{} // single has the CPU of a socket without a partner
	for _, c := range m.CPUs {
		core := [2]int{c.Socket, c.Core}
		if seen[core] {
			continue
		}
		seen[core] = true
		if partner, ok := single[c.Socket]; ok {
			halves[0], halves[1] = append(halves[0], partner), append(halves[1], c.Number)
			delete(single, c.Socket)
		} else {
			single[c.Socket] = c.Number
		}
	}
	return slices.Concat(halves[0], halves[1])
}

// siblings returns two threads of the core of the first CPU, or fewer.
func (m *Machine) siblings() (cpus []int) {
	for _, c := range m.CPUs {
		if first := m.CPUs[0]; c.Socket == first.Socket && c.Core == first.Core {
			cpus = append(cpus, c.Number)
		}
	}
	return slices.Clip(cpus[:min(len(cpus), 2)])
}
