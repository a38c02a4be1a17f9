// SPDX-License-Identifier: Apache-2.0

// Package snapshot reads the figures of an energy receiver, either of the receiver in this process
// or of a collector that serves them to Prometheus. No other package of this command uses names of
// metrics or attributes.
package snapshot

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Snapshot has the figures of one collection. Energies are totals since the start of each series.
type Snapshot struct {
	// At is the timestamp of the newest figures of the node, not the time of the reading.
	At   time.Time
	Host string // name of the node, empty if no metric reports it
	// Kepler is set if the figures are Kepler's, whose sums are not exact.
	Kepler bool
	// Untimed is set if the figures have no timestamps. At is the time of the reading in that case.
	Untimed bool
	// Partial is set if the figures were read before all of their collection had arrived.
	Partial bool
	// Zones are sorted as they are shown.
	Zones []Zone
	// Meters are the sensors of the node, sorted by ID.
	Meters []Meter
	Rows   []Row
	// Busy is the CPU utilization of the node from 0 to 1, NaN if no metric reports it.
	Busy float64
	// Notes are conditions that lower the quality of the figures, one line each.
	Notes []string

	expected map[power.Class]float64 // see SetExpectedErrors
}

// SetExpectedErrors sets the uncertainty of modeled zones from the expected relative errors of their
// models.
func (s *Snapshot) SetExpectedErrors(expected map[power.Class]float64) {
	for i := range s.Zones {
		if z := &s.Zones[i]; expected[z.Class] > 0 {
			z.Uncertainty = expected[z.Class]
		}
	}
}

// HasFigures reports whether there are figures of the node and of processes. Kepler may be configured
// to report no processes.
func (s *Snapshot) HasFigures() bool {
	return len(s.Zones) > 0 && (s.Kepler || slices.ContainsFunc(s.Rows, func(r Row) bool { return r.Kind == Process }))
}

// Zone is the energy of the node in all zones of a kind with the same method.
type Zone struct {
	power.Class
	// Besides is the zone kind that overlaps with this one, so that their energies are not added.
	// It is empty for zones that are added.
	Besides string
	// Active, Idle and Unattributed are energies since Start. Active includes Unattributed.
	Active, Idle, Unattributed units.Energy
	// Start and At are timestamps of the series. Start is zero if it is not reported.
	Start, At time.Time
	// ActiveWatts and IdleWatts are the mean powers that the receiver reports for its last
	// collection interval, NaN if they are not reported.
	ActiveWatts, IdleWatts float64
	// Uncertainty is the expected relative error of the power, 0.2 for 20 %. It is NaN if it is not
	// reported.
	Uncertainty float64
}

// Meter is the energy of one sensor, as hw.energy or hw.host.energy reports it.
type Meter struct {
	ID, Name string
	// Type is the attribute hw.type, such as cpu, memory or gpu. It is host for the energy of the
	// whole machine.
	Type string
	// Class is the zone kind and method of the sensor. It is empty if no attribute reports it.
	power.Class
	// Part is set if the sensor measures a part of another sensor of its type, such as CPU cores.
	Part   bool
	Energy units.Energy
	// Watts and Utilization, from 0 to 1, are NaN if they are not reported.
	Watts, Utilization float64
}

// Kind is a kind of workload.
type Kind uint8

// The kinds of workloads.
const (
	Process Kind = iota
	Container
	Pod
	VM
	Unit // systemd unit
	Job  // Slurm job step
	NumKinds
)

// String returns the kind as people call it.
func (k Kind) String() string {
	return [NumKinds]string{"process", "container", "pod", "VM", "systemd unit", "Slurm job step"}[k]
}

// Row is the energy of a workload.
type Row struct {
	Kind Kind
	Identity
	// Energy is active energy by the index of Snapshot.Zones, since Start.
	Energy []units.Energy
	// Start is the start timestamp of the series, zero if it is not reported.
	Start time.Time
	// Watts is the mean active power that the receiver reports for its last collection interval, in
	// all zones that are added, and GPUWatts the part of GPUs. They are NaN if they are not reported.
	Watts, GPUWatts float64
	// CPUTime is negative if it is not reported.
	CPUTime time.Duration
	// Ended is set if the series has no value in the newest collection.
	Ended bool
}

// Identity has the attributes of a workload by Attribute. Attributes that it lacks are empty. Two
// rows of one kind with equal identities are the same workload.
type Identity [numAttributes]string

// Attribute is an attribute of a workload.
type Attribute uint8

// The attributes of workloads.
const (
	PID Attribute = iota
	Created
	Executable
	Path
	CommandLine
	ParentPID
	Owner
	Descendants // "true" for the exited descendants of a process
	ContainerID
	ContainerName // container.name, or else k8s.container.name
	Image
	Runtime
	PodUID
	PodName
	Namespace
	QoSClass
	VMID
	VMName
	Hypervisor
	UnitName
	JobID
	StepID
	Overflow // "true" for workloads without a series of their own
	numAttributes
)
