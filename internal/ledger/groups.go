// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// If Limit.Births is set, a group is the account of workloads without a series that have the same
// names: containers with the same namespace, name in the pod's specification and image, pods of the
// same namespace, and programs in containers and units with the same executable and user. A group
// begins with its first energy, and ends when its usage has decayed.
//
// The series of a group differs from those of workloads. Otherwise a container could add energy to
// a program of the host by a process of the same name.

// restoredBirths is the part of an hour whose births are used up in a restored engine. So a
// receiver that restarts again and again begins few series.
const restoredBirths = 54 * time.Minute

// groupOf returns the series of the group of an owner's entity, with the names that are reported;
// ok is false if it has none.
func (e *Ledger) groupOf(entity identity.Entity, o *identity.Owner) (s series, ok bool) {
	s = groupSeries(entity, o)
	if entity == identity.ProgramEntity {
		return s, entity.Of(o) && entity.Key(&o.Workload) != identity.Key{}
	}
	hidden := &e.cfg.HiddenNames
	for i, isHidden := range [...]bool{hidden.Namespace, hidden.KubernetesContainer, hidden.Image} {
		if isHidden {
			s.in[i] = ""
		}
	}
	return s, s.in != identity.Key{}
}

// openGroup returns the account of the group of an account's owner, or none. The group of a process
// is that of its program.
func (e *Ledger) openGroup(a *Account) int32 {
	entity := max(a.Entity, identity.ProgramEntity)
	limit := e.cfg.Limits[entity].Births
	if limit == 0 || a.group || a.Entity == identity.ProcessEntity && e.cfg.Processes == ByPID {
		return none
	}
	s, ok := e.groupOf(entity, &a.Owner)
	if !ok {
		return none
	}
	i, known := e.series[s]
	switch {
	case known && !e.ledger.accounts[i].Ended():
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
	e.ledger.accounts[i].group = true
	e.live[entity]++
	e.series[s] = i
	return i
}

// awaitsGroup reports whether a candidate has energy whose group is unknown, because its names are
// still deferred.
func (e *Ledger) awaitsGroup(candidate int32) bool {
	a := &e.ledger.accounts[candidate]
	return e.cfg.Limits[a.Entity].Births > 0 && a.awaitsNames() && !a.empty()
}
