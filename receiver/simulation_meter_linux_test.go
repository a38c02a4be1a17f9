// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"context"
	"errors"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// slowPlatform measures the whole simulated machine beside powercap, and has news only in some reads.
type slowPlatform struct {
	life  *hostsim.Life
	state *hostsim.SlowMeter
	every int  // reads from one value to the next
	power bool // it shows powers, otherwise a counter

	reads, replaced int
	counter         *power.Counter
	integrator      *power.Integrator
	before          measurement // at the last read
	value           measurement // the last good one
	reading         power.Reading
	out             [1]power.Reading

	seen oracle // what the ledger has to count
	of   *power.Zone
}

// measurement is the energy of the machine at a time, in µJ.
type measurement struct {
	at     time.Time
	energy units.Energy
}

const slowID = "slow"

var (
	errSlowFails   = errors.New("no answer")
	errSlowRejects = errors.New("impossible")
)

func (m *slowPlatform) now(at time.Time) measurement {
	energy := 50e6 * m.life.Now().Seconds()
	for _, s := range m.life.Sockets {
		energy += s.Energy.Package + s.Energy.DRAM
	}
	return measurement{at, units.Energy(energy)}
}

func (m *slowPlatform) begin() {
	zone := &power.Zone{
		ID: slowID, Name: slowID, Kind: power.Platform, Source: power.Measured, Domain: units.NodeCPUs, MaxWatts: power.MaxPlatformWatts,
	}
	m.reading, m.value = power.Reading{Zone: zone, Err: errSlowFails}, measurement{}
	m.counter, m.integrator = power.NewCounter(zone.MaxWatts, 0), power.NewIntegrator(zone.MaxWatts, 2*time.Minute)
}

// Read implements power.Meter.
func (m *slowPlatform) Read(_ context.Context, s power.Sample) ([]power.Reading, error) {
	if m.reading.Zone == nil || m.replaced != m.state.Replaced {
		m.replaced = m.state.Replaced
		m.begin()
	}
	m.reads++
	m.reading.Event = power.NoEvent
	value := m.now(s.At)
	if m.reads%m.every == 0 {
		m.poll(value)
	}
	m.before = value
	if m.state.Vanished {
		return nil, nil
	}
	m.out[0] = m.reading
	return m.out[:], nil
}

func (m *slowPlatform) poll(v measurement) {
	r := &m.reading
	switch {
	case m.state.Fails > 0:
		m.state.Fails--
		r.Err = errSlowFails
		return
	case m.state.Rejects > 0:
		m.state.Rejects--
		r.Err, r.Event = errSlowRejects, power.Rejected
		return
	case m.state.Late > 0 && m.before.at.After(m.value.at):
		m.state.Late--
		v = m.before
	}
	r.Err = nil
	var energy units.Energy
	if m.power {
		var watts float64
		elapsed := v.at.Sub(m.value.at)
		if m.value != (measurement{}) && elapsed > 0 {
			watts = float64(v.energy-m.value.energy) / elapsed.Seconds()
		}
		energy, r.Event = m.integrator.Add(int64(watts), elapsed, v.at)
	} else {
		energy, r.Event = m.counter.Add(v.energy, v.at)
	}
	m.value = v
	if r.Event == power.Rejected {
		r.Err = errSlowRejects
		return
	}
	if energy > 0 || r.Event != power.NoEvent {
		r.Total, r.At = r.Total+energy, v.at
	}
}

// Close implements power.Meter.
func (*slowPlatform) Close() error { return nil }

// observe updates the oracle with the reading that the ledger has observed. Where another zone has taken the place of the one
// before, its first good reading is the baseline.
func (m *slowPlatform) observe() {
	r := &m.out[0]
	if m.state.Vanished || r.Zone == nil {
		return
	}
	if r.Zone != m.of {
		if r.Err != nil {
			return
		}
		m.of, m.seen.last = r.Zone, uint64(r.Total)
	}
	m.seen.total += uint64(r.Total) - m.seen.last
	m.seen.last = uint64(r.Total)
}
