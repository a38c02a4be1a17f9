package workload

// Container is a container as its cgroup path tells.
type Container struct {
	ID      string // as the runtime writes it, 64 hex digits for most
	Runtime string // docker, containerd, cri-o, podman, lxc, …; empty where the path does not tell
	PodUID  string // empty outside a pod
}

// Pod is a Kubernetes pod as its cgroup path tells.
type Pod struct {
	UID      string // with dashes, as the API server writes it
	QoSClass string // Guaranteed, Burstable, BestEffort; empty where the path does not tell
}

// VM is a virtual machine as its hypervisor's arguments or scope tell.
type VM struct {
	ID         string // the UUID; else the machine scope; else the process's own identity
	Name       string // empty where neither tells
	Hypervisor string // qemu, cloud-hypervisor, firecracker, …
}

// Placement is what a cgroup file alone says of a process.
type Placement struct {
	Container Container // zero value: in none
	Pod       Pod       // zero value: in none
	VM        VM        // zero value: in none; ID is the machine scope's name
	// Cgroup is the path of the container's own cgroup (not of a child that the process is in), below
	// each hierarchy's mount point: where the container's CPU counter is. Empty outside a container.
	Cgroup string
}
