// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

var restartSeeds = flag.Uint64("restart.seeds", 60, "how many histories with restarts to simulate")

const restartKinds = 2

// restarts is a machine with processes whose engine is replaced at random moments by one that
// continues its last state. Nothing that happened after the state is known to the new engine, and
// all that was sent until then is known to the next consumer.
type restarts struct {
	*rand.Rand
	cfg    ledger.Config
	engine *ledger.Ledger
	at     time.Time
	pids   int32
	alive  []*restartProcess
	zones  []*restartZone
	// settled is the energy of processes whose accounts are removed, by kind, active and idle.
	settled [restartKinds][2]units.Energy
	dropped uint64
	sent    map[string]sentSeries

	state        ledger.State
	stateSettled [restartKinds][2]units.Energy
	saved        bool
	did          map[string]int
}

type restartProcess struct {
	owner identity.Owner
	id    attribution.Claimant
	used  units.CPUTime // since the last interval
	since units.CPUTime // since the state
	born  time.Time
}

type restartZone struct {
	kind                      int
	raw, began, shown, atSave units.Energy // counted so far, at the first reading, when it was read last, at the state
	base                      units.Energy // what a total of 0 is
	read                      bool         // it has ever been
	failing                   int
}

type sentSeries struct {
	start   time.Time
	amounts [restartKinds][2]units.Energy
	cpu     units.CPUTime
}

func newRestarts(seed uint64) *restarts {
	r := &restarts{
		Rand: rand.New(rand.NewPCG(seed, 1)), at: time.Unix(1_700_000_000, 0), sent: map[string]sentSeries{}, did: map[string]int{},
	}
	limits := &r.cfg.Limits
	switch seed % 4 {
	case 1:
		limits[identity.ProcessEntity].MinEnergy = 20 * units.Joule
	case 2:
		limits[identity.ProcessEntity] = ledger.Limit{MinEnergy: units.Joule, Max: 6}
		limits[identity.ContainerEntity] = ledger.Limit{MinEnergy: 5 * units.Joule, Max: 2}
	case 3:
		limits[identity.ProcessEntity].Max = 5
		limits[identity.ContainerEntity].Max = 2
	}
	r.cfg.Processes = ledger.ProcessSeries(seed / 2 % 3)
	limits[identity.ProgramEntity].Max = int(seed / 3 % 4)
	r.cfg.Rules.Idle = attribution.IdleAllocation(seed / 4 % 5)
	if seed%5 > 1 {
		for entity := range limits[:identity.VMEntity] {
			limits[entity].Births = 1 + r.IntN(30)
		}
	}
	r.engine = ledger.New(r.cfg, r.at)
	for kind := range restartKinds {
		for range 1 + r.IntN(2) {
			r.zones = append(r.zones, &restartZone{kind: kind})
		}
	}
	return r
}

func (r *restarts) spawn() {
	r.pids++
	p := &restartProcess{owner: identity.Owner{Process: identity.Process{PID: r.pids, Executable: fmt.Sprint("a", r.IntN(3))}}, born: r.at}
	if n := r.IntN(6); n < 4 {
		p.owner.Container, p.owner.Pod = identity.Container{ID: fmt.Sprint("c", n)}, identity.Pod{UID: fmt.Sprint("p", n/2)}
	} else if n == 4 {
		job := fmt.Sprint("job", r.pids/4)
		p.owner.Container, p.owner.Pod = identity.Container{ID: job}, identity.Pod{UID: job}
		p.owner.Names = &identity.Names{Namespace: fmt.Sprint("n", r.IntN(2)), Pending: r.IntN(3) == 0}
	}
	r.alive = append(r.alive, p)
	r.open(p)
}

func (r *restarts) open(p *restartProcess) { p.id = r.engine.Open(p.owner, p.born) }

