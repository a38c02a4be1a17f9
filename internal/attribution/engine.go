// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Config is how an engine attributes. The zero Config has the default rules and no limits.
type Config struct {
	Rules  Rules
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

// Engine attributes the energy of intervals to claimants and keeps the totals in a Ledger.
//
// The user of an engine opens a claimant for each process, passes an Interval to Observe, closes
// the claimants that ended in it, and now and then emits the ledger, calling Emitted and later
// Outcome. In every interval and for each
// kind, the energy of the processes and the unattributed energy are together exactly the active
// energy, and active, idle and deferred energy are exactly what the zones counted.
//
// The zero Engine is not usable; call New. An Engine is not safe for concurrent use.
type Engine struct {
	cfg      Config
	ledger   Ledger
	baseline time.Time
	at       time.Time // end of the last interval

	series    map[series]int32 // accounts by what they are
	claimants []*claimant      // nil for one that was released
	unused    []Claimant
	idle      idleSharing
	trained   [MaxKinds]TrainedModel // the models that are trained
	excludes  bool                   // set once any claimant was excluded
	closed    uint64                 // how many claimants were closed so far
	deficits  []deficits             // by domain
	gained    GainedFunc             // nil unless OnGain set it
	observed  bool                   // there was an interval
	resumes   bool                   // a state with accounts was restored
	restoring bool                   // the next interval is the time since the state that was restored

	contest
	delivery
	scratch
}

// scratch holds what Observe uses in one interval, to allocate it once.
type scratch struct {
	kinds                 int        // of the ledger, up to the last that was present when the interval began
	touched               []Claimant // that got something in the interval
	gains                 []gain     // of those that are touched, kinds each
	gainedEnergy          []units.Energy
	parts                 partGains    // empty unless OnGain set its number of domains
	sums                  []domainSums // by domain
	index                 claimIndex
	dues                  []due       // of zones whose readings have an age
	resolved              []*slice    // whose energy was attributed in the interval
	spare                 []*deferral // that are unused
	spareSlices           []*slice    // likewise
	newcomers, incumbents []contender
}

// Gain is the CPU time and the active energy, by kind of the ledger, that an interval brought a
// claimant.
type Gain struct {
	CPU    units.CPUTime
	Energy []units.Energy
}

// GainedFunc receives what an interval brought a claimant, and the parts of it in domains. Its
// slices are valid until it returns.
type GainedFunc func(id Claimant, all Gain, parts []Gain)

// OnGain has f called in Observe for each claimant that the interval brings something; nil ends
// that. Active energy of which f receives nothing belongs to no claimant. f receives the parts of
// that many domains after the node's.
func (e *Engine) OnGain(f GainedFunc, domains int) { e.gained, e.parts.domains = f, domains }

// New returns an engine whose totals are 0 at the baseline.
func New(cfg Config, baseline time.Time) *Engine {
	e := &Engine{
		cfg: cfg, baseline: baseline, at: baseline, delivery: delivery{emittedAt: baseline}, series: map[series]int32{},
		idle: idleSharing{index: map[[identity.NumEntities]int32]int32{}},
	}
	for kind, model := range cfg.Rules.Models {
		e.trained[kind], _ = model.(TrainedModel)
	}
	for entity := range e.others {
		e.others[entity] = none
	}
	e.others[identity.ProgramEntity] = othersIndex
	e.others[identity.ProcessEntity] = e.ledger.add(Account{Entity: identity.ProcessEntity, Other: true, Start: baseline, refs: 1})
	return e
}

// Ledger returns the totals so far. It is valid until the next call of another method.
func (e *Engine) Ledger() *Ledger { return &e.ledger }

// Shrink releases the memory of claimants and accounts that are gone. It must not be called during
// Observe.
func (e *Engine) Shrink() {
	e.claimants, e.unused = shrunk(e.claimants, e.unused, func(i int) bool { return e.claimants[i] == nil })
	l := &e.ledger
	l.accounts, l.unused = shrunk(l.accounts, l.unused, func(i int) bool { return l.removed[i] })
	l.removed = slices.Clone(l.removed[:len(l.accounts)])
	e.series, e.idle.index = units.Shrunk(e.series), units.Shrunk(e.idle.index)
	e.touched, e.gains, e.parts, e.newcomers, e.incumbents, e.idle.claims = nil, nil, partGains{domains: e.parts.domains}, nil, nil, nil
	e.index, e.dues, e.resolved, e.spare, e.spareSlices = nil, nil, nil, nil, nil
	for entity := range e.candidates {
		e.candidates[entity] = slices.Clone(e.candidates[entity])
	}
}

// shrunk returns the table without its unused end, and the indices before it that are unused.
func shrunk[T any, I ~int32](table []T, unused []I, isUnused func(int) bool) ([]T, []I) {
	n := len(table)
	for n > 0 && isUnused(n-1) {
		n--
	}
	var kept []I
	for _, i := range unused {
		if int(i) < n {
			kept = append(kept, i)
		}
	}
	return slices.Clone(table[:n]), slices.Clip(kept)
}

// GroupNames are names by which groups of containers and pods can differ.
type GroupNames struct{ Namespace, KubernetesContainer, Image bool }

// domainSums is the energy of an interval that can be attributed at once, of the zones of one
// domain.
type domainSums struct {
	energy [MaxKinds]units.Energy
	zones  [MaxKinds]int // in each sum
}

// ownerOf returns the owner of a claimant.
func (e *Engine) ownerOf(c *claimant) identity.Owner {
	o := c.owner()
	e.setCreated(&o.Process)
	return o
}

func (e *Engine) setCreated(p *identity.Process) {
	if p.Created == "" && p.PID != 0 && e.cfg.Created != nil {
		p.Created = e.cfg.Created(p.Start)
	}
}
