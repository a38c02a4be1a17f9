// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"github.com/cilium/ebpf/btf"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/cgroups"
)

// cgroupPaths finds the paths of the cgroups whose IDs BPF reports.
type cgroupPaths struct {
	*cgroup.Paths
	created  creations // nil if the kernel does not allow it: then paths come from the hierarchy only
	refused  error     // the reason if created is nil
	remember func(id uint64, path string)
}

// creations reports which cgroups were created.
type creations interface {
	Drain(yield func(id uint64, path string)) error
	Close() error
}

// openCreations opens the hook. Tests replace it to simulate failures.
var openCreations = func(types *btf.Cache) (creations, error) {
	return orNil[creations](cgroups.OpenCreations(cgroups.CreationsBuffer, types))
}

// orNil keeps a nil pointer from becoming an interface that is not nil.
func orNil[I any, P interface{ *S }, S any](opened P, err error) (I, error) {
	if err != nil {
		var none I
		return none, err
	}
	return any(opened).(I), nil
}

// newCgroupPaths returns the paths of the host whose tree is at root. It does not access the
// machine.
func newCgroupPaths(root string) *cgroupPaths {
	paths := cgroup.NewPaths(root)
	return &cgroupPaths{Paths: paths, remember: paths.Remember}
}

// listen makes the kernel report every cgroup that is created from now on, if it allows that.
func (c *cgroupPaths) listen(types *btf.Cache) {
	c.created, c.refused = openCreations(types)
}

// drain records the paths of the cgroups that were created since the last call.
func (c *cgroupPaths) drain() {
	if c.created != nil {
		_ = c.created.Drain(c.remember) // after an error, the paths are found in the hierarchy
	}
}

func (c *cgroupPaths) close() error {
	if c.created == nil {
		return nil
	}
	return c.created.Close()
}
