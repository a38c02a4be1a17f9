// SPDX-License-Identifier: Apache-2.0

// Package top is the screen of energy top: its content, its keys and its layout. It reads no figures
// and has no clock.
package top

import (
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Frame is one reading of all figures.
type Frame struct {
	At    time.Time
	Since time.Time // start of Energy: the first reading or the start of the series. It is zero if it is not available.
	// Period is the time between the two newest collections. It is 0 if the energy of that time is
	// not available: in the first reading, and after a restart of the source.
	Period time.Duration
	Host   string
	Source string // name of the source of the figures
	Zones  []Zone
	// Node is all zones that are added, active and idle, since the first reading.
	Node units.Energy
	// Active is the active power that workloads share, in watts.
	Active float64
	Tables [NumViews][]Row
	// Wrong describes a contradiction between figures, if any.
	Wrong string
}

// Zone is a zone kind of the node.
type Zone struct {
	Name string
	// Besides is the zone kind that overlaps with this one. It is empty if the zone is added to the sum.
	Besides string
	Source  string // measured, modeled or reported
	// Active and Idle are powers in watts.
	Active, Idle float64
	// Energy is active and idle energy since the first reading.
	Energy units.Energy
	// ActiveEnergy is the active part of Energy, and Unattributed the part of ActiveEnergy that no
	// workload has.
	ActiveEnergy, Unattributed units.Energy
	// Uncertainty is the expected relative error of the power, 0.74 for 74 %. It is 0 or NaN if no
	// source has it.
	Uncertainty float64
}

// View is a table of one kind of workload.
type View uint8

// The views, in their order.
const (
	Programs View = iota
	Processes
	Users
	Containers
	Pods
	Namespaces // sums of pods and containers by Kubernetes namespace
	VMs
	Units
	Jobs
	GPUs
	NumViews
)

// The names of the views, and of one of their rows.
var (
	viewNames = [NumViews]string{
		"Programs", "Processes", "Users", "Containers", "Pods", "Namespaces", "VMs", "Units", "Jobs", "GPUs",
	}
	oneOf = [NumViews]string{
		"program", "process", "user", "container", "pod", "namespace", "VM", "unit", "job", "GPU",
	}
)

// String returns the name of the view in JSON.
func (v View) String() string { return strings.ToLower(viewNames[v]) }

// Row is a workload, or energy without one.
type Row struct {
	// Key distinguishes the row from all others of its table.
	Key string
	// Pinned rows are energy without a workload of its own, such as (others) and unattributed. They
	// stand below the other rows, in their order: they are not sorted or filtered. With them the
	// rows of a table add up to the active energy. A pinned row of 0 is not shown.
	Pinned bool
	PID    int32 // 0 if it is not a process
	// Program is the key of the program of a process.
	Program string
	// Power and GPU are in watts, GPU is the power of GPUs alone. They may be NaN.
	Power, GPU float64
	// Busy is the utilization of a GPU, from 0 to 1, or NaN.
	Busy float64
	// Energy is since the first reading, Total since the series began.
	Energy, Total units.Energy
	// Zones is the active energy since the first reading in each of Frame.Zones, including zones
	// that overlap with others. It is nil if it is not available.
	Zones []units.Energy
	// CPUTime is negative if no source has it.
	CPUTime time.Duration
	Text    [numTexts]string
}

// Text is a descriptive text of a row. A text may contain any name that a workload has.
type Text uint8

// The texts of a row.
const (
	Name Text = iota
	Arguments
	User
	Container
	Pod
	Namespace
	Image
	Runtime
	VM
	Unit
	ID
	Class   // of a pod's quality of service
	Command // of a program: the command line of its largest process
	numTexts
)
