// SPDX-License-Identifier: Apache-2.0

// Package verify checks a machine's meters and the receiver's figures under loads that it runs
// itself.
//
// A run records an Observation: the readings of every meter, CPU times and the receiver's totals
// while the machine rests and while known loads run. Check derives verdicts from it. Check is a
// pure function, so simulated machines with known faults test it.
package verify

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// Observation is the record of a run. Times are in seconds since the start of the run, energies in
// joules, powers in watts.
type Observation struct {
	Machine      Machine
	Meters       []Meter
	Zones        []*Zone
	Steps        []*Step
	Busy         [][]Point // busy time of each CPU in seconds, by its number
	Temperatures [][]Point // of each temperature sensor, in °C
	Ledger       Ledger
	Lacks        []Lack
	Backend      *Backend // nil if none was given
}

// Machine describes the machine without names that identify it.
type Machine struct {
	CPU       string  `json:"cpu"`
	Arch      string  `json:"arch"`
	Kernel    string  `json:"kernel"`
	Virtual   bool    `json:"virtual"`
	Sockets   int     `json:"sockets"`
	Cores     int     `json:"cores"`
	Threads   int     `json:"threads"`
	MemoryGiB float64 `json:"memory_gib"`
	CPUs      []CPU   `json:"-"`
}

// CPU is the place of a logical CPU that this process may use. Capacity is relative to the fastest
// kind of CPU, from 0 to 1024.
type CPU struct{ Number, Socket, Core, Capacity int }

// Meter is a kind of meter, whether or not the machine has one.
type Meter struct {
	Name   string       `json:"meter"`
	Chosen []power.Kind `json:"chosen,omitempty"` // zone kinds that the receiver reads from it
	Why    string       `json:"why"`
}

// Lack is a missing permission, and the command that grants it. An optional one only makes figures better.
type Lack struct {
	What, Grant string
	Optional    bool
}

// Zone is a zone as one meter reads it.
type Zone struct {
	Meter  string
	ID     string
	Kind   power.Kind
	Socket int // -1 if the zone is of no single socket
	Method power.Method
	Prompt bool    // see power.Zone
	Chosen bool    // the receiver reads the kind from this meter
	Range  float64 // value at which the raw counter wraps, 0 if it is unknown
	Points []Point // cumulative energy, by the time that the meter gives it
	Raw    []Point // raw counter by the time of the read, empty if there is none
	Reads  int
	Failed int
}

// String returns the zone's name for people.
func (z *Zone) String() string { return z.Meter + " " + z.ID }

// Point is a value at a time.
type Point struct{ At, Value float64 }

// Load is a kind of load.
type Load string

// The loads.
const (
	Idle   Load = "idle"
	Spin   Load = "spinning"
	Memory Load = "memory-bound"
)

// Step is a part of a run with a constant load: one program on each of CPUs.
type Step struct {
	Name     string
	Load     Load
	CPUs     []int
	From, To float64
	Programs []Program
}

// Program is a program of a step.
type Program struct {
	CPU int
	PID int
	// Waited is its CPU time in seconds by wait4(2), BPF and Procfs by these CPU time sources;
	// negative if the source is unavailable.
	Waited, BPF, Procfs float64
	Joules              map[string]float64 // attributed energy by class
}

// Ledger holds the reports of the receiver.
type Ledger struct {
	Source  string // of CPU times: bpf, clocks or procfs
	NoBPF   string // why BPF is not used
	Entries []Entry
	Trained map[string]bool // classes whose static power model is trained
}

// Entry is one collection. Energies are cumulative.
type Entry struct {
	At    float64
	Kinds map[string]Sums // by class
	GPUs  map[string]GPU  // by zone ID
}

// Sums are the totals of a class: a zone kind and a method.
type Sums struct {
	Active, Idle, Unattributed, Processes, Zones float64
	Uncertainty                                  float64 // of active power, in W; 0 if unknown

	split bool // into active and idle energy; zones that are only reported are not
}

// GPU is the power and the utilization of a GPU in one collection.
type GPU struct{ Watts, Utilization float64 }

// Backend is a metrics database that was asked for its version.
type Backend struct{ Name, Version, Err string }

func classID(zone power.Kind, method power.Method) string { return fmt.Sprintf("%s %s", zone, method) }

// valueAt returns the value of a series at a time, interpolated. The series must not be empty.
func valueAt(points []Point, at float64) float64 {
	i := sort.Search(len(points), func(i int) bool { return points[i].At >= at })
	switch {
	case i == 0:
		return points[0].Value
	case i == len(points):
		return points[i-1].Value
	}
	a, b := points[i-1], points[i]
	return a.Value + (b.Value-a.Value)*(at-a.At)/(b.At-a.At)
}

// rate returns the mean increase of a series per second, NaN if the series does not cover the time.
func rate(points []Point, from, to float64) float64 {
	if n := len(points); n < 2 || points[0].At > from || points[n-1].At < to-1e-9 || to <= from {
		return math.NaN()
	}
	return (valueAt(points, to) - valueAt(points, from)) / (to - from)
}

// changes returns the points whose value differs from that of the previous point.
func changes(points []Point) (changed []Point) {
	for i, p := range points {
		if i == 0 || p.Value != points[i-1].Value {
			changed = append(changed, p)
		}
	}
	return changed
}

// period returns the median time between two changes of a series, NaN if it hardly changes.
func period(points []Point) float64 {
	changed := changes(points)
	if len(changed) < 3 {
		return math.NaN()
	}
	gaps := make([]float64, len(changed)-1)
	for i := range gaps {
		gaps[i] = changed[i+1].At - changed[i].At
	}
	return median(gaps)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
