// SPDX-License-Identifier: Apache-2.0

package power

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Point is the power of a node at one CPU utilisation.
type Point struct {
	Utilization float64 // busy CPU time over total CPU time, 0 to 1
	Watts       float64
}

// Curve is power over utilisation: straight between its points, constant beyond the first and the last.
// Make one with NewCurve or Linear, which check it.
type Curve []Point

// NewCurve returns the curve through the points. There must be at least one (a constant power), their
// utilisations must lie within 0 to 1 and increase, their watts must be finite and not negative. The
// error names the first point, by index, that is not so.
func NewCurve(points []Point) (Curve, error) {
	if len(points) == 0 {
		return nil, errors.New("power curve: no points")
	}
	for i, p := range points {
		switch {
		case math.IsNaN(p.Utilization) || p.Utilization < 0 || p.Utilization > 1:
			return nil, fmt.Errorf("power curve: point %d: utilization %v is not between 0 and 1", i, p.Utilization)
		case i > 0 && p.Utilization <= points[i-1].Utilization:
			return nil, fmt.Errorf("power curve: point %d: utilization %v is not above the %v before it",
				i, p.Utilization, points[i-1].Utilization)
		case math.IsNaN(p.Watts) || math.IsInf(p.Watts, 0) || p.Watts < 0:
			return nil, fmt.Errorf("power curve: point %d: power of %v W is not a finite number from 0 up", i, p.Watts)
		}
	}
	return append(Curve(nil), points...), nil
}

// Linear returns the curve of a node that draws idleWatts at rest and maxWatts when all CPUs are busy.
// Both must be finite and not negative, and idleWatts not above maxWatts.
func Linear(idleWatts, maxWatts float64) (Curve, error) {
	if idleWatts > maxWatts {
		return nil, fmt.Errorf("power curve: idle power of %v W is above the maximum of %v W", idleWatts, maxWatts)
	}
	return NewCurve([]Point{{Utilization: 0, Watts: idleWatts}, {Utilization: 1, Watts: maxWatts}})
}

// Watts returns the power at the utilisation u, NaN counting as 0. A curve without points gives 0.
func (c Curve) Watts(u float64) float64 {
	if len(c) == 0 {
		return 0
	}
	if math.IsNaN(u) || u <= c[0].Utilization {
		return c[0].Watts
	}
	for i := 1; i < len(c); i++ {
		if a, b := c[i-1], c[i]; u < b.Utilization {
			return a.Watts + (b.Watts-a.Watts)*((u-a.Utilization)/(b.Utilization-a.Utilization))
		}
	}
	return c[len(c)-1].Watts
}

// Model is the Meter for nodes without a sensor: what a power curve says of the node's utilisation. It
// has one zone of kind Package and never fails.
type Model struct {
	curve   Curve
	zone    Zone
	counted time.Time // until when energy was counted
	busy    units.CPUTime
	total   units.CPUTime
	started bool
	// rest is the part of a microjoule that Total does not yet hold, 0 up to 1: left out in every pass it
	// would add up.
	rest     float64
	readings [1]Reading
}

// NewModel returns a meter that follows the curve.
func NewModel(c Curve) *Model {
	m := &Model{curve: c, zone: Zone{ID: "model:0", Name: "package-0", Kind: Package, Source: Modeled}}
	m.readings[0].Zone = &m.zone
	return m
}

// Source says that the figures are not measurements.
func (*Model) Source() Source { return Modeled }

// Close does nothing.
func (*Model) Close() error { return nil }

// Read adds the curve's power at the utilisation since the last pass, over the time since. Where CPU
// time did not advance there is no utilisation: Total and At stay, and the next pass counts for both.
func (m *Model) Read(s Sample) ([]Reading, error) {
	r := &m.readings[0]
	r.Event = NoEvent
	if !m.started {
		m.started = true
		m.counted, m.busy, m.total = s.At, s.Busy, s.Total
		r.At, r.Event = s.At, Appeared
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
