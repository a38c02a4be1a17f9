// SPDX-License-Identifier: Apache-2.0

package workload

import "github.com/energyreceiver/energyreceiver/internal/units"

// Placement is what a cgroup file alone says of a process.
type Placement struct {
	Container units.Container // zero value: in none
	Pod       units.Pod       // zero value: in none
	VM        units.VM        // zero value: in none; ID is the machine scope's name
	// Cgroup is the path of the container's own cgroup (not of a child that the process is in), below
	// each hierarchy's mount point: where the container's CPU counter is. Empty outside a container.
	Cgroup string
}
