// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
)

// lateMeter is the source of a part of the simulated machine that powercap does not measure. Only
// some reads return a new value.
type lateMeter struct {
	zone   power.Zone
	energy func() float64 // in µJ
	state  *hostsim.SlowMeter
	every  int  // reads from one value to the next
	power  bool // it shows powers, otherwise a counter

	reads, replaced int
	before, value   measurement // value at the last read, and value of the last good read
	shown           [1]power.Shown
}

// measurement is the energy of the machine at a time, in µJ.
type measurement struct {
	at     time.Time
	energy units.Energy
}

var errSlowFails = errors.New("no answer")

// Answer implements power.Source.
func (m *lateMeter) Answer(_ context.Context, s power.Sample) (power.Answer, error) {
	if m.shown[0].Zone == nil || m.replaced != m.state.Replaced {
		zone := m.zone
		m.replaced, m.value, m.shown[0] = m.state.Replaced, measurement{}, power.Shown{Zone: &zone, Err: errSlowFails}
	}
	m.reads++
	value := measurement{s.At, units.Energy(m.energy())}
	if m.reads%m.every == 0 {
		m.poll(value)
	}
	m.before = value
	if m.state.Vanished {
		return power.Answer{}, nil
	}
	return power.Answer{Shown: m.shown[:]}, nil
}

func (m *lateMeter) poll(v measurement) {
	shown := &m.shown[0]
	switch {
	case m.state.Fails > 0:
		m.state.Fails--
		shown.Err = errSlowFails
		return
	case m.state.Rejects > 0:
		m.state.Rejects--
		*shown = power.Shown{Zone: shown.Zone, At: v.at, IsPower: true, Power: -1}
		return
	case m.state.Late > 0 && m.before.at.After(m.value.at):
		m.state.Late--
		v = m.before
	}
	*shown = power.Shown{Zone: shown.Zone, At: v.at, IsPower: m.power, Counter: v.energy}
	if elapsed := v.at.Sub(m.value.at); !m.value.at.IsZero() && elapsed > 0 {
		shown.Power, shown.Average = int64(float64(v.energy-m.value.energy)/elapsed.Seconds()), elapsed
	}
	m.value = v
}

// Close implements power.Source.
func (*lateMeter) Close() error { return nil }

// isSlow reports whether a zone kind is not measured by powercap.
func isSlow(kind power.Kind) bool {
	return kind == power.Platform || kind == power.Other || kind == power.GPU
}

// newSlowMeter returns a meter of the whole machine, which may show less than the machine uses, or
// more than its sockets.
func newSlowMeter(seed uint64, life *hostsim.Life, state *hostsim.SlowMeter) *lateMeter {
	scale, extra := [...]float64{1, 0.98}[seed/5%2], [...]float64{0, 50, 50}[seed/10%3]
	return &lateMeter{
		zone: power.Zone{
			ID: "slow", Name: "slow", Kind: power.Platform, Method: power.Measured, Domain: units.NodeCPUs, MaxWatts: power.MaxPlatformWatts,
		},
		state: state, every: int(1 + seed/6%4), power: seed/3%2 == 0,
		energy: func() float64 {
			energy := joule * extra * life.Now().Seconds()
			for _, s := range life.Sockets {
				energy += s.Energy.Package + s.Energy.DRAM
			}
			return scale * energy
		},
	}
}

// openMeters has the receiver read a slow meter or GPUs in addition to powercap.
func (w *world) openMeters(m *machine.Machine) {
	var others []power.Member
	if w.slow != nil {
		others = append(others, power.Member{Name: "slow", Meter: power.Direct("slow", w.slow)})
	}
	if w.cards != nil {
		others = append(others, power.Member{Name: "gpu", Meter: w.cards, Only: power.GPU})
	}
	if len(others) == 0 {
		return
	}
	open := m.OpenMeters
	m.OpenMeters = func(ctx context.Context, cfg *Config, host component.Host, set component.TelemetrySettings) (*power.Set, error) {
		powercap, err := open(ctx, cfg, host, set)
		if err != nil {
			return nil, err
		}
		members := others
		for _, m := range powercap.Status() {
			members = append(members, m.Member)
		}
		zones := power.NewSet(members...)
		zones.Remainder = powercap.Remainder
		return zones, nil
	}
}

// simCards measures the GPUs of a machine. It reports the users of the card without fdinfo as a
// library does: up to the time of its last reading.
type simCards struct {
	life     *hostsim.Life
	cards    []*simCard
	readings []power.Reading
	usage    []gpu.Usage
}

type simCard struct {
	lateMeter
	meter power.Meter
	card  *hostsim.GPU
	// former and latest are the states at the last two reads, reported is the state that was
	// reported last.
	former, latest, reported cardState
	pairs                    bool // reports pairs of processes that cannot be distinguished
	garbage                  bool // reports processes that do not exist, and more time than has passed
}

// cardState is the cumulative state of a card at a time.
type cardState struct {
	at   time.Time
	busy time.Duration
	used map[*hostsim.Context]time.Duration
}

// newCards adds two GPUs to a machine: one that exposes its users in fdinfo, and one that is read
// by a library.
func newCards(seed uint64, life *hostsim.Life, state *hostsim.SlowMeter) *simCards {
	cards := &simCards{life: life}
	for i, driver := range []string{"xe", "nvidia"} {
		curve, err := model.Linear(10, float64(100*(i+1)))
		if err != nil {
			panic(err)
		}
		g := life.AddGPU(&hostsim.GPU{
			Address: fmt.Sprintf("0000:%02x:00.0", 3+i), Driver: driver, Idle: 10, Curve: curve,
			Engines: []hostsim.Engine{{Name: "ccs", Weight: 0.8}, {Name: "bcs", Weight: 0.2}},
		})
		c := &simCard{card: g, pairs: seed/3%3 == 0, garbage: seed/9%3 == 0, lateMeter: lateMeter{
			zone: power.Zone{
				ID: "GPU-" + g.Address, Name: driver, Kind: power.GPU, Method: power.Measured, Domain: units.GPU(g.Address), MaxWatts: 2000,
			},
			energy: func() float64 { return g.Energy },
			state:  state, every: int(1 + (seed/2+uint64(i))%3), power: (seed/4+uint64(i))%2 == 0,
		}}
		c.meter = power.Direct("gpu", &c.lateMeter)
		cards.cards = append(cards.cards, c)
	}
	return cards
}

// Read implements power.Meter.
func (m *simCards) Read(ctx context.Context, s power.Sample) ([]power.Reading, error) {
	m.readings = m.readings[:0]
	for _, c := range m.cards {
		readings, err := c.meter.Read(ctx, s)
		if err != nil {
			return nil, err
		}
		m.readings = append(m.readings, readings...)
		c.former, c.latest = c.latest, cardState{at: s.At, busy: c.card.Busy, used: map[*hostsim.Context]time.Duration{}}
		for _, context := range m.life.Contexts {
			if context.GPU == c.card {
				c.latest.used[context] = context.Used[0]
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
			s.usage = append(s.usage, c.report(now, s.life.Now()))
		}
	}
	return s.usage, nil
}

// report returns the usage up to the time of the reading, none if that was reported before.
func (c *simCard) report(now time.Time, uptime time.Duration) gpu.Usage {
	u := gpu.Usage{Domain: c.zone.Domain}
	next, from := c.latest, c.reported
	if !c.value.at.Equal(next.at) {
		next = c.former
	}
	if !c.value.at.Equal(next.at) || !next.at.After(from.at) {
		return u
	}
	if c.reported = next; from.at.IsZero() {
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
