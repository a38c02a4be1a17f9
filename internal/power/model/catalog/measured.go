// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/power/model"

	"github.com/energyreceiver/energyreceiver/internal/machine"
)

// measuredMachine is a machine whose power was measured with RAPL at several loads. All cores had
// the same load.
type measuredMachine struct {
	cpu     string
	family  string
	tdp     float64 // TDP of one chip in watts
	chips   int
	threads int     // threads of all chips
	memory  float64 // memory in GiB, 0 if its power was not measured
	points  []measurement
}

// measurement is the power of all chips, and of all memory, at a load in percent.
type measurement struct{ load, packages, dram float64 }

// curve returns the power of all chips over the utilization.
func (m *measuredMachine) curve() func(u float64) float64 {
	return m.over(func(p measurement) float64 { return p.packages })
}

func (m *measuredMachine) over(watts func(measurement) float64) func(u float64) float64 {
	c := make(model.Curve, len(m.points))
	for i, p := range m.points {
		c[i] = model.Point{Utilization: p.load / 100, Watts: watts(p)}
	}
	return c.Watts
}

// shape returns the power of all chips, scaled to 0 at the first load and to 1 at the highest
// power. It never decreases: a decrease in a measurement is noise, or a CPU that overheated.
func (m *measuredMachine) shape() func(u float64) float64 {
	most := slices.MaxFunc(m.points, func(a, b measurement) int { return int(a.packages*1000) - int(b.packages*1000) }).packages
	idle := m.points[0].packages
	c := make(model.Curve, len(m.points))
	for i, p := range m.points {
		c[i] = model.Point{Utilization: p.load / 100, Watts: (p.packages - idle) / (most - idle)}
		if i > 0 {
			c[i].Watts = max(c[i].Watts, c[i-1].Watts)
		}
	}
	c[0].Utilization = 0
	c[len(c)-1].Utilization = 1
	return c.Watts
}

// isServer reports whether the machine is part of the median.
func isServer(m *measuredMachine) bool { return m.memory > 0 }

// medianOf returns the median of the selected machines at each utilization, without the machine
// except.
func medianOf(except string, used func(*measuredMachine) bool, of func(*measuredMachine) func(u float64) float64) func(u float64) float64 {
	var curves []func(float64) float64
	for i := range measured {
		if m := &measured[i]; m.cpu != except && used(m) {
			curves = append(curves, of(m))
		}
	}
	values := make([]float64, len(curves))
	return func(u float64) float64 {
		for i, c := range curves {
			values[i] = c(u)
		}
		return median(values)
	}
}

// median returns the median of values, or 0 if there are no values. It sorts values. The median of
// an even number of values is the mean of the middle two.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// reference returns the power of a server's chip per watt of its TDP.
func reference(except string) func(u float64) float64 {
	return medianOf(except, isServer, func(m *measuredMachine) func(float64) float64 {
		return scaled(m.curve(), 1/(m.tdp*float64(m.chips)))
	})
}

// shapeOf returns the median shape of the selected machines.
func shapeOf(except string, used func(*measuredMachine) bool) func(u float64) float64 {
	return medianOf(except, used, (*measuredMachine).shape)
}

// memoryReference returns the power of one GiB of memory in watts.
func memoryReference(except string) func(u float64) float64 {
	return medianOf(except, isServer, func(m *measuredMachine) func(float64) float64 {
		return scaled(m.over(func(p measurement) float64 { return p.dram }), 1/m.memory)
	})
}

// lookupMeasured returns the measured machine with a CPU, or nil.
func lookupMeasured(name string) *measuredMachine {
	k := machine.Key(name)
	for i := range measured {
		if machine.Key(measured[i].cpu) == k {
			return &measured[i]
		}
	}
	return nil
}
