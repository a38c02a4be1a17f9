// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// Names of shapes. The others are the families of the measured machines.
const (
	DefaultShape = "server" // the median of the two-socket servers
	LinearShape  = "linear" // a straight line
)

// steps is the number of straight parts of a sampled curve: as many as a measured curve has.
const steps = 10

// sample returns a curve with a point at every tenth of the utilization.
func sample(watts func(u float64) float64) (model.Curve, error) {
	points := make([]model.Point, steps+1)
	for i := range points {
		u := float64(i) / steps
		points[i] = model.Point{Utilization: u, Watts: watts(u)}
	}
	return model.NewCurve(points)
}

func scaled(watts func(u float64) float64, factor float64) func(u float64) float64 {
	return func(u float64) float64 { return watts(u) * factor }
}

// ShapeNames returns the names of all shapes. The default is first.
func ShapeNames() []string {
	names := []string{DefaultShape, LinearShape}
	for i := range measured {
		if !slices.Contains(names, measured[i].family) {
			names = append(names, measured[i].family)
		}
	}
	return names
}

// Shape returns a curve from 0 with no CPU busy to 1 with all CPUs busy. The empty name selects the
// default. The error lists the names.
func Shape(name string) (model.Curve, error) {
	switch name {
	case LinearShape:
		return model.Linear(0, 1)
	case "", DefaultShape:
		return sample(shapeOf("", isServer))
	}
	if !slices.Contains(ShapeNames(), name) {
		return nil, fmt.Errorf("must be one of %s, is %q", strings.Join(ShapeNames(), ", "), name)
	}
	return sample(shapeOf("", func(m *measuredMachine) bool { return m.family == name }))
}

// Between returns the curve from idleWatts to maxWatts with a shape.
func Between(idleWatts, maxWatts float64, shape string) (model.Curve, error) {
	if _, err := model.Linear(idleWatts, maxWatts); err != nil {
		return nil, err
	}
	s, err := Shape(shape)
	if err != nil {
		return nil, fmt.Errorf("shape: %w", err)
	}
	points := slices.Clone(s)
	for i := range points {
		points[i].Watts = idleWatts + (maxWatts-idleWatts)*points[i].Watts
	}
	return model.NewCurve(points)
}
