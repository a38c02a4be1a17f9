// SPDX-License-Identifier: Apache-2.0

package attribution_test

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
	cfg    attribution.Config
	engine *attribution.Engine
	at     time.Time
	pids   int32
	alive  []*restartProcess
	zones  []*restartZone
	// settled is the energy of processes whose accounts are removed, by kind, active and idle.
	settled [restartKinds][2]units.Energy
	dropped uint64
	sent    map[string]sentSeries

	state        attribution.State
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
		limits[identity.ProcessEntity] = attribution.Limit{MinEnergy: units.Joule, Max: 6}
		limits[identity.ContainerEntity] = attribution.Limit{MinEnergy: 5 * units.Joule, Max: 2}
	case 3:
		limits[identity.ProcessEntity].Max = 5
		limits[identity.ContainerEntity].Max = 2
	}
	r.cfg.Processes = attribution.ProcessSeries(seed / 2 % 3)
	limits[identity.ProgramEntity].Max = int(seed / 3 % 4)
	r.cfg.Rules.Idle = attribution.IdleAllocation(seed / 4 % 5)
	if seed%5 > 1 {
		for entity := range limits[:identity.VMEntity] {
			limits[entity].Births = 1 + r.IntN(30)
		}
	}
	r.engine = attribution.New(r.cfg, r.at)
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
		if sum := k.Active + k.Idle + l.Deferred(kind); sum != counted[kind] {
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
		r.engine.Outcome(attribution.Refused)
	case outcome == 3:
		r.engine.Outcome(attribution.PartlyAcknowledged)
	case outcome == 5:
		r.engine.Outcome(attribution.RefusedForGood)
	case outcome == 4:
		r.restart("while it was handed on")
	default:
		r.engine.Outcome(attribution.Acknowledged)
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
	r.engine = attribution.New(r.cfg, r.at)
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

// restored returns an engine that continues another one's totals.
func restored(cfg attribution.Config, e *attribution.Engine) *attribution.Engine {
	var s attribution.State
	e.State(&s)
	again := attribution.New(cfg, s.At)
	again.Restore(&s)
	return again
}

// interval observes one of ten seconds, of which the CPUs were busy for five. The only zone has
// counted total.
func interval(e *attribution.Engine, at time.Time, total units.Energy, users ...attribution.Claimant) {
	u := attribution.Usage{Busy: 5 * units.Second, Total: 10 * units.Second}
	for _, id := range users {
		u.Claims = append(u.Claims, attribution.Claim{Claimant: id, CPU: 5 * units.Second / units.CPUTime(len(users))})
	}
	e.Observe(&attribution.Interval{
		At: at, Elapsed: 10 * time.Second, Domains: []attribution.Usage{u}, EndsCollection: true,
		Zones: []attribution.ZoneReading{{Total: total, OK: true}},
	})
}

func accountOf(e *attribution.Engine, pid int32) *attribution.Account {
	for a := range e.Ledger().Accounts {
		if a.Entity == identity.ProcessEntity && a.Owner.Process.PID == pid {
			return a
		}
	}
	return nil
}

func TestAProcessThatHadASeriesHasItAgainWithoutEarningIt(t *testing.T) {
	var cfg attribution.Config
	cfg.Limits[identity.ProcessEntity].MinEnergy = 10 * units.Joule
	at := time.Unix(1_700_000_000, 0)
	known, small := identity.Owner{Process: identity.Process{PID: 1}}, identity.Owner{Process: identity.Process{PID: 2}}
	e := attribution.New(cfg, at)
	a, b := e.Open(known, at), e.Open(small, at)
	interval(e, at, 0)
	interval(e, at.Add(10*time.Second), 30*units.Joule, a)
	interval(e, at.Add(20*time.Second), 32*units.Joule, b)
	require.NotNil(t, accountOf(e, 1))
	require.Nil(t, accountOf(e, 2))

	again := restored(cfg, e)
	require.True(t, accountOf(again, 1).Ended(), "until it is opened")
	assert.True(t, again.Continues(&known))
	assert.False(t, again.Continues(&small))
	again.Open(known, at)
	again.Open(small, at)
	interval(again, at.Add(30*time.Second), 0)
	account := accountOf(again, 1)
	require.NotNil(t, account)
	assert.False(t, account.Ended())
	assert.Equal(t, 15*units.Joule, account.Amounts(0).Energy)
	assert.True(t, at.Equal(account.Start))
	assert.Nil(t, accountOf(again, 2), "it had none")
}

func TestSeriesThatEndAfterARestartWithALowerLimitAreKept(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	e := attribution.New(attribution.Config{}, at)
	var ids []attribution.Claimant
	for pid := range int32(8) {
		ids = append(ids, e.Open(identity.Owner{Process: identity.Process{PID: 1 + pid}}, at))
	}
	interval(e, at, 0)
	interval(e, at.Add(10*time.Second), 80*units.Joule, ids...)

	var few attribution.Config
	few.Limits[identity.ProcessEntity].Max = 2
	again := restored(few, e)
	a := again.Open(identity.Owner{Process: identity.Process{PID: 1}}, at)
	interval(again, at.Add(20*time.Second), 8*units.Joule, a)
	again.Close(a)
	require.NotNil(t, accountOf(again, 1), "the next consumer knows it")
	assert.Equal(t, 9*units.Joule, accountOf(again, 1).Amounts(0).Energy)
	assert.Zero(t, again.Ledger().Dropped)
}

func TestWhoRanBeforeARestartIsNotKnownToCarryIdleEnergy(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	cfg := attribution.Config{Rules: attribution.Rules{Idle: attribution.IdleEqual}}
	e := attribution.New(cfg, at)
	e.Open(identity.Owner{Process: identity.Process{PID: 1}}, at)
	interval(e, at, 0)
	again := restored(cfg, e)
	born := again.Open(identity.Owner{Process: identity.Process{PID: 2}}, at)
	interval(again, at.Add(10*time.Second), 80*units.Joule, born)
	assert.Equal(t, 40*units.Joule, again.Ledger().Kinds[0].UnattributedIdle)
	interval(again, at.Add(20*time.Second), 100*units.Joule, born)
	assert.Equal(t, 40*units.Joule, again.Ledger().Kinds[0].UnattributedIdle, "from then on it is")
}

func TestAStateThatStartsOverKeepsTheEnergySinceThen(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	e := attribution.New(attribution.Config{}, at)
	a := e.Open(identity.Owner{Process: identity.Process{PID: 1}}, at)
	interval(e, at, 0)
	interval(e, at.Add(10*time.Second), 30*units.Joule, a)
	var s attribution.State
	e.State(&s)
	s.StartOver()
	again := attribution.New(attribution.Config{}, s.At)
	again.Restore(&s)
	assert.Nil(t, accountOf(again, 1))
	a = again.Open(identity.Owner{Process: identity.Process{PID: 1}}, s.At)
	interval(again, at.Add(20*time.Second), 8*units.Joule, a)
	l := again.Ledger()
	assert.Equal(t, 8*units.Joule, l.Zones[0].Energy)
	assert.Equal(t, 4*units.Joule, l.Kinds[0].Active)
	assert.Equal(t, 4*units.Joule, l.Kinds[0].Idle)
	assert.Equal(t, 4*units.Joule, accountOf(again, 1).Amounts(0).Energy)
	for _, start := range []time.Time{l.Zones[0].Start, l.Kinds[0].Start, accountOf(again, 1).Start} {
		assert.True(t, s.At.Equal(start))
	}
}

func TestTotalsStartOverWithAStartThatWasNotEmitted(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	owner := identity.Owner{Process: identity.Process{PID: 1}}
	e := attribution.New(attribution.Config{}, at)
	interval(e, at, 0)
	interval(e, at.Add(10*time.Second), 30*units.Joule)
	var s attribution.State
	e.State(&s)
	last := s.At
	created := last.Add(5 * time.Second)
	for range 2 {
		s.StartOver()
		again := attribution.New(attribution.Config{}, s.At)
		again.Restore(&s)
		interval(again, at.Add(20*time.Second), 8*units.Joule, again.Open(owner, created))
		start := accountOf(again, 1).Start
		assert.True(t, start.After(last) && start.Before(created), "other starts may have been emitted since")
		assert.True(t, start.Equal(s.Kinds[0].Start) && start.Equal(s.Zones[0].Start))
		last = start
	}
}

func TestRestoredSeriesAreSettledAndThoseThatStartOverAreNot(t *testing.T) {
	for name, startOver := range map[string]bool{"goes on": false, "starts over": true} {
		t.Run(name, func(t *testing.T) {
			at := time.Unix(1_700_000_000, 0)
			e := attribution.New(attribution.Config{}, at)
			a := e.Open(identity.Owner{Process: identity.Process{PID: 1}}, at)
			interval(e, at, 0)
			interval(e, at.Add(10*time.Second), 30*units.Joule, a)
			var s attribution.State
			e.State(&s)
			if startOver {
				s.StartOver()
			}
			again := attribution.New(attribution.Config{}, s.At)
			again.Restore(&s)
			a = again.Open(identity.Owner{Process: identity.Process{PID: 1}}, s.At)
			b := again.Open(identity.Owner{Process: identity.Process{PID: 2}}, s.At.Add(time.Second))
			interval(again, at.Add(20*time.Second), 8*units.Joule, a, b)
			l := again.Ledger()
			assert.True(t, s.At.Equal(l.SettledAt))
			account := accountOf(again, 1)
			for _, settled := range []bool{
				l.Settled(&l.Zones[0].Lifetime), l.Settled(&l.Kinds[0].Lifetime), l.Settled(&account.Lifetime), l.SettledIn(account, 0),
			} {
				assert.Equal(t, !startOver, settled)
			}
			assert.False(t, l.SettledIn(accountOf(again, 2), 0), "it is new")
		})
	}
}

// taught is a static power model that counts the portions from which something can be learned.
type taught struct{ learned *int }

func (l taught) Active(p attribution.Portion) units.Energy {
	if !p.Partial {
		*l.learned++
	}
	return p.Energy
}

func TestNothingIsLearnedFromTheTimeOfARestart(t *testing.T) {
	learned := 0
	cfg := attribution.Config{Rules: attribution.Rules{Models: [attribution.MaxKinds]attribution.StaticPowerModel{taught{&learned}}}}
	at := time.Unix(1_700_000_000, 0)
	e := attribution.New(cfg, at)
	interval(e, at, 0)
	again := restored(cfg, e)
	interval(again, at.Add(10*time.Second), units.Joule)
	assert.Zero(t, learned)
	interval(again, at.Add(20*time.Second), 2*units.Joule)
	assert.Equal(t, 1, learned)
}

func TestAStateIsTakenWithoutAllocating(t *testing.T) {
	r := newRestarts(1)
	for range 20 {
		require.NoError(t, r.step())
	}
	for l := r.engine.Ledger(); l.Deferred(0)+l.Deferred(1) > 0; { // deferred energy takes an allocation for each zone
		for _, z := range r.zones {
			z.failing = 0
		}
		require.NoError(t, r.step())
	}
	var s attribution.State
	r.engine.State(&s)
	assert.Zero(t, allocs.Count(100, func() { r.engine.State(&s) }))
}
