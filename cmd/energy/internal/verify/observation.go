// SPDX-License-Identifier: Apache-2.0

// Package verify checks a machine's meters and the receiver's figures under loads that it runs
// itself.
//
// A run records an Observation: the readings of every meter, CPU times and the receiver's totals
// at rest and under loads. Check derives verdicts from it alone, so simulated machines with planted
// faults test it.
package verify

import (
	"math"
	"sort"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/stats"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Observation is the record of a run. Times are in seconds since the start of the run, energies of
// meters in joules, powers in watts.
type Observation struct {
	Machine      Machine
	Meters       []Meter
	Zones        []*Zone
	Steps        []*Step
	Busy         map[int][]Point // busy time of each CPU in seconds, by its number
	Temperatures [][]Point       // of each temperature sensor, in °C
	Lacks        []Lack
	Backend      *Backend // nil if it is not checked

	Sums    map[power.Class][]Sums // the receiver's totals, collection by collection
	GPUs    map[string][]GPU       // by ID
	Trained map[power.Class]bool   // classes whose static power model is trained
	NoBPF   string                 // why BPF is not used; empty if BPF is used
	// NoEvents is the reason if the weights are not compared, otherwise empty.
	NoEvents string
	// NoClocks reports whether CPU time replaced the weights that require clock rates.
	NoClocks bool
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
	Absent bool         `json:"-"` // the machine does not have it, or not its driver
}

// Lack is a missing permission, and the command that grants it. An optional one only makes figures
// better.
type Lack struct {
	What, Grant string
	Optional    bool
}

// Backend is a metrics database that was asked for its version.
type Backend struct{ Name, Version, Err string }

// Zone is a zone as one meter reads it.
type Zone struct {
	Meter, ID     string
	Kind          power.Kind
	Method        power.Method
	Chosen        bool // the receiver reads the kind from this meter
	Reads, Failed int
	Socket        int     // -1 if the zone measures several
	Prompt        bool    // see power.Zone
	Range         float64 // largest value of the raw counter, 0 if it is not stated
	Points        []Point // cumulative energy, by the time that the meter gives it
	Raw           []Point // raw counter by the time of the read, empty without a counter
	Figures
}

// Figures are the properties of a zone that Check measures. A figure is NaN if it could not be
// measured.
type Figures struct {
	Idle, Full float64 // power at rest and with all CPUs busy
	Update     float64 // seconds between two values
	Unit       float64 // joules of one count
	Lag        float64 // seconds
	Average    float64 // seconds over which the meter averages
	Noise      float64 // standard deviation under a constant load, relative
}

// Load is a kind of load.
type Load string

// The loads.
const (
	Idle   Load = "idle"
	Spin   Load = "spinning"
	Memory Load = "memory-bound"
	// Mixed is Memory on the first half of the CPUs of a step and Spin on the other half.
	Mixed Load = "memory-bound and spinning"
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
	CPU, PID int
	Load     Load
	Waited   float64                      // CPU time in seconds by wait4(2)
	Counted  map[string]float64           // CPU time by source, without unavailable sources
	Energy   map[power.Class]units.Energy // attributed
	ByEvents map[power.Class]units.Energy // attributed by the weights that use hardware events
}

// parts returns the CPUs of each load of a step.
func (s *Step) parts() map[Load][]int {
	if half := len(s.CPUs) / 2; s.Load == Mixed {
		return map[Load][]int{Memory: s.CPUs[:half], Spin: s.CPUs[half:]}
	}
	return map[Load][]int{s.Load: s.CPUs}
}

// Sums are the totals of a class in one collection.
type Sums struct {
	At                                    float64
	Active, Idle, Unattributed, Processes units.Energy
	// Zones is the energy of the zones as of the last reading of each. Deferred is the energy that was
	// read and not attributed yet.
	Zones, Deferred units.Energy
	Uncertainty     float64 // of active power, in W; NaN if it is not reported
}

// GPU is the power and the utilization of a GPU in one collection.
type GPU struct{ Watts, Utilization float64 }

// Point is a value at a time.
type Point struct{ At, Value float64 }

// valueAt returns the value of a series at a time, interpolated. It is NaN if the series is empty.
func valueAt(points []Point, at float64) float64 {
	i := sort.Search(len(points), func(i int) bool { return points[i].At >= at })
	switch {
	case len(points) == 0:
		return math.NaN()
	case i == 0:
		return points[0].Value
	case i == len(points):
		return points[i-1].Value
	}
	a, b := points[i-1], points[i]
	return a.Value + (b.Value-a.Value)*(at-a.At)/(b.At-a.At)
}

// lastAt returns the time of the last point, NaN without points.
func lastAt(points []Point) float64 {
	if len(points) == 0 {
		return math.NaN()
	}
	return points[len(points)-1].At
}

// rate returns the mean increase of a series per second, NaN if the series does not cover the time.
func rate(points []Point, from, to float64) float64 {
	if n := len(points); n < 2 || points[0].At > from || points[n-1].At < to-1e-9 || to <= from {
		return math.NaN()
	}
	return (valueAt(points, to) - valueAt(points, from)) / (to - from)
}

// changes returns the points whose value differs from the previous value.
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
	var gaps []float64
	for i := 1; i < len(changed); i++ {
		gaps = append(gaps, changed[i].At-changed[i-1].At)
	}
	return stats.Median(gaps)
}
