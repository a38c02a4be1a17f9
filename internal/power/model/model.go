// SPDX-License-Identifier: Apache-2.0

// Package model estimates energy from the node's CPU utilization, and from events, for machines without a sensor.
package model

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// SameCPUError is the error to be expected where another machine with the same CPU was measured:
// the median of 619 published SPECpower results, at the wall, each left out in turn.
const SameCPUError = 0.058

// PartError is the error of a virtual machine's part of its host's power because the load of the
// host is not known: the mean over all loads of both, on servers.
const PartError = 0.16

// ErrorOfPart returns the error to be expected of a virtual machine's part of its host's power, by
// that of the host's power. Both are 0 where they are not known.
func ErrorOfPart(host float64) float64 {
	if host == 0 {
		return 0
	}
	return math.Hypot(host, PartError) // independent of each other
}

// ZoneCurve is the power of one zone kind, over all zones of the kind together.
type ZoneCurve struct {
	Kind  power.Kind
	Curve Curve
	// Function is the power in watts at rates of the node, in place of Curve, and nil if there is a Curve. Needs lists
	// the rates that it depends on. One goroutine calls it.
	Function func(*Rates) float64
	Needs    []Feature
	// Idle is the idle power in watts if another model provides the idle power, otherwise nil.
	Idle *float64
	// Basis says what the curve was made from, for people. It is empty where the configuration states the curve.
	Basis string
	// ExpectedError is the mean absolute error of the power that is to be expected, relative to the
	// power: 0.06 is 6 %. 0 means that it is not known.
	ExpectedError float64
}

// IdleWatts returns the power with no CPU busy.
func (c *ZoneCurve) IdleWatts() float64 {
	switch {
	case c.Idle != nil:
		return *c.Idle
	case c.Function != nil:
		return c.Function(&Rates{})
	}
	return c.Curve.Watts(0)
}

// IsIdleLowest reports whether the power depends on the CPU utilization alone, and is lowest with no CPU
// busy, where it is IdleWatts.
func (c *ZoneCurve) IsIdleLowest() bool {
	idle := c.IdleWatts()
	return c.Function == nil && c.Curve.Watts(0) == idle &&
		!slices.ContainsFunc(c.Curve, func(p Point) bool { return p.Watts < idle })
}

// Meter is a power.Meter that follows power curves. Its zones are modeled. It fails only if the
// rates that a curve needs cannot be read. The zero Meter is not usable; call New or NewWithEvents.
type Meter struct {
	zones    []zone
	events   Events // nil if no zone needs it
	needs    []Feature
	rates    Rates     // of the last read
	counted  time.Time // until when energy was counted
	busy     units.CPUTime
	total    units.CPUTime
	started  bool
	readings []power.Reading
}

// zone is one curve with its zone.
type zone struct {
	power.Zone
	curve    Curve
	function func(*Rates) float64 // in place of curve, may be nil
	// rest is the part of a microjoule that the total does not yet hold, 0 up to 1. Dropped at
	// every read it would add up.
	rest float64
}

// New returns a meter with a zone for each curve: of power.Package, all CPU sockets of the node
// together, power.DRAM, all its memory, or power.Platform, the whole machine. There is one curve a
// kind.
func New(curves ...ZoneCurve) *Meter {
	m := &Meter{zones: make([]zone, len(curves)), readings: make([]power.Reading, len(curves))}
	for i, c := range curves {
		z := &m.zones[i]
		*z = zone{curve: c.Curve, function: c.Function, Zone: power.Zone{
			ID: "model:" + strconv.Itoa(i), Name: string(c.Kind), Kind: c.Kind,
			Method: power.Modeled, Domain: units.NodeCPUs, MaxWatts: power.MaxWatts(c.Kind),
		}}
		if c.Kind == power.Package {
			z.Name = "package-0"
		}
		m.needs = append(m.needs, c.Needs...)
		m.readings[i].Zone = &z.Zone
	}
	return m
}

// NewWithEvents returns the meter that New returns, for curves that need events. It closes them.
func NewWithEvents(events Events, curves ...ZoneCurve) *Meter {
	m := New(curves...)
	m.events = events
	return m
}

// Close closes the events.
func (m *Meter) Close() error {
	if m.events == nil {
		return nil
	}
	return m.events.Close()
}

// Resume makes s the sample before the first Read, which then adds the energy since.
func (m *Meter) Resume(s power.Sample) {
	m.started = true
	m.counted, m.busy, m.total = s.At, s.Busy, s.Total
	for i := range m.readings {
		m.readings[i].At = s.At
	}
}

// Read adds each curve's power at the utilization since the last read, over the time since. Where CPU
// time did not advance there is no utilization: Total and At stay, and the next read counts for both. The same is true
// where events could not be read, which the error reports.
func (m *Meter) Read(_ context.Context, s power.Sample) ([]power.Reading, error) {
	if !m.started {
		m.started = true
		m.counted, m.busy, m.total = s.At, s.Busy, s.Total
		for i := range m.readings {
			m.readings[i].At, m.readings[i].Event = s.At, power.Appeared
		}
		return m.readings, nil
	}
	for i := range m.readings {
		m.readings[i].Event = power.NoEvent
	}
	if s.Rest.At.After(m.counted) && len(m.needs) == 0 {
		_ = m.count(s.Rest.At, s.Rest.Busy, s.Rest.Total) // it fails only if events cannot be read
	}
	return m.readings, m.count(s.At, s.Busy, s.Total)
}

// count adds the energy since the last call. busy and total are the CPU times of the node at the
// end.
func (m *Meter) count(at time.Time, busy, total units.CPUTime) error {
	elapsed := at.Sub(m.counted)
	used, had := units.Advance(m.busy, busy), units.Advance(m.total, total)
	if total < m.total { // against the contract of Sample: go on from here rather than wait it out
		m.busy, m.total = busy, total
	}
	if elapsed <= 0 || had == 0 {
		return nil
	}
	if err := m.readRates(at, used, elapsed); err != nil {
		return ignoreRestart(err)
	}
	m.counted, m.busy, m.total = at, busy, total
	utilization := min(float64(used)/float64(had), 1)
	for i := range m.zones {
		m.zones[i].add(&m.readings[i], m.zones[i].watts(utilization, &m.rates), elapsed)
		m.readings[i].At = at
	}
	return nil
}

// watts returns the power of the zone, which is at most that of the largest machine.
func (z *zone) watts(utilization float64, rates *Rates) float64 {
	if z.function == nil {
		return z.curve.Watts(utilization)
	}
	if watts := z.function(rates); watts > 0 { // not NaN
		return min(watts, power.MaxPlatformWatts)
	}
	return 0
}

// add adds the energy of the time elapsed to the zone's total.
func (z *zone) add(r *power.Reading, watts float64, elapsed time.Duration) {
	used := watts*elapsed.Seconds()*float64(units.Joule) + z.rest
	whole, rest := math.Modf(used)
	z.rest = rest
	if room := ^units.Energy(0) - r.Total; whole < float64(room) {
		r.Total += units.Energy(whole)
	} else { // saturate: a conversion of more than 64 bits is undefined
		r.Total, z.rest = ^units.Energy(0), 0
	}
}
