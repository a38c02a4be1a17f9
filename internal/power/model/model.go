// SPDX-License-Identifier: Apache-2.0

// Package model estimates energy from the node's CPU utilization and a power curve, for machines without a sensor.
package model

import (
	"context"
	"math"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Meter is a power.Meter that follows a power curve. It has one modeled zone and never fails. The zero Meter is not
// usable; call New.
type Meter struct {
	curve   Curve
	zone    power.Zone
	counted time.Time // until when energy was counted
	busy    units.CPUTime
	total   units.CPUTime
	started bool
	// rest is the part of a microjoule that Total does not yet hold, 0 up to 1. Dropped at every read it would add up.
	rest     float64
	readings [1]power.Reading
}

// New returns a meter whose zone is of the kind and has the power of the curve: power.Package, all CPU sockets of the
// node together, or power.Platform, the whole machine.
func New(c Curve, kind power.Kind) *Meter {
	m := &Meter{curve: c, zone: power.Zone{
		ID: "model:0", Name: string(kind), Kind: kind,
		Source: power.Modeled, Domain: units.NodeCPUs, MaxWatts: power.MaxWatts(kind),
	}}
	if kind == power.Package {
		m.zone.Name = "package-0"
	}
	m.readings[0].Zone = &m.zone
	return m
}

// Close does nothing.
func (*Meter) Close() error { return nil }

// Read adds the curve's power at the utilization since the last read, over the time since. Where CPU
// time did not advance there is no utilization: Total and At stay, and the next read counts for both.
func (m *Meter) Read(_ context.Context, s power.Sample) ([]power.Reading, error) {
	r := &m.readings[0]
	r.Event = power.NoEvent
	if !m.started {
		m.started = true
		m.counted, m.busy, m.total = s.At, s.Busy, s.Total
		r.At, r.Event = s.At, power.Appeared
		return m.readings[:], nil
	}

	elapsed := s.At.Sub(m.counted)
	busy, total := units.Advance(m.busy, s.Busy), units.Advance(m.total, s.Total)
	if s.Total < m.total { // against the contract of Sample: go on from here rather than wait it out
		m.busy, m.total = s.Busy, s.Total
	}
	if elapsed <= 0 || total == 0 {
		return m.readings[:], nil
	}
	m.counted, m.busy, m.total = s.At, s.Busy, s.Total

	utilization := min(float64(busy)/float64(total), 1)
	used := m.curve.Watts(utilization)*elapsed.Seconds()*float64(units.Joule) + m.rest
	whole, rest := math.Modf(used)
	m.rest = rest
	if room := ^units.Energy(0) - r.Total; whole < float64(room) {
		r.Total += units.Energy(whole)
	} else { // saturate: a conversion of more than 64 bits is undefined
		r.Total, m.rest = ^units.Energy(0), 0
	}
	r.At = s.At
	return m.readings[:], nil
}
