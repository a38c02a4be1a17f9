// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	gopath "path"
	"time"
)

type cgroup struct {
	id   uint64
	path string
	text string // of /proc/<pid>/cgroup
	up   *cgroup
	used time.Duration
	live int
	// stirred is the part of the counter that is not in used; see Task.stir.
	stirred time.Duration
}

func (m *Machine) cgroup(path string) *cgroup {
	g := m.cgroups[path]
	if g == nil {
		g = &cgroup{path: path, text: "0::" + path}
		if path != "/" {
			g.up = m.cgroup(gopath.Dir(path))
		}
		m.lastCgroup++
		g.id = m.lastCgroup // the root cgroup has id 1, as in the kernel
		m.cgroups[path] = g
		if m.created != nil {
			m.created(g)
		}
	}
	return g
}

// RemoveCgroup removes a cgroup without processes, and its counter.
func (m *Machine) RemoveCgroup(path string) {
	if g := m.cgroups[path]; g != nil && g.live == 0 {
		delete(m.cgroups, path)
		delete(m.Host.Cgroups, path)
		delete(m.Host.Memory, path)
		delete(m.Host.NodeMemory, path)
	}
}
