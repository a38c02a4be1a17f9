// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Config selects how energy is divided and which series a ledger has. The zero Config has the
// default rules and no limits.
type Config struct {
	Rules  attribution.Rules
	Limits Limits
	// Processes selects the series of processes.
	Processes ProcessSeries
	// HiddenNames are names that are not reported. Groups that would differ only by them are one
	// group.
	HiddenNames GroupNames
	// Created returns identity.Process.Created for the Start of a process. It is called when a
	// process that was opened without Created gets a series. If nil, Created stays empty.
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
// The caller opens a claimant for each process. After each interval, it adds the shares and closes
// the claimants that ended in the interval. After each collection, it emits the totals, and calls
// Emitted and later Outcome.
//
// The zero Ledger is not usable; call New. A Ledger is not safe for concurrent use.
type Ledger struct {
	Totals

	cfg      Config
	sharer   *attribution.Sharer
	baseline time.Time
	at       time.Time // end of the last interval

	series    map[series]int32 // accounts by their identity
	claimants []*claimant      // nil after a release
	idle      idleSharing
	observed  bool // an interval was added, or a state with accounts was restored
	restoring bool // the next interval is the time since the restored state

	contest
	delivery
	adding                *attribution.Shares // that are being added, or nil
	undecided             []int32             // rows of processes whose series are decided at the end of a collection
	newcomers, incumbents []contender
}

// New returns a ledger whose totals are 0 at the baseline.
func New(cfg Config, baseline time.Time) *Ledger {
	l := &Ledger{
		cfg: cfg, sharer: attribution.NewSharer(cfg.Rules), baseline: baseline, at: baseline, delivery: delivery{emittedAt: baseline}, series: map[series]int32{},
		idle: idleSharing{index: map[[identity.NumEntities]int32]int32{}},
	}
	for entity := range l.others {
		l.others[entity] = unset
	}
	l.others[identity.ProgramEntity] = othersIndex
	l.others[identity.ProcessEntity] = l.add(Account{Entity: identity.ProcessEntity, Other: true, Start: baseline, refs: 1})
	return l
}

// Sharer returns the Sharer of the ledger's claimants. Its shares are passed to Add.
func (l *Ledger) Sharer() *attribution.Sharer { return l.sharer }

// Shrink releases the memory of removed claimants and accounts, and calls Shrink of the sharer. It
// must not be called between Share and Add.
func (l *Ledger) Shrink() {
	l.sharer.Shrink()
	l.claimants, _ = units.ShrunkTable(l.claimants, []attribution.Claimant(nil), func(i int) bool { return l.claimants[i] == nil })
	l.idle.places = slices.Clone(l.idle.places[:min(len(l.idle.places), len(l.claimants))])
	l.accounts, l.unused = units.ShrunkTable(l.accounts, l.unused, func(i int) bool { return l.removed[i] })
	l.removed = slices.Clone(l.removed[:len(l.accounts)])
	l.series, l.idle.index = units.Shrunk(l.series), units.Shrunk(l.idle.index)
	l.undecided, l.newcomers, l.incumbents, l.idle.claims = nil, nil, nil, nil
	for entity := range l.candidates {
		l.candidates[entity] = slices.Clone(l.candidates[entity])
	}
}

// GroupNames are names that distinguish groups of containers and pods.
type GroupNames struct{ Namespace, KubernetesContainer, Image bool }

// ownerOf returns the owner of a claimant.
func (l *Ledger) ownerOf(c *claimant) identity.Owner {
	o := c.owner()
	l.setCreated(&o.Process)
	return o
}

func (l *Ledger) setCreated(p *identity.Process) {
	if p.Created == "" && p.PID != 0 && l.cfg.Created != nil {
		p.Created = l.cfg.Created(p.Start)
	}
}
