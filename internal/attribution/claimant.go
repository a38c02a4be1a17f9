// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"slices"
	"time"
	"unique"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Claimant identifies who may claim usage: a process while it runs one program in one container, or what stands for
// processes of a container that are not known by name. Engine.Open returns it, and it is valid until Engine.Close. Its
// number is used again later.
type Claimant int32

// NoClaimant claims the usage of short-lived processes that belong to no container.
const NoClaimant Claimant = -1

// claimant is kept for each process, so it is small: what processes have in common they share.
type claimant struct {
	workload unique.Handle[identity.Workload]
	program  unique.Handle[program]
	own      *ownText      // nil if empty
	start    time.Duration // of the process, since boot
	since    int64         // in nanoseconds since 1970
	pid      int32         // 0 of what stands for processes that are not known by name

	accounts [identity.NumEntities]int32 // index of its account of each entity, or none
	open     bool
	early    bool // it was opened before the first interval, or before the first one since the engine was restored
	running  bool
	excluded bool
	pending  int32 // zones whose pending energy it has claims to

	waits     standing // while its process is no candidate
	candidate int32    // index in Engine.waiting, or none

	idleGroup int32 // index of its idle-allocation group, or none
	idleIndex int32 // index among the group's members that have an account of their own, or none

	// What the current interval brings, until settle.
	touched int32 // index in Engine.touched, or none
	cpu     units.CPUTime
}

// program is the part of an identity.Process that processes have in common.
type program struct {
	executable, path, owner string
	descendants             bool
}

// ownText is the part of an identity.Process that no other process shares and that most processes lack.
type ownText struct {
	created, commandLine string
	parent               int32
}

// newOwned returns a claimant of an owner.
func newOwned(o *identity.Owner) *claimant {
	p := &o.Process
	c := &claimant{
		workload: unique.Make(o.Workload), program: unique.Make(program{p.Executable, p.Path, p.Owner, p.Descendants}), pid: p.PID, start: p.Start,
	}
	if own := (ownText{p.Created, p.CommandLine, p.Parent}); own != (ownText{}) {
		c.own = &own
	}
	return c
}

// ownerOf returns who a claimant is.
func (e *Engine) ownerOf(c *claimant) identity.Owner {
	o := c.owner()
	e.setCreated(&o.Process)
	return o
}

// owner returns who a claimant is, without Process.Created unless that was set.
func (c *claimant) owner() (o identity.Owner) {
	o.Workload = c.workload.Value()
	p, of := &o.Process, c.program.Value()
	p.PID, p.Start, p.Executable, p.Path, p.Owner, p.Descendants = c.pid, c.start, of.executable, of.path, of.owner, of.descendants
	if c.own != nil {
		p.Created, p.CommandLine, p.Parent = c.own.created, c.own.commandLine, c.own.parent
	}
	return o
}

func (e *Engine) setCreated(p *identity.Process) {
	if p.Created == "" && p.PID != 0 && e.cfg.Created != nil {
		p.Created = e.cfg.Created(p.Start)
	}
}

// Open returns a new claimant. Its series start at since, which must not be before the baseline.
func (e *Engine) Open(owner identity.Owner, since time.Time) Claimant {
	id := e.newClaimant()
	c := newOwned(&owner)
	c.since, c.open, c.running, c.candidate, c.touched = since.UnixNano(), true, true, none, none
	c.early = !e.observed || e.restoring
	e.claimants[id] = c
	c.accounts[identity.ProcessEntity], c.accounts[identity.ProgramEntity] = none, none
	if e.cfg.Processes != ByPID {
		c.accounts[identity.ProgramEntity] = e.openAccount(identity.ProgramEntity, &owner, since, e.hasRoom(identity.ProgramEntity))
	}
	for entity := identity.ContainerEntity; entity < identity.NumEntities; entity++ {
		c.accounts[entity] = e.openAccount(entity, &owner, since, e.hasRoom(entity))
	}
	e.joinIdle(id)
	if e.cfg.Processes != ByProgram {
		room := e.wasLive(c) && e.mayContinue(identity.ProcessEntity)
		if e.cfg.Limits[identity.ProcessEntity].MinEnergy == 0 && e.isOldEnough(id) {
			room = room || e.hasRoom(identity.ProcessEntity)
		}
		e.openProcess(id, room)
	}
	return id
}

func (e *Engine) newClaimant() Claimant {
	if n := len(e.unused); n > 0 {
		id := e.unused[n-1]
		e.unused = e.unused[:n-1]
		return id
	}
	e.claimants = append(e.claimants, nil)
	return Claimant(len(e.claimants) - 1)
}

