// SPDX-License-Identifier: Apache-2.0

// Package model estimates energy from the node's CPU utilization, and from events, for machines
// without a sensor.
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

// SameCPUError is the expected error of a curve measured on another machine with the same CPU: the
// median over 619 published SPECpower results at the wall, each left out in turn.
const SameCPUError = 0.058

// PartError is the expected error of a virtual machine's part of its host's power if the load of the
// host is not available. It is the mean over all loads of the host and of the machine, on servers.
const PartError = 0.16

// ErrorOfPart returns the expected error of a virtual machine's part of its host's power. host is
// the expected error of the host's power. An error of 0 means not available.
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
	// Function returns the power in watts at rates of the node. It replaces Curve, and is nil if
	// Curve is set. Needs lists the rates that it depends on. One goroutine calls it.
	Function func(*Rates) float64
	Needs    []Feature
	// Idle is the idle power in watts if another model provides the idle power, otherwise nil.
	Idle *float64
	// Basis describes the source of the curve for the log. It is empty if the curve is configured.
	Basis string
	// ExpectedError is the expected mean absolute error, relative to the power: 0.06 is 6 %. 0
	// means not available.
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

// IsIdleLowest reports whether the power depends only on the CPU utilization, and has its lowest
// value, IdleWatts, with no CPU busy.
func (c *ZoneCurve) IsIdleLowest() bool {
	idle := c.IdleWatts()
	return c.Function == nil && c.Curve.Watts(0) == idle &&
		!slices.ContainsFunc(c.Curve, func(p Point) bool { return p.Watts < idle })
}

// source is the power.Source of power curves. It integrates the power of each curve. It fails only
// if the rates that a curve needs cannot be read.
type source struct {
	zones  []zone
	shown  []power.Shown // of zones
	events Events        // nil if no zone needs it
	needs  []Feature
	rates  Rates // of the last Answer
	until  time.Time
	busy   units.CPUTime // until then
	total  units.CPUTime // until then
}

// zone is one curve with its zone.
type zone struct {
	power.Zone
	curve    Curve
	function func(*Rates) float64 // replaces curve unless nil
	// rest is the fraction of a microjoule that the counter does not contain yet, so that rounding
	// errors do not add up.
	rest float64
}

// New returns a meter with a zone for each curve. There is at most one curve of each kind, for all
// its zones together: power.Package has all CPU sockets, power.DRAM all memory.
//
// If CPU time does not advance, or if events cannot be read, Total and At do not change, and the
// next read covers the whole time since At. Only the failure to read events is an error.
//
// The meter closes events. events is nil if no curve needs events.
func New(events Events, curves ...ZoneCurve) power.Meter {
	s := &source{zones: make([]zone, len(curves)), events: events}
	for i, c := range curves {
		z := &s.zones[i]
		*z = zone{curve: c.Curve, function: c.Function, Zone: power.Zone{
			ID: "model:" + strconv.Itoa(i), Name: string(c.Kind), Kind: c.Kind,
			Method: power.Modeled, Domain: units.NodeCPUs, MaxWatts: power.MaxPlatformWatts, // of all sockets together
		}}
		if c.Kind == power.Package {
			z.Name = "package-0"
		}
		s.needs = append(s.needs, c.Needs...)
		s.shown = append(s.shown, power.Shown{Zone: &z.Zone, Transient: true})
	}
	return power.Direct("model", s)
}

// Close closes the events.
func (s *source) Close() error {
	if s.events == nil {
		return nil
	}
	return s.events.Close()
}

// Answer adds each curve's power at the utilization since the last Answer, over the time since. The
// first Answer is the baseline.
func (s *source) Answer(_ context.Context, now power.Sample) (power.Answer, error) {
	var err error
	if s.until.IsZero() {
		s.until, s.busy, s.total = now.At, now.Busy, now.Total
	} else {
		if now.Rest.At.After(s.until) && len(s.needs) == 0 {
			_ = s.advance(now.Rest.At, now.Rest.Busy, now.Rest.Total) // it fails only if events cannot be read
		}
		err = s.advance(now.At, now.Busy, now.Total)
	}
	for i := range s.shown {
		s.shown[i].At = s.until
	}
	return power.Answer{Shown: s.shown}, err
}

// advance adds the energy since the last call. busy and total are the CPU times of the node at the
// end.
func (s *source) advance(at time.Time, busy, total units.CPUTime) error {
	elapsed := at.Sub(s.until)
	used, had := units.Advance(s.busy, busy), units.Advance(s.total, total)
	if total < s.total { // against the contract of Sample: continue from here rather than wait for the old value
		s.busy, s.total = busy, total
	}
	if elapsed <= 0 || had == 0 {
		return nil
	}
	if err := s.readRates(at, used, elapsed); err != nil {
		return ignoreRestart(err)
	}
	s.until, s.busy, s.total = at, busy, total
	utilization := min(float64(used)/float64(had), 1)
	for i := range s.zones {
		z := &s.zones[i]
		whole, rest := math.Modf(z.watts(utilization, &s.rates)*elapsed.Seconds()*float64(units.Joule) + z.rest)
		s.shown[i].Counter += units.Energy(whole)
		z.rest = rest
	}
	return nil
}

// watts returns the power of the zone, at most the power of the largest machine.
func (z *zone) watts(utilization float64, rates *Rates) float64 {
	watts := z.curve.Watts(utilization)
	if z.function != nil {
		watts = z.function(rates)
	}
	if watts > 0 { // not NaN
		return min(watts, power.MaxPlatformWatts)
	}
	return 0
}
