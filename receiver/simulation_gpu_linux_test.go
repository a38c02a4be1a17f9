// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// simCards measures the cards of a simulated machine beside powercap, and has news of each only in
// some reads. It reports the users of the card without fdinfo as a library does: up to the time of
// its last reading.
type simCards struct {
	life     *hostsim.Life
	cards    []*simCard
	readings []power.Reading
	usage    []gpu.Usage
}

type simCard struct {
	lateMeter
	card *hostsim.GPU
	// before and now are the states at the last two reads, told is the state that was reported
	// last.
	before, now, told cardState
	pairs             bool // reports pairs of processes that cannot be distinguished
	garbage           bool // reports processes that do not exist, and more time than has passed
}

// cardState is the cumulative state of a card at a time.
type cardState struct {
	at   time.Time
	busy time.Duration
	used map[*hostsim.Context]time.Duration
}

// addCards adds two cards: one that exposes its users in fdinfo, and one that is read by a library.
func (sim *simulation) addCards(seed uint64) {
	sim.cards = &simCards{life: sim.life}
	for i, driver := range []string{"xe", "nvidia"} {
		curve, err := model.Linear(10, float64(100*(i+1)))
		if err != nil {
			panic(err)
		}
		g := sim.life.AddGPU(&hostsim.GPU{
			Address: fmt.Sprintf("0000:%02x:00.0", 3+i), Driver: driver, Idle: 10, Curve: curve,
			Engines: []hostsim.Engine{{Name: "ccs", Weight: 0.8}, {Name: "bcs", Weight: 0.2}},
		})
		c := &simCard{card: g, pairs: seed/3%3 == 0, garbage: seed/9%3 == 0}
		c.lateMeter = lateMeter{
			zone: power.Zone{
				ID: "GPU-" + g.Address, Name: driver, Kind: power.GPU, Method: power.Measured, Domain: units.GPU(g.Address), MaxWatts: 2000,
			},
			energy: func() float64 { return g.Energy },
			state:  sim.faults.Slow, every: int(1 + (seed/2+uint64(i))%3), power: (seed/4+uint64(i))%2 == 0,
		}
		sim.cards.cards = append(sim.cards.cards, c)
		sim.meters[c.zone.ID] = &c.seen
	}
}

// Read implements power.Meter.
func (m *simCards) Read(ctx context.Context, s power.Sample) ([]power.Reading, error) {
	m.readings = m.readings[:0]
	for _, c := range m.cards {
		readings, err := c.Read(ctx, s)
		if err != nil {
			return nil, err
		}
		m.readings = append(m.readings, readings...)
		c.before, c.now = c.now, cardState{at: s.At, busy: c.card.Busy, used: map[*hostsim.Context]time.Duration{}}
		for _, context := range m.life.Contexts {
			if context.GPU == c.card {
				c.now.used[context] = context.Used[0]
			}
		}
	}
	return m.readings, nil
}

// Close implements power.Meter.
func (*simCards) Close() error { return nil }

// Usage returns the source of the usage of the card without fdinfo.
func (m *simCards) Usage() gpu.Source { return simUsers{m} }

type simUsers struct{ *simCards }

// Read implements gpu.Source.
func (s simUsers) Read(now time.Time, _ *proc.Table) ([]gpu.Usage, error) {
	s.usage = s.usage[:0]
	for _, c := range s.cards {
		if c.card.Driver == "nvidia" {
			s.usage = append(s.usage, c.tell(now, s.life.Now()))
		}
	}
	return s.usage, nil
}

// tell returns the usage up to the time of the reading, nothing if that was reported before.
func (c *simCard) tell(now time.Time, uptime time.Duration) gpu.Usage {
	u := gpu.Usage{Domain: c.zone.Domain}
	next := c.now
	if !c.reading.At.Equal(next.at) {
		next = c.before
	}
	if !c.reading.At.Equal(next.at) || !next.at.After(c.told.at) {
		return u
	}
	from := c.told
	c.told = next
	if from.at.IsZero() {
		return u
	}
	u.Total = units.CPUTime(next.at.Sub(from.at))
	u.Busy = min(units.CPUTime(next.busy-from.busy), u.Total)
	for _, context := range slices.SortedFunc(maps.Keys(next.used), func(a, b *hostsim.Context) int {
		return cmp.Or(cmp.Compare(a.Task.PID, b.Task.PID), cmp.Compare(a.Task.Born, b.Task.Born))
	}) {
		used := next.used[context] - from.used[context]
		if used == 0 && !slices.Contains(c.card.Contexts, context) {
			continue
		}
		user := gpu.User{PIDs: []int32{int32(context.Task.PID)}, Used: units.CPUTime(used)}
		if context.Last > 0 {
			user.Last = now.Add(context.Last - uptime)
		}
		if last := len(u.Users) - 1; c.pairs && last >= 0 && len(u.Users[last].PIDs) == 1 {
			pair := &u.Users[last]
			pair.PIDs = append(pair.PIDs, user.PIDs[0])
			pair.Used += user.Used
			if user.Last.After(pair.Last) {
				pair.Last = user.Last
			}
			continue
		}
		u.Users = append(u.Users, user)
	}
	if c.garbage {
		u.Users = append(u.Users, gpu.User{PIDs: []int32{1 << 30}, Used: u.Total / 3}, gpu.User{Used: u.Total})
		u.Unattributed = u.Total / 7
	}
	return u
}

const chargedOfCards = "accounts with energy of a GPU"

// gpuUser is a process that has opened a card.
type gpuUser struct {
	pid  int32
	born time.Duration // in ticks
}

// checkCards checks that only processes that have opened a card have energy of one, as far as the
// clock distinguishes a process from an earlier one with the same PID.
func (sim *simulation) checkCards() {
	if sim.cards == nil || sim.faults.Fired["suspend"]+sim.faults.Fired["clock step"] > 0 {
		return
	}
	l := sim.s.ledger
	kind := slices.Index(l.Kinds, power.Class{Zone: power.GPU, Method: power.Measured})
	users := map[gpuUser]bool{}
	for _, c := range sim.life.Contexts {
		users[gpuUser{int32(c.Task.PID), c.Task.Born / hostsim.Tick}] = true
	}
	for a := range l.Engine.Ledger().Accounts {
		if a.Entity != identity.ProcessEntity || a.Other || a.Amounts(kind).Energy == 0 {
			continue
		}
		sim.charged++
		if p := processOf(a); !users[gpuUser{p.pid, p.started}] {
			sim.fail("process %d has energy of a card that it never opened", p.pid)
		}
	}
}
