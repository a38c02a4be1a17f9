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

// Container is a container as its cgroup path tells. The zero Container is none.
type Container struct {
	// ID is as the runtime writes it, 64 hex digits for most. Where a user, a unit or another container made the cgroup,
	// that one's name and a slash come first.
	ID string
	// Runtime is docker, containerd, cri-o, podman, lxc or another runtime's name. It is empty where the path does not
	// tell.
	Runtime string
	// PodUID is the UID of the container's pod, empty outside of a pod.
	PodUID string
}

// Pod is a Kubernetes pod as its cgroup path tells. The zero Pod is none.
type Pod struct {
	// UID is as the API server writes it, with dashes.
	UID string
	// QoSClass is Guaranteed, Burstable or BestEffort, empty where the path does not tell.
	QoSClass string
}

// VM is a virtual machine as its hypervisor's arguments or scope tell. The zero VM is none.
type VM struct {
	// ID is the UUID, else the name of the machine's scope, else the identity of its hypervisor's process.
	ID string
	// Name is the guest's name, empty where neither tells.
	Name string
	// Hypervisor is qemu, cloud-hypervisor, firecracker or another hypervisor's name.
	Hypervisor string
}

// SlurmStep is a step of a Slurm job as its cgroup path tells. The zero SlurmStep is none.
type SlurmStep struct {
	// ID is the number of the job. In a container, the container's ID and a slash come first.
	ID string
	// Step is the number of the step, or batch, extern or interactive. It is empty for what is in the job and in no step.
	Step string
}

// SystemdUnit is a unit of the host's systemd: a service, a scope or another one that has a cgroup. All that a user's own
// service manager runs is in the unit of that manager. The zero SystemdUnit is none.
type SystemdUnit struct {
	Name string
}
