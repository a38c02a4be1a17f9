// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// lateMeter measures something of the simulated machine beside powercap, and has news only in some reads.
type lateMeter struct {
	zone   power.Zone
	energy func() float64 // in µJ
	state  *hostsim.SlowMeter
	every  int  // reads from one value to the next
	power  bool // it shows powers, otherwise a counter

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

// slowPlatform measures the whole machine.
type slowPlatform struct {
	lateMeter
	life *hostsim.Life
	// scale is the part that the meter shows of the energy of the sockets and of the additional
	// power beside, in W.
	scale, beside float64
}

const slowID = "slow"

var (
	errSlowFails   = errors.New("no answer")
	errSlowRejects = errors.New("impossible")
)

func (m *slowPlatform) shown() float64 {
	energy := joule * m.beside * m.life.Now().Seconds()
	for _, s := range m.life.Sockets {
		energy += s.Energy.Package + s.Energy.DRAM
	}
	return m.scale * energy
}

func (m *lateMeter) begin() {
	zone := new(power.Zone)
	*zone = m.zone
	m.reading, m.value = power.Reading{Zone: zone, Err: errSlowFails}, measurement{}
	m.counter, m.integrator = power.NewCounter(zone.MaxWatts, 0), power.NewIntegrator(zone.MaxWatts, 2*time.Minute)
}

// Read implements power.Meter.
func (m *lateMeter) Read(_ context.Context, s power.Sample) ([]power.Reading, error) {
	if m.reading.Zone == nil || m.replaced != m.state.Replaced {
		m.replaced = m.state.Replaced
		m.begin()
	}
	m.reads++
	m.reading.Event = power.NoEvent
	value := measurement{s.At, units.Energy(m.energy())}
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

func (m *lateMeter) poll(v measurement) {
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
		r.Unmeasured = m.integrator.Unmeasured()
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
func (*lateMeter) Close() error { return nil }

// observe updates the oracle with the reading that the ledger has observed. Where another zone has
// taken the place of the one before, its first good reading is the baseline.
func (m *lateMeter) observe() {
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

// otherOracle checks the zone other: whole and parts are the readings from which it was derived.
type otherOracle struct {
	seen  oracle // what the ledger has to count
	parts map[time.Time]units.Energy
	// Of the first time of the zone.
	began        bool
	whole, first units.Energy
}

// observe notes the readings of an interval. Where nothing ever failed, other and the parts have to
// be the whole, as soon as nothing is owed.
func (o *otherOracle) observe(readings []power.Reading, deficit units.Energy, faultless bool) error {
	var whole, other *power.Reading
	var parts units.Energy
	var at time.Time
	for i := range readings {
		r := &readings[i]
		switch r.Zone.Kind {
		case power.Platform:
			whole = r
		case power.Other:
			other = r
		case power.Package, power.DRAM:
			parts, at = parts+r.Total, r.At
		}
	}
	o.parts[at] = parts
	if other == nil {
		return nil
	}
	if uint64(other.Total) < o.seen.total {
		return fmt.Errorf("other went from %d µJ to %d", o.seen.total, other.Total)
	}
	o.seen.total = uint64(other.Total)
	parts, known := o.parts[other.At]
	if !faultless || !known || whole == nil || !whole.At.Equal(other.At) {
		return nil
	}
	if !o.began {
		o.began, o.whole, o.first = true, whole.Total, parts
	}
	if got := other.Total + parts - o.first; got != whole.Total-o.whole+deficit {
		return fmt.Errorf("other and its parts are %d µJ, the whole %d with a deficit of %d", got, whole.Total-o.whole, deficit)
	}
	return nil
}
