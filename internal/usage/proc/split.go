// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
)

// Split names a list of slices in a Splits, which divides CPU time by CPU or domain. The zero Split
// is the empty list.
type Split uint32

// Slice is CPU time that was used in one place.
type Slice struct {
	CPU  int32 // the number of a logical CPU, negative if it is not available
	Used units.CPUTime
}

// Splits divides the CPU time of a scan by CPU, and by the domains of a topology.
type Splits struct {
	slices   []slice // element 0 is not used
	topology *divide.Topology
	found    []Slice         // returned last
	parts    []units.CPUTime // returned last
}

// slice is an element of a list.
type slice struct {
	run uint64
	// cpu is the number of a CPU or, if the source reports only the domain, -1 minus the domain's
	// index. A CPU that is not available counts for the first domain.
	cpu  int32
	next Split // a lower one, or 0
}

// divide has the CPU time divided by the domains of a topology.
func (d *Splits) divide(topology *divide.Topology) {
	if topology != nil && d.topology != topology {
		d.topology, d.parts = topology, make([]units.CPUTime, len(topology.Domains()))
	}
}

// add adds a slice before a list.
func (d *Splits) add(cpu int32, run uint64, next Split) Split {
	if len(d.slices) == 0 {
		d.slices = append(d.slices, slice{})
	}
	if int(next) >= len(d.slices) {
		next = 0
	}
	d.slices = append(d.slices, slice{run: run, cpu: cpu, next: next})
	return Split(len(d.slices) - 1)
}

// addParts adds a slice for each domain in proportion to weights. It returns 0 if all weights are 0
// or there is no topology.
func (d *Splits) addParts(used units.CPUTime, weights []uint64) (to Split) {
	if d.topology == nil || !slices.ContainsFunc(weights, func(w uint64) bool { return w > 0 }) {
		return 0
	}
	units.Divide(d.parts, used, weights)
	for domain := len(d.parts) - 1; domain >= 0; domain-- {
		if part := uint64(d.parts[domain]); part > 0 {
			to = d.add(-1-int32(domain), part, to)
		}
	}
	return to
}

func (d *Splits) has(s Split) bool { return s > 0 && int(s) < len(d.slices) }

// Slices divides an amount of CPU time by CPU, in proportion to the slices of a list. If the list
// is empty or all of its slices are 0, the amount counts on lastCPU. The result adds up to the
// amount. It is valid until the next call of Slices or Parts.
func (d *Splits) Slices(of Split, used units.CPUTime, lastCPU int32) []Slice {
	found, total := d.found[:0], uint64(0)
	for i := of; d.has(i); i = d.slices[i].next {
		s := &d.slices[i]
		total = units.AddSaturating(total, s.run)
		found = append(found, Slice{s.cpu, units.CPUTime(s.run)})
	}
	if total == 0 {
		found = append(found[:0], Slice{lastCPU, used})
	} else {
		division := units.Division{Amount: uint64(used), Total: total}
		for i := range found {
			found[i].Used = units.CPUTime(division.Next(min(uint64(found[i].Used), division.Left())))
		}
	}
	d.found = found
	return found
}

// Parts divides an amount of CPU time by domain, in the order of the topology, as Slices divides it
// by CPU. It returns nil without a topology. The parts add up to the amount. They are valid until
// the next call of Parts.
func (d *Splits) Parts(of Split, used units.CPUTime, lastCPU int32) []units.CPUTime {
	if d.topology == nil {
		return nil
	}
	clear(d.parts)
	for _, s := range d.Slices(of, used, lastCPU) {
		d.parts[d.domain(s.CPU)] += s.Used
	}
	return d.parts
}

func (d *Splits) domain(cpu int32) int32 {
	if cpu < 0 {
		return min(-1-cpu, int32(len(d.parts)-1))
	}
	return int32(d.topology.Of(cpu))
}
