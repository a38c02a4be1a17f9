// SPDX-License-Identifier: Apache-2.0

// Package model estimates energy from the node's CPU utilization and a power curve, for machines without a sensor.
package model

import (
	"context"
	"math"
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
	// Basis says what the curve was made from, for people. It is empty where the configuration states the curve.
	Basis string
	// ExpectedError is the mean absolute error of the power that is to be expected, relative to the
	// power: 0.06 is 6 %. 0 means that it is not known.
	ExpectedError float64
}

// Meter is a power.Meter that follows power curves. Its zones are modeled, and it never fails. The
// zero Meter is not usable; call New.
type Meter struct {
	zones    []zone
	counted  time.Time // until when energy was counted
	busy     units.CPUTime
	total    units.CPUTime
	started  bool
	readings []power.Reading
}

// zone is one curve with its zone.
type zone struct {
	power.Zone
	curve Curve
	// rest is the part of a microjoule that the total does not yet hold, 0 up to 1. Dropped at every read it would add up.
	rest float64
}

// New returns a meter with a zone for each curve: of power.Package, all CPU sockets of the node
// together, power.DRAM, all its memory, or power.Platform, the whole machine. There is one curve a
// kind.
func New(curves ...ZoneCurve) *Meter {
	m := &Meter{zones: make([]zone, len(curves)), readings: make([]power.Reading, len(curves))}
	for i, c := range curves {
		z := &m.zones[i]
		*z = zone{curve: c.Curve, Zone: power.Zone{
			ID: "model:" + strconv.Itoa(i), Name: string(c.Kind), Kind: c.Kind,
			Method: power.Modeled, Domain: units.NodeCPUs, MaxWatts: power.MaxWatts(c.Kind),
		}}
		if c.Kind == power.Package {
			z.Name = "package-0"
		}
		m.readings[i].Zone = &z.Zone
	}
	return m
}

// Close does nothing.
func (*Meter) Close() error { return nil }

// Resume makes s the sample before the first Read, which then adds the energy since.
func (m *Meter) Resume(s power.Sample) {
	m.started = true
	m.counted, m.busy, m.total = s.At, s.Busy, s.Total
	for i := range m.readings {
		m.readings[i].At = s.At
	}
}

// Read adds each curve's power at the utilization since the last read, over the time since. Where CPU
// time did not advance there is no utilization: Total and At stay, and the next read counts for both.
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
	elapsed := s.At.Sub(m.counted)
	busy, total := units.Advance(m.busy, s.Busy), units.Advance(m.total, s.Total)
	if s.Total < m.total { // against the contract of Sample: go on from here rather than wait it out
		m.busy, m.total = s.Busy, s.Total
	}
	if elapsed <= 0 || total == 0 {
		return m.readings, nil
	}
	m.counted, m.busy, m.total = s.At, s.Busy, s.Total

	utilization := min(float64(busy)/float64(total), 1)
	for i := range m.zones {
		m.zones[i].add(&m.readings[i], utilization, elapsed)
		m.readings[i].At = s.At
	}
	return m.readings, nil
}

// add adds the energy of the time elapsed to the zone's total.
func (z *zone) add(r *power.Reading, utilization float64, elapsed time.Duration) {
	used := z.curve.Watts(utilization)*elapsed.Seconds()*float64(units.Joule) + z.rest
	whole, rest := math.Modf(used)
	z.rest = rest
	if room := ^units.Energy(0) - r.Total; whole < float64(room) {
		r.Total += units.Energy(whole)
	} else { // saturate: a conversion of more than 64 bits is undefined
		r.Total, z.rest = ^units.Energy(0), 0
	}
}
