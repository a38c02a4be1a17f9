// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// Point is the power at one CPU utilization. Its JSON is [utilization, watts].
type Point struct {
	Utilization float64 // busy CPU time over total CPU time, 0 to 1
	Watts       float64
}

// MarshalJSON returns the two numbers.
func (p Point) MarshalJSON() ([]byte, error) {
	return json.Marshal([]float64{p.Utilization, p.Watts})
}

// UnmarshalJSON reads the two numbers. The error does not quote the JSON.
func (p *Point) UnmarshalJSON(data []byte) error {
	var pair []float64
	if err := json.Unmarshal(data, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return errors.New("power curve: a point is not a pair of utilization and watts")
	}
	p.Utilization, p.Watts = pair[0], pair[1]
	return nil
}

// Curve is power over utilization. It is straight between its points, and constant beyond the first
// and the last point. NewCurve and Linear return valid curves.
type Curve []Point

// NewCurve returns the curve through the points. There must be at least one point, which is a
// constant power. Utilizations must increase and be from 0 to 1, and watts must be finite and not
// negative. The error names the first invalid point by its index.
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
			return nil, fmt.Errorf("power curve: point %d: power of %v W is not a finite number of at least 0", i, p.Watts)
		}
	}
	return append(Curve(nil), points...), nil
}

// Linear returns the straight line from idleWatts, with no CPU busy, to maxWatts, with all CPUs
// busy. Both must be finite and not negative, and idleWatts must not exceed maxWatts.
func Linear(idleWatts, maxWatts float64) (Curve, error) {
	if idleWatts > maxWatts {
		return nil, fmt.Errorf("power curve: idle power of %v W is above the maximum of %v W", idleWatts, maxWatts)
	}
	return NewCurve([]Point{{Utilization: 0, Watts: idleWatts}, {Utilization: 1, Watts: maxWatts}})
}

// Watts returns the power at the utilization u, or at 0 if u is NaN. Without points, it returns 0.
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