// NeedsSleepers reports whether claimants without any claims make a difference: their processes have series at once, or carry idle
// energy.
func (e *Engine) NeedsSleepers() bool {
	return e.cfg.Processes != ByProgram && e.cfg.Limits[identity.ProcessEntity].MinEnergy == 0 || e.cfg.Rules.Idle != IdleNone && e.cfg.Rules.Idle != IdleUsed
}

// Continues reports whether the process of an owner has a series that goes on if a claimant is opened for it now.
func (e *Engine) Continues(owner *identity.Owner) bool {
	if e.live[identity.ProcessEntity] == 0 && !e.restoring {
		return false
	}
	o := *owner
	e.setCreated(&o.Process)
	s, _ := seriesOf(identity.ProcessEntity, &o)
	i, known := e.series[s]
	return known && (!e.ledger.accounts[i].Ended || e.ledger.accounts[i].wasLive)
}

// Gainer returns who a claimant is, for GainedFunc. Its Process.Created, which is a text, may be empty.
func (e *Engine) Gainer(id Claimant) identity.Owner { return e.claimants[id].owner() }

// Owner returns who a claimant is.
func (e *Engine) Owner(id Claimant) identity.Owner { return e.ownerOf(e.claimants[id]) }

// Workload returns what a claimant is part of.
func (e *Engine) Workload(id Claimant) identity.Workload { return e.claimants[id].workload.Value() }

// Excluded reports whether a claimant is excluded.
func (e *Engine) Excluded(id Claimant) bool { return e.claimants[id].excluded }

// Stop marks a claimant as ended. It may still claim the CPU time of its last slice, and carries no idle energy.
func (e *Engine) Stop(id Claimant) {
	if c := e.claimants[id]; c.running {
		c.running = false
		if c.candidate != none {
			e.waiting[c.candidate].running = false
		}
		e.leaveIdle(id)
	}
}

// Exclude makes the usage of a claimant static from now on: its CPU time is not busy time, and it has no share of any
// energy.
func (e *Engine) Exclude(id Claimant) {
	e.leaveIdle(id)
	e.claimants[id].excluded, e.excludes = true, true
}

// SetRequest sets the CPU time that the claimant's container requests, for IdleRequested. The unit is any that is the
// same for all containers. At 0, as before the first call, the container carries no idle energy.
func (e *Engine) SetRequest(id Claimant, request uint64) {
	holder := idleHolder(&e.claimants[id].accounts)
	if holder == none {
		return
	}
	if a := &e.ledger.accounts[holder]; a.request != min(request, maxRequest) {
		a.request, e.idle.stale = min(request, maxRequest), true
	}
}

// Close ends a claimant. Energy that is pending for its claims still reaches its series, which end afterwards.
func (e *Engine) Close(id Claimant) {
	e.Stop(id)
	e.claimants[id].open = false
	e.closed++
	e.releaseIfDone(id)
}

// releaseIfDone releases a claimant that is closed and has no pending claims.
func (e *Engine) releaseIfDone(id Claimant) {
	c := e.claimants[id]
	if c.open || c.pending > 0 {
		return
	}
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
	e.dequeueProcess(c)
	e.claimants[id] = nil
	e.unused = append(e.unused, id)
}

// touch returns a claimant that gets something in the current interval.
func (e *Engine) touch(id Claimant) *claimant {
	c := e.claimants[id]
	if c.touched == none {
		c.touched = int32(len(e.touched))
		e.touched = append(e.touched, id)
		n := len(e.gains)
		e.gains = slices.Grow(e.gains, e.kinds)[:n+e.kinds]
		clear(e.gains[n:])
	}
	return c
}

// gain is the active energy of one kind that the current interval brings a claimant, and the part of it that belongs to the
// current collection.
type gain struct{ energy, recent units.Energy }

// gainsOf returns what the current interval brings a claimant until settle, by kind.
func (e *Engine) gainsOf(c *claimant) []gain {
	if c.touched == none {
		return nil
	}
	i := int(c.touched) * e.kinds
	return e.gains[i : i+e.kinds]
}

// recentOf returns the sum of what the current interval brings a claimant, at most the largest Energy.
func (e *Engine) recentOf(c *claimant) (sum units.Energy) {
	for _, g := range e.gainsOf(c) {
		sum = units.AddSaturating(sum, g.recent)
	}
	return sum
}

// eachGroup calls yield for the accounts of what a claimant is part of.
func (e *Engine) eachGroup(id Claimant, yield func(*Account)) {
	if id == NoClaimant {
		return
	}
	for _, account := range e.claimants[id].accounts[identity.ContainerEntity:] {
		if account != none {
			yield(&e.ledger.accounts[account])
		}
	}
}
