// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// If Limit.Births is set, a group is the account of workloads without a series that have the same names: containers
// with the same namespace, name in the pod's specification and image, and pods of the same namespace. The group of a
// program is the account of the same program outside of all containers and units. A group begins with its first
// energy, and ends when its usage has decayed.

// restoredBirths is the part of an hour whose births are used up in a restored engine. So a receiver that restarts
// again and again begins few series.
const restoredBirths = 54 * time.Minute

// series returns what identifies the series of an account.
func (a *Account) series() series {
	if a.IsGroup() {
		s, _ := groupOf(a.Entity, &a.Owner)
		return s
	}
	s, _ := seriesOf(a.Entity, &a.Owner)
	return s
}

// groupOf returns the series of the group of an owner's entity; ok is false if it has none.
func groupOf(e units.Entity, o *units.Owner) (s series, ok bool) {
	s.entity = e
	switch n := o.Names; {
	case e == units.ProgramEntity:
		s.process = o.Process.Program()
		return s, e.Of(o) && e.Key(&o.Workload) != units.Key{}
	case n == nil:
	case e == units.ContainerEntity: // the first part of the key of a container or pod is not empty
		s.in = units.Key{1: n.Namespace, 2: n.KubernetesContainer, 3: n.Image}
	case e == units.PodEntity:
		s.in = units.Key{1: n.Namespace}
	}
	return s, s.in != units.Key{}
}

// groupOwner returns the owner of a group.
func (s *series) groupOwner() *units.Owner {
	o := &units.Owner{Process: s.process}
	if s.entity != units.ProgramEntity {
		o.Names = &units.Names{Namespace: s.in[1], KubernetesContainer: s.in[2], Image: s.in[3]}
	}
	return o
}

// openGroup returns the account of the group of an account's owner, or none. The group of a process is that of its
// program.
func (e *Engine) openGroup(a *Account) int32 {
	entity := max(a.Entity, units.ProgramEntity)
	limit := e.cfg.Limits[entity].Births
	if limit == 0 || a.Entity == units.ProcessEntity && e.cfg.Processes == ByPID {
		return none
	}
	s, ok := groupOf(entity, &a.Owner)
	if !ok || a.IsGroup() {
		return none
	}
	i, known := e.series[s]
	switch {
	case known && !e.ledger.accounts[i].Ended:
		return i
	case !e.hasRoom(entity):
		return none
	case known:
		e.reviveAccount(i)
		return i
	case !e.groupBirths[entity].hasRoom(e.at, limit):
		return none
	}
	e.groupBirths[entity].add(e.at, limit)
	i = e.newAccount(entity, s.groupOwner(), e.emittedAt)
	e.live[entity]++
	e.series[s] = i
	return i
}

// awaitsGroup reports whether a candidate has energy whose group is unknown, because its names are still pending.
func (e *Engine) awaitsGroup(candidate int32) bool {
	a := &e.ledger.accounts[candidate]
	return e.cfg.Limits[a.Entity].Births > 0 && a.awaitsNames() && a.twin == none && !a.empty()
}
