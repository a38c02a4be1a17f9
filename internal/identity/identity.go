// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"strings"
	"time"
)

// Process is a process while it executes one program. When it executes another it is another
// Process: the identity is all fields, and two values are the same process if they compare equal.
// The zero Process means no process.
type Process struct {
	PID int32
	// Start is when the process was created, since boot. With PID it distinguishes the process from
	// a later one with the same number.
	Start time.Duration
	// Created is the same moment as a date, in ISO 8601.
	Created string
	// Executable is the base name of the executable, or the task's name if the executable cannot
	// be read.
	Executable string
	// Path is the executable's path, empty if it cannot be read.
	Path string
	// CommandLine is the arguments, joined by spaces. It is empty unless it was asked for.
	CommandLine string
	// Owner is the name of the process's real user, or the user ID if the user has no name. It is
	// empty if it is not available or not requested.
	Owner string
	// Parent is the PID of the parent when the process was first seen. It is 0 unless requested.
	Parent int32
	// Descendants marks a program that stands for descendants of its processes that no source can
	// name. It is never set for a process with a PID.
	Descendants bool
}

// Program returns the program of a process: the identity that processes of the same program share.
// Its PID is 0.
//
// Kernel threads of one kind are one program: the name of a program ends before its first slash, so
// that kworker/0:1 and kworker/u8:2 are both kworker. No other executable's base name has a slash.
func (p *Process) Program() Process {
	name := p.Executable
	if slash := strings.IndexByte(name, '/'); slash > 0 {
		name = name[:slash]
	}
	return Process{Executable: name, Owner: p.Owner, Descendants: p.Descendants}
}

// hasProgram reports whether the process has a program.
func (p *Process) hasProgram() bool { return p.Executable != "" }

