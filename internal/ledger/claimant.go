// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"time"
	"unique"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// claimant is the state of a claimant. It is small, because each process has one: equal workloads
// and programs are stored once.
type claimant struct {
	workload unique.Handle[identity.Workload]
	program  unique.Handle[program]
	own      *ownText      // nil if empty
	start    time.Duration // of the process, since boot
	since    int64         // in nanoseconds since 1970
	pid      int32         // 0 for claimants of processes without names

	accounts [identity.NumEntities]int32 // index of its account of each entity, or unset
	early    bool                        // opened before the first interval after New or Restore
	running  bool
	leaves   bool // Leave was called

	candidate int32 // index in Ledger.candidates, or unset
}

// program is the part of an identity.Process that processes have in common.
type program struct {
	executable, path, owner string
	descendants             bool
}

// ownText is the part of an identity.Process that no other process shares and that most processes
// lack.
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

// owner returns the owner of a claimant. Process.Created is empty unless Open set it.
func (c *claimant) owner() (o identity.Owner) {
	o.Workload = c.workload.Value()
	p, of := &o.Process, c.program.Value()
	p.PID, p.Start, p.Executable, p.Path, p.Owner, p.Descendants = c.pid, c.start, of.executable, of.path, of.owner, of.descendants
	if c.own != nil {
		p.Created, p.CommandLine, p.Parent = c.own.created, c.own.commandLine, c.own.parent
	}
	return o
}
