// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// Open returns a new claimant. Its series start at since, which must not be before the baseline. In
// the first interval after Restore, series of workloads start at the end of the restored interval,
// because an older process may be in the workload. After State.StartOver the series of processes
// start there as well: an earlier ledger may already have emitted a series that starts at since.
func (l *Ledger) Open(owner identity.Owner, since time.Time) attribution.Claimant {
	id := l.sharer.Open()
	c := newOwned(&owner)
	if l.restoring && l.baseline.Equal(l.at) {
		since = l.at
	}
	c.since, c.running, c.candidate = since.UnixNano(), true, unset
	if l.restoring {
		since = l.at
	}
	c.early = !l.observed || l.restoring
	for len(l.claimants) <= int(id) {
		l.claimants = append(l.claimants, nil)
	}
	l.claimants[id] = c
	c.accounts[identity.ProcessEntity], c.accounts[identity.ProgramEntity] = unset, unset
	if l.cfg.Processes != ByPID {
		c.accounts[identity.ProgramEntity] = l.openAccount(identity.ProgramEntity, &owner, since, l.hasRoom(identity.ProgramEntity))
	}
	for entity := identity.ContainerEntity; entity < identity.NumEntities; entity++ {
		c.accounts[entity] = l.openAccount(entity, &owner, since, l.hasRoom(entity))
	}
	l.joinIdle(id)
	if l.cfg.Processes == ByProgram {
		return id
	}
	before := l.restoredRank(&owner)
	room := before != nil && l.mayContinue(identity.ProcessEntity)
	if l.cfg.Limits[identity.ProcessEntity].MinEnergy == 0 && l.notBefore(c) <= l.at.UnixNano() {
		room = room || l.hasRoom(identity.ProcessEntity)
	}
	l.openProcess(id, 0, room)
	if before != nil && c.accounts[identity.ProcessEntity] == unset {
		w := l.processCandidate(id)
		w.rank, w.contends = *before, true
	}
	return id
}

// NeedsSleepers reports whether processes without any claims need claimants, because they have
// series at once or carry idle energy.
func (l *Ledger) NeedsSleepers() bool {
	return l.cfg.Processes != ByProgram && l.cfg.Limits[identity.ProcessEntity].MinEnergy == 0 || l.idleRule().carries != nil
}

// Continues reports whether the process of an owner has a series that continues if a claimant is
// opened for it now.
func (l *Ledger) Continues(owner *identity.Owner) bool {
	if l.live[identity.ProcessEntity] == 0 && !l.restoring {
		return false
	}
	a := l.accountOfProcess(*owner)
	return a != nil && (!a.Ended() || a.restored == wasLive)
}

// Process returns the process of a claimant. Created may be empty.
func (l *Ledger) Process(id attribution.Claimant) identity.Process {
	return l.claimants[id].owner().Process
}

// Owner returns the owner of a claimant.
func (l *Ledger) Owner(id attribution.Claimant) identity.Owner { return l.ownerOf(l.claimants[id]) }

// Workload returns the workload of a claimant.
func (l *Ledger) Workload(id attribution.Claimant) identity.Workload {
	return l.claimants[id].workload.Value()
}

// Excluded reports whether a claimant is excluded.
func (l *Ledger) Excluded(id attribution.Claimant) bool { return l.sharer.Excluded(id) }

// Stop marks a claimant as ended. It may still claim the CPU time of its last slice, and carries no
// idle energy.
func (l *Ledger) Stop(id attribution.Claimant) {
	if c := l.claimants[id]; c.running {
		c.running = false
		if c.candidate != unset {
			l.candidates[identity.ProcessEntity][c.candidate].contends = false
		}
		l.leaveIdle(id)
	}
}

// Leave stops a claimant that will be closed before the next emission. A contest counts the place
// of its series as free.
func (l *Ledger) Leave(id attribution.Claimant) {
	l.Stop(id)
	l.claimants[id].leaves = true
}

// Exclude makes the usage of a claimant static from now on: its CPU time is not busy time, and it
// has no share of any energy.
func (l *Ledger) Exclude(id attribution.Claimant) {
	l.leaveIdle(id)
	l.sharer.Exclude(id)
}

// SetRequest sets the CPU time that the claimant's container requests, for IdleRequested. The unit
// must be the same for all containers. A container with the request 0, which is the initial value,
// carries no idle energy.
func (l *Ledger) SetRequest(id attribution.Claimant, request uint64) {
	holder := idleHolder(&l.claimants[id].accounts)
	if holder == unset {
		return
	}
	if a := &l.accounts[holder]; a.request != min(request, maxRequest) {
		a.request, l.idle.stale = min(request, maxRequest), true
	}
}

// Close ends a claimant. Energy that is deferred for its claims still reaches its series, which end
// afterwards.
func (l *Ledger) Close(id attribution.Claimant) {
	l.Leave(id)
	if l.sharer.Close(id) {
		l.release(id)
	}
}

// release removes a claimant that gets no more energy, and ends its accounts that have no other
// claimant.
func (l *Ledger) release(id attribution.Claimant) {
	c := l.claimants[id]
	for entity, account := range c.accounts {
		if account == unset {
			continue
		}
		a := &l.accounts[account]
		if a.refs == 1 {
			if identity.Entity(entity) == identity.ProgramEntity {
				l.leaveProgram(account)
			} else {
				l.endAccount(account)
			}
			continue
		}
		if a.refs--; a.claimant == id {
			a.claimant = unset
		}
	}
	l.dequeue(identity.ProcessEntity, int32(id))
	l.claimants[id] = nil
}

// restoredRank returns the rank of a process whose series was live in the state that is being
// restored, or nil.
func (l *Ledger) restoredRank(owner *identity.Owner) *rank {
	if !l.restoring {
		return nil
	}
	if a := l.accountOfProcess(*owner); a != nil && a.restored == wasLive {
		return &a.rank
	}
	return nil
}

// accountOfProcess returns the account of an owner's process, or nil.
func (l *Ledger) accountOfProcess(owner identity.Owner) *Account {
	l.setCreated(&owner.Process)
	s, _ := seriesOf(identity.ProcessEntity, &owner)
	if i, ok := l.series[s]; ok {
		return &l.accounts[i]
	}
	return nil
}
