// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"strings"
	"time"
)

// Process identifies a process that executes one program. A process that executes another program
// becomes another Process. All fields are part of the identity: two equal values are the same
// process. The zero Process means no process.
type Process struct {
	PID int32
	// Start is when the process was created, since boot. With PID it distinguishes the process from
	// a later process with the same PID.
	Start time.Duration
	// Created is Start as a date in ISO 8601.
	Created string
	// Executable is the base name of the executable, or the task's name if the executable cannot
	// be read.
	Executable string
	// Path is the executable's path, or empty if it cannot be read.
	Path string
	// CommandLine is the arguments, joined by spaces. It is empty unless requested.
	CommandLine string
	// Owner is the name of the process's real user, or the user ID if the user has no name. It is
	// empty if it is not available or not requested.
	Owner string
	// Parent is the PID of the parent at the first scan with the process. It is 0 unless requested.
	Parent int32
	// Descendants is set for the descendants of a program's processes that no source can identify.
	// It is never set for a process with a PID.
	Descendants bool
}

// Program returns the program of a process: the identity that processes of the same program share.
// Its PID is 0.
//
// The name of a program ends before the first slash, so that kernel threads of one kind, such as
// kworker/0:1 and kworker/u8:2, are one program. Base names of other executables contain no slash.
func (p *Process) Program() Process {
	name := p.Executable
	if slash := strings.IndexByte(name, '/'); slash > 0 {
		name = name[:slash]
	}
	return Process{Executable: name, Owner: p.Owner, Descendants: p.Descendants}
}

// hasProgram reports whether the process has a program.
func (p *Process) hasProgram() bool { return p.Executable != "" }

// CreatedAt returns Process.Created of a process that was created at t.
func CreatedAt(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.00Z07:00") }

// Container identifies a container by its cgroup path. The zero Container means no container.
type Container struct {
	// ID is the ID that the runtime uses, usually 64 hex digits. If a user, a unit or another
	// container created the cgroup, its name and a slash come first.
	ID string
	// Runtime is the name of the runtime, such as docker, containerd, cri-o, podman or lxc. It is
	// empty if the path does not contain it.
	Runtime string
}

// Pod identifies a Kubernetes pod by its cgroup path. The zero Pod means no pod.
type Pod struct {
	// UID is the UID with dashes, as in the API server.
	UID string
	// QoSClass is Guaranteed, Burstable or BestEffort. It is empty if the path does not contain it.
	QoSClass string
}

// VM identifies a virtual machine by its hypervisor's arguments or scope. The zero VM means no
// virtual machine.
type VM struct {
	// ID is the UUID. Without a UUID, it is the name of the machine's scope, or the identity of its
	// hypervisor's process.
	ID string
	// Name is the guest's name. It is empty if neither the arguments nor the scope contain it.
	Name string
	// Hypervisor is the name of the hypervisor, such as qemu, cloud-hypervisor or firecracker.
	Hypervisor string
	// CID is the context ID of the guest for the host's AF_VSOCK sockets (vsock(7)), or 0. It is
	// not an attribute, because it can change when a machine with the same ID is restarted.
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

// SystemdUnit is a unit of the host's systemd that has a cgroup, such as a service or a scope. All
// processes of a user's service manager belong to the unit of the manager. The zero SystemdUnit
// means no unit.
type SystemdUnit struct {
	Name string
}

// Names are the human-readable names of a container and its pod. They do not identify either, and a
// field that is not available is empty.
type Names struct {
	Namespace, Pod      string // of Kubernetes; either both are set or both are empty
	KubernetesContainer string // name in the pod's specification
	Container           string // name in the container runtime
	Image               string // without tag and digest
	// Pending reports whether more names may be found soon. While it is set, empty fields may still
	// be set. Fields that are set never change.
	Pending bool
}

// Settled returns a copy of the current names that is not pending.
func (n *Names) Settled() *Names {
	if n == nil || !n.Pending {
		return n
	}
	settled := *n
	settled.Pending = false
	return &settled
}

// Workload identifies the container, pod and other units of a process. A part with the zero value
// is absent.
type Workload struct {
	Container Container
	Pod       Pod // of the container, if the process is in one
	VM        VM
	Job       SlurmStep
	Unit      SystemdUnit
	Names     *Names // names of the container and its pod, or nil if names are not read
}

// Owner is a process and its Workload. With the zero Process, it is the owner of unidentified
// processes of the Workload.
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

// Key identifies a part of a workload, or a whole workload, by the values of its distinguishing
// attributes. It has room for the attributes of any entity.
type Key [6]string

// Attribute is a resource attribute whose value is a field of a workload.
type Attribute struct {
	Name string
	// Field returns a pointer to the field, which is empty without a value.
	Field func(*Workload) *string
	// Distinguishes is set if different owners of the entity would have the same series without the
	// attribute. It is set for the first attribute of each entity.
	Distinguishes bool
}

// NameAttribute is a resource attribute whose value is a name, or empty if the name is not
// available.
type NameAttribute struct {
	Name string
	Of   func(*Names) string
}

// entities describes each entity.
//
// To add an entity, add its type, its field of Workload, its constant and a line here, and enlarge
// Key. The new constant must be the last one, because states contain the numbers. Then add its
// metrics to receiver/metadata.yaml and to recordEach and settingsByName of package emit, and
// change the version of package state.
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

// entity has the common properties of all owners of an entity.
type entity struct {
	name       string
	attributes []Attribute
	names      []NameAttribute
	keys       []Attribute // attributes that distinguish owners of this entity or of another entity
}

// withProcess sets the keys, and adds processes and programs, whose attributes are the
// distinguishing attributes of their workloads.
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

// Common returns the parts that both workloads have in common.
func Common(a, b *Workload) (both Workload) {
	for e := ContainerEntity; e < NumEntities; e++ {
		if e.Key(a) == e.Key(b) {
			e.Describe(&both, a)
		}
	}
	return both
}

// OfProcesses reports whether the entity is a process or a program. The energy of each process is
// in one account of these two entities. Accounts of other entities contain the same energy again.
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

// Attributes returns the entity's attributes. The first attribute is empty if a workload does not
// have the entity. The attributes of a process distinguish its workload. A process also has the
// attributes of its Process. A program has the same attributes as a process. The caller must not
// change them.
func (e Entity) Attributes() []Attribute { return entities[e].attributes }

// Names returns the entity's attributes that are names. Processes and programs have no names. The
// caller must not change them.
func (e Entity) Names() []NameAttribute { return entities[e].names }

// AwaitsNames reports whether more of the entity's names may be found soon.
func (e Entity) AwaitsNames(w *Workload) bool {
	n := w.Names
	return n != nil && n.Pending && (e == ContainerEntity || e == PodEntity && n.Pod == "")
}

// Of reports whether an owner belongs to the entity: it is a process or program, or its workload
// has the part.
func (e Entity) Of(o *Owner) bool {
	switch e {
	case ProcessEntity:
		return o.Process.PID != 0
	case ProgramEntity:
		return o.Process.hasProgram()
	}
	return *entities[e].attributes[0].Field(&o.Workload) != ""
}

// Key returns the key of the entity's part of a workload. For a process or a program, it returns
// the key of the whole workload.
func (e Entity) Key(w *Workload) (k Key) {
	keys := entities[e].keys
	for i := range keys {
		k[i] = *keys[i].Field(w)
	}
	return k
}

// Describe copies the fields of the entity's attributes, including names, from a workload. For a
// virtual machine, it also copies the CID. For a process or a program, it copies the whole
// workload.
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
