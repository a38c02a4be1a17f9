// SPDX-License-Identifier: Apache-2.0

package workload

import "github.com/energyreceiver/energyreceiver/internal/identity"

// holders are the containers that have processes, by their IDs.
//
// The first cgroup with an ID keeps it. Another cgroup with the same ID is another container, such
// as one of another runtime with the same name, or one that only pretends to be the first: its ID
// is the path of its cgroup, for as long as it has processes. The two cgroups that Kata has for
// each container are one.
type holders map[string]*holder

// holder is a container with processes.
type holder struct {
	id, cgroup, runtime string
	processes           int
	named               bool
	names               *identity.Names
}

// nameBy returns the names of the container that p is in. They are the same for all its processes.
// The holder of a process outside of containers is nil.
func (h *holder) nameBy(by *Names, p *Placement) *identity.Names {
	if h == nil {
		return by.of(p)
	}
	if !h.named {
		h.named, h.names = true, by.of(p)
	}
	return h.names
}

// idOf returns the ID of the container that a process is placed in, and its holder if there is one.
func (h holders) idOf(p *Placement) (id string, by *holder) {
	id = p.Container.ID
	if id == "" {
		return "", nil
	}
	byPath := boundID(p.Cgroup)
	if by := h[byPath]; by != nil {
		return byPath, by
	}
	by = h[id]
	if by == nil || by.cgroup == p.Cgroup || by.runtime == kata && p.Container.Runtime == kata {
		return id, by
	}
	return byPath, nil
}

// hold counts a process into its container, and sets the container's ID in the placement. It
// returns nil outside of containers.
func (h holders) hold(p *Placement) *holder {
	id, by := h.idOf(p)
	if id == "" {
		return nil
	}
	if by == nil {
		by = &holder{id: id, cgroup: p.Cgroup, runtime: p.Container.Runtime}
		h[id] = by
	}
	p.Container.ID = id
	by.processes++
	return by
}

// release counts a process out. It takes the nil that hold returns.
func (h holders) release(by *holder) {
	if by == nil {
		return
	}
	if by.processes--; by.processes == 0 && h[by.id] == by {
		delete(h, by.id)
	}
}
