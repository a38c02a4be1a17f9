// SPDX-License-Identifier: Apache-2.0

package units

import "time"

// Process is a process while it executes one program. When it executes another it is another Process: the identity is
// all fields, and two values are the same process if they compare equal. The zero Process is none.
type Process struct {
	PID int32
	// Start is when the process was created, since boot. With PID it tells the process from a later one with the same
	// number.
	Start time.Duration
	// Created is the same moment as a date, in ISO 8601.
	Created string
	// Executable is the base name of the executable, or the task's name where the executable cannot be read.
	Executable string
	// Path is the executable's path, empty where it cannot be read.
	Path string
	// CommandLine is the arguments, joined by spaces. It is empty unless it was asked for.
	CommandLine string
}

// Container identifies a container by its cgroup path. The zero Container is none.
type Container struct {
	// ID is as the runtime writes it, usually 64 hex digits. If a user, a unit or another container made the cgroup,
	// the name of that one and a slash come first.
	ID string
	// Runtime is the name of the runtime: docker, containerd, cri-o, podman, lxc or another one. It is empty if the
	// path does not contain it.
	Runtime string
	// PodUID is the UID of the container's pod. It is empty outside of a pod.
	PodUID string
}

// Pod identifies a Kubernetes pod by its cgroup path. The zero Pod is none.
type Pod struct {
	// UID is as the API server writes it, with dashes.
	UID string
	// QoSClass is Guaranteed, Burstable or BestEffort. It is empty if the path does not contain it.
	QoSClass string
}

// VM identifies a virtual machine by its hypervisor's arguments or scope. The zero VM is none.
type VM struct {
	// ID is the UUID, else the name of the machine's scope, else the identity of its hypervisor's process.
	ID string
	// Name is the guest's name. It is empty if neither the arguments nor the scope contain it.
	Name string
	// Hypervisor is qemu, cloud-hypervisor, firecracker or another hypervisor's name.
	Hypervisor string
}

// SlurmStep identifies a step of a Slurm job by its cgroup path. The zero SlurmStep is none.
type SlurmStep struct {
	// ID is the number of the job. In a container, the container's ID and a slash come first.
	ID string
	// Step is the number of the step, or batch, extern or interactive. It is empty for processes of the job outside of
	// its steps.
	Step string
}

// SystemdUnit is a unit of the host's systemd that has a cgroup: a service, a scope or another one. Everything that a
// user's service manager runs belongs to the unit of that manager. The zero SystemdUnit is none.
type SystemdUnit struct {
	Name string
}
