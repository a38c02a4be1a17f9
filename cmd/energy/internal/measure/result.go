// SPDX-License-Identifier: Apache-2.0

// Package measure runs a command and measures its energy.
package measure

import (
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/command"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Result is the measurement of one run of a command, from right before its start until right after
// its end.
type Result struct {
	Command []string
	Started time.Time
	// Wall is how long the command ran. CPU is the CPU time of the command and of all its descendants.
	Wall, CPU time.Duration
	// CPUTime is the counting method of CPU time: cgroup v2, cgroup v1 or child times.
	CPUTime string
	// Zones are the node's zone kinds, in the order of tables. It is empty if energy is neither
	// measured nor modeled.
	Zones []Zone
	// Programs divide the energy of the command, by descending energy.
	Programs []Program
	// Profile divides the energy of the command among its functions. Nil unless it was profiled.
	Profile *Profile
	// Phases divide the run. Their times and energies add up to the run. Empty unless the run was marked.
	Phases []Phase
	// Samples are the intervals of the run, in order. Their energies and times add up to the run.
	Samples []Sample
	// Before is the baseline, or nil.
	Before *Baseline
	// Workloads divide the energy of the node in each phase, by descending energy. Empty unless
	// programs or containers of the whole machine are wanted.
	Workloads []Workload
	// Left are the processes that the command left behind.
	Left []Process
	// Exit is the exit status of the command as a shell reports it: 128 + the signal number if a
	// signal ended the command.
	Exit int
	// Warnings lists missing and inexact quantities, most important first. Notes lists all remarks
	// on the figures, warnings first.
	Warnings, Notes []string
}

// Used returns the energy of the command in all zones that are added up.
func (r *Result) Used() units.Energy {
	return r.sum(func(zone int) units.Energy { return r.Zones[zone].Used })
}

// Node returns the energy of the node in all zones that are added up.
func (r *Result) Node() units.Energy {
	return r.sum(func(zone int) units.Energy { return r.Zones[zone].Node() })
}

// Added returns the sum of energies by zone, in all zones that are added up.
func (r *Result) Added(byZone []units.Energy) units.Energy {
	return r.sum(func(zone int) units.Energy { return byZone[zone] })
}

func (r *Result) sum(of func(zone int) units.Energy) (sum units.Energy) {
	for i := range r.Zones {
		if r.Zones[i].Besides == "" {
			sum = units.AddSaturating(sum, of(i))
		}
	}
	return sum
}

// Zone is a zone kind: package, dram, gpu, ...
type Zone struct {
	Name, Source string // energy.zone, energy.method
	// Besides names another zone that contains this zone or overlaps with it, so that this zone is
	// not added up. It is empty for zones that are added up.
	Besides string
	// Static is the source of the zone's static power.
	Static Static
	// Used is the energy of the command: its share of Active. Active and Idle are the node's.
	Used, Active, Idle units.Energy
	// Uncertainty is the expected relative error of the power of a modeled zone, 0.2 for 20 %. It is
	// NaN for other zones, and if it is not available.
	Uncertainty float64
	// Missing is the last part of the run, if the zone's meter has not reported its energy yet. The
	// energies do not include this part.
	Missing time.Duration
}

// Node returns the node's energy in the zone, active and idle.
func (z *Zone) Node() units.Energy { return units.AddSaturating(z.Active, z.Idle) }

// Static is the source of the static power of a zone.
type Static string

// The sources of static power.
const (
	StaticModel         Static = "model"    // the power model's idle power
	StaticConfiguration Static = "config"   // attribution::static_power
	StaticBaseline      Static = "baseline" // the node's mean power before the command
	StaticTrained       Static = "trained"  // the trained model that storage has of this machine
	StaticTraining      Static = "training" // a model that is not trained yet: energy is split by utilization, or by a first estimate
	StaticHypervisor    Static = "none"     // the hypervisor reports active energy only, so the static power is 0
	StaticUnknown       Static = "unknown"  // energy is split by utilization
)

// Profile is the energy of a command by function.
type Profile struct {
	Functions []Function // in the order of the table
	Stacks    *Stack
	Compared  bool // with a base
}

// Stack is a frame of a tree of stacks: the command, a process or a function.
type Stack struct {
	Name       string
	Used, Base units.Energy // including Children and callees without a frame
	Children   []*Stack
}

// Function is the energy of a function without its callees.
type Function struct {
	Name       string
	Used, Base units.Energy // Base is the energy in the profile to compare with
}

// Phase is a part of a run, or several parts with one name.
type Phase struct {
	Name      string // phase.None outside of all phases
	Wall, CPU time.Duration
	Used      []units.Energy // of the command, by the index of Result.Zones
	NodeUsed  []units.Energy // of the node, active and idle
}

// Sample is one interval of a run.
type Sample struct {
	End      time.Duration // since Result.Started
	Wall     time.Duration
	CPU      time.Duration
	Phase    string
	Used     []units.Energy // of the command, by the index of Result.Zones
	NodeUsed []units.Energy // of the node, active and idle
}

// Process is a process that the command left behind, with its CPU time until the end of the run.
type Process = command.Left
