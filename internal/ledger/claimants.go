// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// Open returns a new claimant. Its series start at since, which must not be before the baseline. In
// the first interval after Restore, series of workloads start at the end of the restored interval,
// because an older process may be in the workload. After State.StartOver the series of a process starts
// there as well: a ledger whose state was not stored may have emitted it with a later start.
func (e *Ledger) Open(owner identity.Owner, since time.Time) attribution.Claimant {
	id := e.sharer.Open()
	c := newOwned(&owner)
	if e.restoring && e.baseline.Equal(e.at) {
		since = e.at
	}
	c.since, c.running, c.candidate = since.UnixNano(), true, none
	if e.restoring {
		since = e.at
	}
	c.early = !e.observed || e.restoring
	for len(e.claimants) <= int(id) {
		e.claimants = append(e.claimants, nil)
	}
	e.claimants[id] = c
	c.accounts[identity.ProcessEntity], c.accounts[identity.ProgramEntity] = none, none
	if e.cfg.Processes != ByPID {
		c.accounts[identity.ProgramEntity] = e.openAccount(identity.ProgramEntity, &owner, since, e.hasRoom(identity.ProgramEntity))
	}
	for entity := identity.ContainerEntity; entity < identity.NumEntities; entity++ {
		c.accounts[entity] = e.openAccount(entity, &owner, since, e.hasRoom(entity))
	}
	e.joinIdle(id)
	if e.cfg.Processes == ByProgram {
		return id
	}
	before := e.restoredRank(&owner)
	room := before != nil && e.mayContinue(identity.ProcessEntity)
	if e.cfg.Limits[identity.ProcessEntity].MinEnergy == 0 && e.notBefore(c) <= e.at.UnixNano() {
		room = room || e.hasRoom(identity.ProcessEntity)
	}
	e.openProcess(id, 0, room)
	if before != nil && c.accounts[identity.ProcessEntity] == none {
		w := e.processCandidate(id)
		w.rank, w.contends = *before, true
	}
	return id
}

// NeedsSleepers reports whether claimants without any claims make a difference: their processes
// have series at once, or carry idle energy.
func (e *Ledger) NeedsSleepers() bool {
	return e.cfg.Processes != ByProgram && e.cfg.Limits[identity.ProcessEntity].MinEnergy == 0 || e.cfg.Rules.Idle != attribution.IdleNone && e.cfg.Rules.Idle != attribution.IdleUsed
}

// Continues reports whether the process of an owner has a series that goes on if a claimant is
// opened for it now.
func (e *Ledger) Continues(owner *identity.Owner) bool {
	if e.live[identity.ProcessEntity] == 0 && !e.restoring {
		return false
	}
	a := e.accountOfProcess(*owner)
	return a != nil && (!a.Ended() || a.restored == wasLive)
}

// Process returns the process of a claimant. Its Created, which is a text, may be empty.
func (e *Ledger) Process(id attribution.Claimant) identity.Process {
	return e.claimants[id].owner().Process
}

// Owner returns the owner of a claimant.
func (e *Ledger) Owner(id attribution.Claimant) identity.Owner { return e.ownerOf(e.claimants[id]) }

// Workload returns what a claimant is part of.
func (e *Ledger) Workload(id attribution.Claimant) identity.Workload {
	return e.claimants[id].workload.Value()
}

// Excluded reports whether a claimant is excluded.
func (e *Ledger) Excluded(id attribution.Claimant) bool { return e.sharer.Excluded(id) }

// Stop marks a claimant as ended. It may still claim the CPU time of its last slice, and carries no
// idle energy.
func (e *Ledger) Stop(id attribution.Claimant) {
	if c := e.claimants[id]; c.running {
		c.running = false
		if c.candidate != none {
			e.candidates[identity.ProcessEntity][c.candidate].contends = false
		}
		e.leaveIdle(id)
	}
}

// Exclude makes the usage of a claimant static from now on: its CPU time is not busy time, and it
// has no share of any energy.
func (e *Ledger) Exclude(id attribution.Claimant) {
	e.leaveIdle(id)
	e.sharer.Exclude(id)
}

// SetRequest sets the CPU time that the claimant's container requests, for IdleRequested. The unit
// is any that is the same for all containers. At 0, as before the first call, the container carries
// no idle energy.
func (e *Ledger) SetRequest(id attribution.Claimant, request uint64) {
	holder := idleHolder(&e.claimants[id].accounts)
	if holder == none {
		return
	}
	if a := &e.ledger.accounts[holder]; a.request != min(request, maxRequest) {
		a.request, e.idle.stale = min(request, maxRequest), true
	}
}

// Close ends a claimant. Energy that is deferred for its claims still reaches its series, which end
// afterwards.
func (e *Ledger) Close(id attribution.Claimant) {
	e.Stop(id)
	if e.sharer.Close(id) {
		e.release(id)
	}
}

// release ends the accounts to which only a claimant added that gets no more energy.
func (e *Ledger) release(id attribution.Claimant) {
	c := e.claimants[id]
	for entity, account := range c.accounts {
		if account == none {
			continue
		}
		a := &e.ledger.accounts[account]
		if a.refs == 1 {
			if identity.Entity(entity) == identity.ProgramEntity {
				e.leaveProgram(account)
			} else {
				e.endAccount(account)
			}
			continue
		}
		if a.refs--; a.claimant == id {
			a.claimant = none
		}
	}
	e.dequeue(identity.ProcessEntity, int32(id))
	e.claimants[id] = nil
}

// restoredRank returns the rank of a process whose series was live in the state that is being
// restored, else nil.
func (e *Ledger) restoredRank(owner *identity.Owner) *rank {
	if !e.restoring {
		return nil
	}
	if a := e.accountOfProcess(*owner); a != nil && a.restored == wasLive {
		return &a.rank
	}
	return nil
}

// accountOfProcess returns the account of an owner's process, or nil.
func (e *Ledger) accountOfProcess(owner identity.Owner) *Account {
	e.setCreated(&owner.Process)
	s, _ := seriesOf(identity.ProcessEntity, &owner)
	if i, ok := e.series[s]; ok {
		return &e.ledger.accounts[i]
	}
	return nil
}
