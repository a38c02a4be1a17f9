// SPDX-License-Identifier: Apache-2.0

package workload

import "github.com/energyreceiver/energyreceiver/internal/identity"

// holders are the containers that have processes, by their IDs.
//
// The ID of a container belongs to the first cgroup with this ID. Another cgroup with the same ID
// is another container, such as a container of another runtime with the same name, or a forgery.
// While it has processes, its ID is the path of its cgroup. The two cgroups that Kata creates for
// each container are one container.
type holders map[string]*holder

// holder is a container with processes.
type holder struct {
	id, cgroup, runtime string
	processes           int
	names               *identity.Names // shared by all its processes
}

// idOf returns the ID of the container in a placement, and its holder if there is one.
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

// hold adds a process to its container. It returns nil outside of containers.
func (id *Identifier) hold(p *Placement) *holder {
	container, by := id.holders.idOf(p)
	if container == "" {
		return nil
	}
	if by == nil {
		by = &holder{id: container, cgroup: p.Cgroup, runtime: p.Container.Runtime}
		id.holders[container] = by
		p.Container.ID = container
		by.names = id.namesOf(p)
	}
	by.processes++
	return by
}

// release removes a process from its container. A nil holder has no effect.
func (h holders) release(by *holder) {
	if by == nil {
		return
	}
	if by.processes--; by.processes == 0 && h[by.id] == by {
		delete(h, by.id)
	}
}

// namesOf returns the names of the container or pod in a placement, or nil if names are not wanted.
func (id *Identifier) namesOf(p *Placement) *identity.Names {
	if id.wanted.Names == nil {
		return nil
	}
	return id.wanted.Names.of(p)
}
