// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Config is how energy is divided and which series a ledger has. The zero Config has the default
// rules and no limits.
type Config struct {
	Rules  attribution.Rules
	Limits Limits
	// Processes selects the series of processes.
	Processes ProcessSeries
	// HiddenNames are names that are not reported. Groups that would differ only by them are one
	// group.
	HiddenNames GroupNames
	// Created returns identity.Process.Created of a process by its Start. Claimants that are opened
	// without it get it when they have a series. Nil: it stays empty.
	Created func(start time.Duration) string
}

// ProcessSeries determines how processes are grouped into series.
type ProcessSeries uint8

const (
	// ByPID gives each process its own series. The usage of processes without a series is in the
	// overflow account of processes.
	ByPID ProcessSeries = iota
	// ByPIDAndProgram gives each of the largest processes its own series, and groups the others by
	// program. The usage of processes with neither is in the overflow account of processes.
	ByPIDAndProgram
	// ByProgram groups all processes by program.
	ByProgram
)

// Ledger keeps the totals of zones, kinds and accounts, and decides which accounts have a series.
//
// The user of a ledger opens a claimant for each process, adds the shares of each interval, closes
// the claimants that ended in it, and now and then emits the totals, calling Emitted and later
// Outcome.
//
// The zero Ledger is not usable; call New. A Ledger is not safe for concurrent use.
type Ledger struct {
	cfg      Config
	sharer   *attribution.Sharer
	ledger   Totals
	baseline time.Time
	at       time.Time // end of the last interval

	series    map[series]int32 // accounts by what they are
	claimants []*claimant      // nil for one that was released
	idle      idleSharing
	observed  bool // there was an interval, or a state with accounts was restored
	restoring bool // the next interval is the time since the state that was restored

	contest
	delivery
	adding                *attribution.Shares // that are being added, or nil
	undecided             []int32             // rows of processes whose series are decided at the end of a collection
	newcomers, incumbents []contender
}

// New returns a ledger whose totals are 0 at the baseline.
func New(cfg Config, baseline time.Time) *Ledger {
	e := &Ledger{
		cfg: cfg, sharer: attribution.NewSharer(cfg.Rules), baseline: baseline, at: baseline, delivery: delivery{emittedAt: baseline}, series: map[series]int32{},
		idle: idleSharing{index: map[[identity.NumEntities]int32]int32{}},
	}
	for entity := range e.others {
		e.others[entity] = none
	}
	e.others[identity.ProgramEntity] = othersIndex
	e.others[identity.ProcessEntity] = e.ledger.add(Account{Entity: identity.ProcessEntity, Other: true, Start: baseline, refs: 1})
	return e
}

// Sharer returns the Sharer that has the claimants of the ledger, and whose shares Add adds.
func (e *Ledger) Sharer() *attribution.Sharer { return e.sharer }

// Ledger returns the totals so far. It is valid until the next call of another method.
func (e *Ledger) Ledger() *Totals { return &e.ledger }

// Shrink releases the memory of claimants and accounts that are gone, also in the sharer. It must not
// be called between Share and Add.
func (e *Ledger) Shrink() {
	e.sharer.Shrink()
	e.claimants, _ = units.ShrunkTable(e.claimants, []attribution.Claimant(nil), func(i int) bool { return e.claimants[i] == nil })
	e.idle.places = slices.Clone(e.idle.places[:min(len(e.idle.places), len(e.claimants))])
	l := &e.ledger
	l.accounts, l.unused = units.ShrunkTable(l.accounts, l.unused, func(i int) bool { return l.removed[i] })
	l.removed = slices.Clone(l.removed[:len(l.accounts)])
	e.series, e.idle.index = units.Shrunk(e.series), units.Shrunk(e.idle.index)
	e.undecided, e.newcomers, e.incumbents, e.idle.claims = nil, nil, nil, nil
	for entity := range e.candidates {
		e.candidates[entity] = slices.Clone(e.candidates[entity])
	}
}

// GroupNames are names by which groups of containers and pods can differ.
type GroupNames struct{ Namespace, KubernetesContainer, Image bool }

// ownerOf returns the owner of a claimant.
func (e *Ledger) ownerOf(c *claimant) identity.Owner {
	o := c.owner()
	e.setCreated(&o.Process)
	return o
}

func (e *Ledger) setCreated(p *identity.Process) {
	if p.Created == "" && p.PID != 0 && e.cfg.Created != nil {
		p.Created = e.cfg.Created(p.Start)
	}
}
