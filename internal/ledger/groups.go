// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// If Limit.Births is set, a group is the account of workloads without a series that have the same
// names. Containers form a group if they have the same image, namespace and name in the pod's
// specification. Pods form a group by namespace, and programs in containers and units by executable
// and user. A group begins with its first energy, and ends when its usage has decayed.
//
// A group never has the same series as a workload. Otherwise a container could add energy to a
// program of the host by running a process with the same name.

// restoredBirths is the part of an hour that counts as used up by births when a ledger is restored.
// A receiver that restarts repeatedly therefore begins few series.
const restoredBirths = 54 * time.Minute

// groupOf returns the series of the group of an owner's entity, with the names that are reported;
// ok is false if it has no group.
func (l *Ledger) groupOf(entity identity.Entity, o *identity.Owner) (s series, ok bool) {
	s = groupSeries(entity, o)
	if entity == identity.ProgramEntity {
		return s, entity.Of(o) && entity.Key(&o.Workload) != identity.Key{}
	}
	hidden := &l.cfg.HiddenNames
	for i, isHidden := range [...]bool{hidden.Namespace, hidden.KubernetesContainer, hidden.Image} {
		if isHidden {
			s.in[i] = ""
		}
	}
	return s, s.in != identity.Key{}
}

// openGroup returns the account of the group of an account's owner, or unset. The group of a
// process is the group of its program.
func (l *Ledger) openGroup(a *Account) int32 {
	entity := max(a.Entity, identity.ProgramEntity)
	limit := l.cfg.Limits[entity].Births
	if limit == 0 || a.group || a.Entity == identity.ProcessEntity && l.cfg.Processes == ByPID {
		return unset
	}
	s, ok := l.groupOf(entity, &a.Owner)
	if !ok {
		return unset
	}
	i, known := l.series[s]
	switch {
	case known && !l.accounts[i].Ended():
		return i
	case !l.hasRoom(entity):
		return unset
	case known:
		l.reviveAccount(i)
		return i
	case !l.groupBirths[entity].hasRoom(l.at, limit):
		return unset
	}
	l.groupBirths[entity].add(l.at, limit)
	i = l.newAccount(entity, s.groupOwner(), l.emittedAt)
	l.accounts[i].group = true
	l.live[entity]++
	l.series[s] = i
	return i
}

// awaitsGroup reports whether a candidate has energy whose group is not determined yet, because its
// names are not resolved yet.
func (l *Ledger) awaitsGroup(candidate int32) bool {
	a := &l.accounts[candidate]
	return l.cfg.Limits[a.Entity].Births > 0 && a.awaitsNames() && !a.empty()
}
