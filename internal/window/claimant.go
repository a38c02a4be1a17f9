// SPDX-License-Identifier: Apache-2.0

package window

import (
	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// claimant is the ledger's claimant of the process in a slot. The zero claimant marks an empty
// slot.
type claimant struct {
	id         attribution.Claimant
	cgroup     *cgroup.Node // of its container, nil outside of containers or if no cgroup is watched
	open       bool
	sleeps     bool // id belongs to the sleepers of its workload
	inWorkload bool // it is part of a container, a pod or another workload; its unit does not count
	excluded   bool // its energy is static
	usesGPU    bool // its process used a GPU, or had one open
	withCgroup bool // all processes of its own cgroup are excluded, or belong to the same unit
}

// sleepers are the processes of a workload that have not run since their start. Most processes of a
// node never run, so they share one claimant, which gives the workload its series.
type sleepers struct {
	id    attribution.Claimant
	count int
}

// ownerKey identifies a claimant that several processes share.
type ownerKey struct {
	owner    identity.Owner
	excluded bool
}
