// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Owner is who a claimant is: a process, and the container, pod, VM, job step and unit that it is part of. The zero value
// of a part means none.
type Owner struct {
	Process   units.Process
	Container units.Container
	Pod       units.Pod
	VM        units.VM
	Job       units.SlurmStep
	Unit      units.SystemdUnit
}

// series identifies the series of an account. Two accounts with the same series are the same to the next consumer.
type series struct {
	entity     Entity
	id         string
	pid        int32
	start      time.Duration
	executable string
	arguments  string
	container  string
	pod        string
	vm         string
	job        units.SlurmStep
	unit       string
}

// seriesOf returns the series of an entity of the owner, and the part of the owner that it describes; ok
// is false when the owner has none.
func (o *Owner) seriesOf(e Entity) (s series, described Owner, ok bool) {
	s.entity = e
	switch e {
	case Process:
		s.pid, s.start = o.Process.PID, o.Process.Start
		s.id, s.executable, s.arguments = o.Process.Path, o.Process.Executable, o.Process.CommandLine
		s.container, s.pod, s.vm, s.job, s.unit = o.Container.ID, o.Pod.UID, o.VM.ID, o.Job, o.Unit.Name
		return s, *o, s.pid != 0
	case Container:
		s.id, s.pod = o.Container.ID, o.Container.PodUID
		return s, Owner{Container: o.Container, Pod: o.Pod}, s.id != ""
	case Pod:
		s.id = o.Pod.UID
		return s, Owner{Pod: o.Pod}, s.id != ""
	case VM:
		s.id = o.VM.ID
		return s, Owner{VM: o.VM}, s.id != ""
	case SlurmStep:
		s.job = o.Job
		return s, Owner{Job: o.Job}, o.Job.ID != ""
	default:
		s.unit = o.Unit.Name
		return s, Owner{Unit: o.Unit}, s.unit != ""
	}
}
