// SPDX-License-Identifier: Apache-2.0

// Package measure runs a command and measures what it used.
package measure

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Result is what one run of a command used, from right before it was started until right after it ended.
type Result struct {
	Command []string
	Started time.Time
	// Wall is how long the command ran. CPU is the CPU time of the command and of all its descendants.
	Wall, CPU time.Duration
	// Zones are the node's zone kinds, in the order in which they are shown.
	Zones []Zone
	// Phases divide the run. Their times and energies add up to those of the run. Empty unless the run was marked.
	Phases []Phase
	// Samples are the intervals of the run, in order. Their energies add up to those of the run.
	Samples []Sample
	// Left are the processes that the command left behind.
	Left []Process
	// Exit is the exit status of the command as a shell tells it: 128 + the number of the signal if one ended it.
	Exit int
	// Notes are what the reader of the figures should know: what was not measured, or not exactly.
	Notes []string
}

// Zone is a zone kind: package, dram, gpu, ...
type Zone struct {
	Name, Source string // energy.zone, energy.source
	// Besides names the zone that contains this one, or overlaps with it, so that their energies are not added up. It is empty for
	// zones that are added up.
	Besides string
	// Used is the energy of the command: its share of Active. Active and Idle are the node's.
	Used, Active, Idle units.Energy
}

// Phase is a part of a run, or several parts with one name.
type Phase struct {
	Name      string // phase.None outside of all phases
	Wall, CPU time.Duration
	Used      []units.Energy // by the index of Result.Zones
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

// Process is a process that the command left behind.
type Process struct {
	PID  int
	Name string
	CPU  time.Duration // until the end of the run
}