// CreatedAt returns Process.Created of a process that was created at a time.
func CreatedAt(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.00Z07:00") }

// Container identifies a container by its cgroup path. The zero Container means no container.
type Container struct {
	// ID is as the runtime writes it, usually 64 hex digits. If a user, a unit or another container
	// made the cgroup, the name of that one and a slash come first.
	ID string
	// Runtime is the name of the runtime: docker, containerd, cri-o, podman, lxc or another one. It
	// is empty if the path does not contain it.
	Runtime string
}

// Pod identifies a Kubernetes pod by its cgroup path. The zero Pod means no pod.
type Pod struct {
	// UID is as the API server writes it, with dashes.
	UID string
	// QoSClass is Guaranteed, Burstable or BestEffort. It is empty if the path does not contain it.
	QoSClass string
}

// VM identifies a virtual machine by its hypervisor's arguments or scope. The zero VM means no
// virtual machine.
type VM struct {
	// ID is the UUID, else the name of the machine's scope, else the identity of its hypervisor's
	// process.
	ID string
	// Name is the guest's name. It is empty if neither the arguments nor the scope contain it.
	Name string
	// Hypervisor is qemu, cloud-hypervisor, firecracker or another hypervisor's name.
	Hypervisor string
	// CID is the context ID of the guest for the host's AF_VSOCK sockets (vsock(7)), 0 if it
	// has none. It is not an attribute: a machine that is started again with the same ID may have
	// another one.
	CID uint32
}

// SlurmStep identifies a step of a Slurm job by its cgroup path. The zero SlurmStep means no step.
type SlurmStep struct {
	// ID is the number of the job. In a container, the container's ID and a slash come first.
	ID string
	// Step is the number of the step, or batch, extern or interactive. It is empty for processes of
	// the job outside of its steps.
	Step string
	// User is the name of the process's real user, or the user ID if the user has no name. It is
	// empty for root, whose processes start the job, and if the user is not requested.
	User string
}

// SystemdUnit is a unit of the host's systemd that has a cgroup: a service, a scope or another one.
// Everything that a user's service manager runs belongs to the unit of that manager. The zero
// SystemdUnit is none.
type SystemdUnit struct {
	Name string
}

// Names are the human-readable names of a container and its pod. They do not identify either, and a
// field that is not available is empty.
type Names struct {
	Namespace, Pod      string // of Kubernetes, both set or neither
	KubernetesContainer string // in the pod's specification
	Container           string // as the container's runtime has it
	Image               string // without tag and digest
	// Pending reports whether more names may be found soon. Until then a field that is set does not
	// change; afterwards no field does.
	Pending bool
}

// Settled returns the present names. They do not change any more.
func (n *Names) Settled() *Names {
	if n == nil || !n.Pending {
		return n
	}
	settled := *n
	settled.Pending = false
	return &settled
}

// Workload identifies the container, pod and other units of a process. The zero value of a part
// means none.
type Workload struct {
	Container Container
	Pod       Pod // of the container, if the process is in one
	VM        VM
	Job       SlurmStep
	Unit      SystemdUnit
	Names     *Names // of the container and its pod, nil if they are not looked for
}

// Owner is a process and what it is part of. Without a process it is the owner of processes without
// names.
type Owner struct {
	Process Process
	Workload
}

// Entity is the kind of an account's owner: a process, a program, or one part of a Workload.
type Entity uint8

// The entities that have accounts.
const (
	ProcessEntity Entity = iota
	ProgramEntity        // the processes of one executable, workload and user together
	ContainerEntity
	PodEntity
	VMEntity
	SlurmStepEntity
	SystemdUnitEntity
	NumEntities
)

// Key identifies a part of a workload, or all that a process is part of, by the values of
// attributes that distinguish. It has room for the attributes of all entities.
type Key [6]string

// Attribute is a resource attribute whose value is a field of a workload.
type Attribute struct {
	Name string
	// Field returns the field, which is empty if there is no value.
	Field func(*Workload) *string
	// Distinguishes marks an attribute without which different owners of the entity have the same
	// series. The entity's first attribute does.
	Distinguishes bool
}

// NameAttribute is a resource attribute whose value is a name. It is empty if the name is not
// known.
type NameAttribute struct {
	Name string
	Of   func(*Names) string
}

// entities has the line of each entity.
//
// To add an entity, add its type, its field of Workload, its constant and a line here, and enlarge
// Key. The constant is the last one, because states have the numbers. Then add its metrics to
// receiver/metadata.yaml and to recordEach and settingsByName of package emit, and change the
// version of package state.
var entities = withProcess([NumEntities]entity{
	ContainerEntity: {name: "container", attributes: []Attribute{
		{"container.id", func(w *Workload) *string { return &w.Container.ID }, true},
		{"k8s.pod.uid", podUID, false},
		{"container.runtime.name", func(w *Workload) *string { return &w.Container.Runtime }, false},
	}, names: []NameAttribute{
		{"k8s.namespace.name", namespace},
		{"k8s.pod.name", podName},
		{"k8s.container.name", func(n *Names) string { return n.KubernetesContainer }},
		{"container.name", func(n *Names) string { return n.Container }},
		{"container.image.name", func(n *Names) string { return n.Image }},
	}},
	PodEntity: {name: "k8s.pod", attributes: []Attribute{
		{"k8s.pod.uid", podUID, true},
		{"k8s.pod.qos_class", func(w *Workload) *string { return &w.Pod.QoSClass }, false},
	}, names: []NameAttribute{
		{"k8s.namespace.name", namespace},
		{"k8s.pod.name", podName},
	}},
	VMEntity: {name: "vm", attributes: []Attribute{
		{"vm.id", func(w *Workload) *string { return &w.VM.ID }, true},
		{"vm.name", func(w *Workload) *string { return &w.VM.Name }, false},
		{"vm.hypervisor", func(w *Workload) *string { return &w.VM.Hypervisor }, false},
	}},
	SlurmStepEntity: {name: "slurm.step", attributes: []Attribute{
		{"slurm.job.id", func(w *Workload) *string { return &w.Job.ID }, true},
		{"slurm.step.id", func(w *Workload) *string { return &w.Job.Step }, true},
		{"slurm.job.user", func(w *Workload) *string { return &w.Job.User }, false},
	}},
	SystemdUnitEntity: {name: "systemd.unit", attributes: []Attribute{
		{"systemd.unit.name", func(w *Workload) *string { return &w.Unit.Name }, true},
	}},
})

func podUID(w *Workload) *string { return &w.Pod.UID }

func namespace(n *Names) string { return n.Namespace }
func podName(n *Names) string   { return n.Pod }

// entity holds the properties that all owners of an entity have in common.
type entity struct {
	name       string
	attributes []Attribute
	names      []NameAttribute
	keys       []Attribute // those that distinguish owners of this entity or of another one
}

// withProcess adds the keys, and the lines of processes and programs, which have the attributes
// that distinguish their workloads.
func withProcess(all [NumEntities]entity) [NumEntities]entity {
	var distinguishing []Attribute
	named := map[string]bool{}
	for _, e := range all {
		for _, a := range e.attributes {
			if a.Distinguishes {
				distinguishing = append(distinguishing, Attribute{Name: a.Name, Field: a.Field})
				named[a.Name] = true
			}
		}
	}
	all[ProcessEntity] = entity{name: "process", attributes: distinguishing}
	all[ProgramEntity] = entity{name: "program", attributes: distinguishing}
	for i := range all {
		for _, a := range all[i].attributes {
			if named[a.Name] {
				all[i].keys = append(all[i].keys, a)
			}
		}
	}
	return all
}

// Common returns what both are part of.
func Common(a, b *Workload) (both Workload) {
	for e := ContainerEntity; e < NumEntities; e++ {
		if e.Key(a) == e.Key(b) {
			e.Describe(&both, a)
		}
	}
	return both
}

// OfProcesses reports whether the entity is a process or a program. Each process's energy is in one
// account of these, which the accounts of the other entities count again.
func (e Entity) OfProcesses() bool { return e <= ProgramEntity }

// String returns the name of the entity, such as process or k8s.pod.
func (e Entity) String() string { return entities[e].name }

// MetricPrefix returns the prefix of the names of the entity's metrics, such as k8s.pod. Programs
// have the metrics of processes.
func (e Entity) MetricPrefix() string {
	if e == ProgramEntity {
		e = ProcessEntity
	}
	return entities[e].name
}

// Attributes returns the entity's attributes. The first is empty if the identity has no such
// entity. For a process, they distinguish the entities that contain it; a process also has the
// attributes of its Process. A program has the same attributes as a process. The caller must not
// change them.
func (e Entity) Attributes() []Attribute { return entities[e].attributes }

// Names returns the entity's attributes that are names, none for a process, which has those that
// distinguish only. The caller must not change them.
func (e Entity) Names() []NameAttribute { return entities[e].names }

// AwaitsNames reports whether more of the entity's names may be found soon.
func (e Entity) AwaitsNames(w *Workload) bool {
	n := w.Names
	return n != nil && n.Pending && (e == ContainerEntity || e == PodEntity && n.Pod == "")
}

// Of reports whether an owner is or has one of the entity.
func (e Entity) Of(o *Owner) bool {
	switch e {
	case ProcessEntity:
		return o.Process.PID != 0
	case ProgramEntity:
		return o.Process.hasProgram()
	}
	return *entities[e].attributes[0].Field(&o.Workload) != ""
}

// Key returns what identifies the entity's part of a workload, and for a process or a program all
// of the workload.
func (e Entity) Key(w *Workload) (k Key) {
	keys := entities[e].keys
	for i := range keys {
		k[i] = *keys[i].Field(w)
	}
	return k
}

// Describe copies the fields of the entity's attributes from a workload, also its names, of a
// virtual machine its CID, and for a process or a program all of the workload.
func (e Entity) Describe(into, from *Workload) {
	if e == ProcessEntity || e == ProgramEntity {
		*into = *from
		return
	}
	attributes := entities[e].attributes
	for i := range attributes {
		*attributes[i].Field(into) = *attributes[i].Field(from)
	}
	if len(entities[e].names) > 0 {
		into.Names = from.Names
	}
	if e == VMEntity {
		into.VM.CID = from.VM.CID
	}
}