// step is one interval.
func (r *restarts) step() error {
	elapsed := time.Duration(1+r.IntN(10)) * time.Second
	r.at = r.at.Add(elapsed)
	if r.IntN(8) == 0 {
		r.engine.Shrink() // changes no totals
	}
	for range r.IntN(3) {
		r.spawn()
	}
	node := attribution.Usage{}
	if r.IntN(8) > 0 {
		node.Total = units.CPUTime(10 * elapsed)
	}
	var ended []attribution.Claimant
	for _, p := range r.alive {
		if r.IntN(3) > 0 {
			used := units.CPUTime(r.Int64N(int64(elapsed) / 4))
			p.used += used
			p.since += used
		}
		if p.used > 0 {
			node.Claims = append(node.Claims, attribution.Claim{Claimant: p.id, CPU: p.used})
		}
		node.Busy += p.used
		if p.used = 0; r.IntN(12) == 0 {
			r.engine.Stop(p.id)
			ended = append(ended, p.id)
		}
	}
	r.alive = slices.DeleteFunc(r.alive, func(p *restartProcess) bool { return slices.Contains(ended, p.id) })
	if len(r.alive) > 20 {
		r.did["crowd"]++
	}
	node.Unattributed = units.CPUTime(r.Int64N(int64(elapsed)))
	node.Busy += node.Unattributed
	iv := attribution.Interval{At: r.at, Elapsed: elapsed, Domains: []attribution.Usage{node}, EndsCollection: r.IntN(3) > 0}
	for i, z := range r.zones {
		z.raw += units.Energy(r.Int64N(int64(100 * units.Joule)))
		ok := z.failing == 0
		if ok {
			z.shown, z.read = z.raw, true
			if r.IntN(10) == 0 {
				z.failing = 1 + r.IntN(5)
			}
		} else {
			z.failing--
			r.did["failed reading"]++
		}
		if !z.read {
			continue
		}
		if z.began == 0 {
			z.began = z.raw
			z.base = z.raw
		}
		iv.Zones = append(iv.Zones, attribution.ZoneReading{Zone: i, Kind: z.kind, Total: z.shown - z.base, OK: ok})
	}
	r.engine.Observe(&iv)
	for _, id := range ended {
		r.engine.Close(id)
	}
	if err := r.balance(); err != nil {
		return err
	}
	if iv.EndsCollection {
		return r.collect()
	}
	return nil
}

// balance checks that no energy is lost or counted twice.
func (r *restarts) balance() error {
	l := r.engine.Ledger()
	var counted [restartKinds]units.Energy
	for i, z := range r.zones {
		if !z.read {
			continue
		}
		if got, want := l.Zones[i].Energy, z.shown-z.began; got != want {
			return fmt.Errorf("zone %d has %d of %d", i, got, want)
		}
		counted[z.kind] += l.Zones[i].Energy
	}
	for kind := range restartKinds {
		k := &l.Kinds[kind]
		active, idle := r.settled[kind][0]+k.Unattributed, r.settled[kind][1]+k.UnattributedIdle
		for a := range l.Accounts {
			if a.Entity.OfProcesses() {
				active += a.Amounts(kind).Energy
				idle += a.Amounts(kind).Idle
			}
		}
		if active != k.Active || r.cfg.Rules.Idle != attribution.IdleNone && idle != k.Idle {
			return fmt.Errorf("kind %d: processes and unattributed %d of %d active, %d of %d idle", kind, active, k.Active, idle, k.Idle)
		}
		if sum := k.Active + k.Idle + l.Kinds[kind].Deferred; sum != counted[kind] {
			return fmt.Errorf("kind %d: %d attributed or deferred of %d", kind, sum, counted[kind])
		}
	}
	return nil
}

