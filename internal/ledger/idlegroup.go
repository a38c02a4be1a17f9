// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// Idle energy that is not shared by use is shared among groups. The members of a group are the
// claimants of the same container, pod, VM, job step and unit, and carry equal parts. Most of them
// have no series, so the energy of a group is added to few accounts.

const (
	// maxRequest bounds the request of a container. A sum of 2^18 requests does not overflow.
	maxRequest = 1 << 20
	// requestUnit is the weight of a request of 1. The groups of a container share its weight, rounded
	// down. requestUnit is so large that the rounding is negligible.
	requestUnit = 1 << 26
)

// idleSharing has the claimants that carry idle energy under an allocation other than by use.
type idleSharing struct {
	groups []idleGroup
	places []idlePlace                           // by claimant, further claimants are in no group
	index  map[[identity.NumEntities]int32]int32 // groups by their accounts
	unused []int32                               // groups without members
	weight uint64                                // of all groups
	stale  bool                                  // the weights must be computed anew
	claims []idleClaim                           // scratch
}

// idlePlace is the place of a claimant in its group.
type idlePlace struct {
	group int32 // index of the group, or unset
	index int32 // index in idleGroup.named, or unset
}

// placeOf returns the place of a claimant.
func (s *idleSharing) placeOf(id attribution.Claimant) idlePlace {
	if int(id) >= len(s.places) {
		return idlePlace{unset, unset}
	}
	return s.places[id]
}

// idleGroup is the claimants that are part of the same container, pod, VM, job step and unit.
type idleGroup struct {
	accounts [identity.NumEntities]int32 // unset for the process and the program
	count    int32
	named    []idleMember
	unnamed  []idleRest // each account once
	weight   uint64
}

// idleRest is the account of the members of a group that have no account of their own and belong to
// the same program.
type idleRest struct{ account, count int32 }

// countUnnamed adds more to the number of unnamed members whose idle energy is added to an account.
func (g *idleGroup) countUnnamed(account, more int32) {
	i := slices.IndexFunc(g.unnamed, func(r idleRest) bool { return r.account == account })
	if i < 0 {
		i = len(g.unnamed)
		g.unnamed = append(g.unnamed, idleRest{account: account})
	}
	if g.unnamed[i].count += more; g.unnamed[i].count == 0 {
		last := len(g.unnamed) - 1
		g.unnamed[i] = g.unnamed[last]
		g.unnamed = g.unnamed[:last]
	}
}

// idleMember is a member of a group that has an account of its own.
type idleMember struct {
	claimant attribution.Claimant
	account  int32
}

// idleHolder returns the account that receives idle energy as a container: the first account of the
// container, VM and pod that is set, or unset.
func idleHolder(accounts *[identity.NumEntities]int32) int32 {
	for _, entity := range [...]identity.Entity{identity.ContainerEntity, identity.VMEntity, identity.PodEntity} {
		if account := accounts[entity]; account != unset {
			return account
		}
	}
	return unset
}

func (s *idleSharing) newGroup(key [identity.NumEntities]int32) (i int32) {
	if n := len(s.unused); n > 0 {
		i, s.unused = s.unused[n-1], s.unused[:n-1]
	} else {
		i = int32(len(s.groups))
		s.groups = append(s.groups, idleGroup{})
	}
	s.groups[i].accounts, s.index[key] = key, i
	return i
}