// collect keeps the state and emits. What becomes of the emission is random, and so is whether the
// engine lives on.
func (r *restarts) collect() error {
	r.engine.State(&r.state)
	r.saved, r.stateSettled = true, r.settled
	for _, z := range r.zones {
		z.atSave = z.shown
	}
	for _, p := range r.alive {
		p.since = 0
	}
	if r.IntN(12) == 0 {
		r.restart("before it was handed on")
		return nil
	}
	var ended [restartKinds][2]units.Energy
	emission := map[string]sentSeries{}
	for a := range r.engine.Ledger().Accounts {
		s := sentSeries{start: a.Start, cpu: a.CPU}
		for kind := range s.amounts {
			m := a.Amounts(kind)
			s.amounts[kind] = [2]units.Energy{m.Energy, m.Idle}
			if a.Entity.OfProcesses() && a.Ended() {
				ended[kind][0] += m.Energy
				ended[kind][1] += m.Idle
			}
		}
		name := fmt.Sprint(a.Entity, a.Other, a.Owner.Process.PID, a.Owner.Process.Executable, a.Owner.Container.ID, a.Owner.Pod.UID)
		if a.IsGroup() {
			if name += "group"; a.Owner.Names != nil {
				name += a.Owner.Names.Namespace
			}
			r.did["group"]++
		}
		if _, twice := emission[name]; twice {
			return fmt.Errorf("series %s is in the emission twice", name)
		}
		emission[name] = s
	}
	r.engine.Emitted()
	outcome := r.IntN(20)
	if outcome > 2 { // it may be known
		if err := r.send(emission); err != nil {
			return err
		}
	}
	switch {
	case outcome < 3:
		r.engine.Outcome(ledger.Refused)
	case outcome == 3:
		r.engine.Outcome(ledger.PartlyAcknowledged)
	case outcome == 5:
		r.engine.Outcome(ledger.RefusedForGood)
	case outcome == 4:
		r.restart("while it was handed on")
	default:
		r.engine.Outcome(ledger.Acknowledged)
		for kind := range ended {
			r.settled[kind][0] += ended[kind][0]
			r.settled[kind][1] += ended[kind][1]
		}
	}
	return nil
}

// send checks that no series goes down or has another start, unless its end was sent.
func (r *restarts) send(emission map[string]sentSeries) error {
	if dropped := r.engine.Ledger().Dropped; dropped != r.dropped {
		clear(r.sent)
		r.dropped = dropped
	}
	for name, before := range r.sent {
		now, ok := emission[name]
		if !ok {
			delete(r.sent, name) // it was sent that it has ended
			continue
		}
		if !now.start.Equal(before.start) && !now.start.After(before.start) {
			return fmt.Errorf("series %s began at %v and now at %v", name, before.start, now.start)
		}
		if !now.start.Equal(before.start) {
			r.did["series began anew"]++
			continue
		}
		for kind := range now.amounts {
			if now.amounts[kind][0] < before.amounts[kind][0] || now.amounts[kind][1] < before.amounts[kind][1] || now.cpu < before.cpu {
				return fmt.Errorf("series %s goes down from %v to %v", name, before, now)
			}
		}
		r.did["series went on"]++
	}
	for name, s := range emission {
		r.sent[name] = s
	}
	return nil
}

// restart replaces the engine. Some processes end meanwhile.
func (r *restarts) restart(when string) {
	if !r.saved {
		return
	}
	r.did["restart "+when]++
	r.at = r.at.Add(time.Duration(1+r.IntN(3600)) * time.Second)
	r.engine = ledger.New(r.cfg, r.at)
	r.engine.Restore(&r.state)
	r.settled, r.dropped = r.stateSettled, r.state.Dropped
	for _, z := range r.zones {
		z.base = z.atSave
		z.shown = z.atSave
	}
	r.alive = slices.DeleteFunc(r.alive, func(*restartProcess) bool { return r.IntN(10) == 0 })
	for _, p := range r.alive {
		if p.used = p.since; p.born.Before(r.at) {
			p.born = r.at
		}
		r.open(p)
	}
}

func TestTotalsContinueWhateverTheMomentOfARestart(t *testing.T) {
	did := map[string]int{}
	for seed := range *restartSeeds {
		r := newRestarts(seed)
		for i := range 150 {
			require.NoError(t, r.step(), "seed %d, step %d", seed, i)
			if r.IntN(15) == 0 {
				r.restart("between collections")
			}
		}
		for what, n := range r.did {
			did[what] += n
		}
	}
	t.Log(did)
	for _, what := range []string{
		"restart before it was handed on", "restart while it was handed on", "restart between collections", "series went on", "failed reading",
		"group",
	} {
		assert.NotZero(t, did[what], what)
	}
}

func TestAStateIsTakenWithoutAllocating(t *testing.T) {
	r := newRestarts(1)
	for range 20 {
		require.NoError(t, r.step())
	}
	for l := r.engine.Ledger(); l.Kinds[0].Deferred+l.Kinds[1].Deferred > 0; { // deferred energy takes an allocation for each zone
		for _, z := range r.zones {
			z.failing = 0
		}
		require.NoError(t, r.step())
	}
	var s ledger.State
	r.engine.State(&s)
	assert.Zero(t, allocs.Count(100, func() { r.engine.State(&s) }))
}
