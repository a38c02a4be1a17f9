// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cgroups

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/ring"
)

// Creations catches every cgroup that is created in the v2 hierarchy. It needs CAP_BPF and
// CAP_PERFMON.
type Creations struct {
	loaded *ebpf.Collection
	hook   link.Link
	ring   *ring.Reader
}

// CreationsBuffer is the size of a buffer for about 1,200 cgroups of Kubernetes between two reads.
const CreationsBuffer = 256 << 10

// OpenCreations loads the hook with a buffer of this many bytes, a power of two of whole pages. The
// cache of the kernel's types may be nil.
func OpenCreations(buffer int, types *btf.Cache) (*Creations, error) {
	// Before Linux 5.11 maps count against the limit of locked memory. If it cannot be raised,
	// loading fails.
	_ = rlimit.RemoveMemlock()
	spec, err := loadCgroups()
	if err != nil {
		return nil, err
	}
	spec.Maps[cgroupsMapCreations].MaxEntries = uint32(buffer)
	loaded, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: types})
	if err != nil {
		return nil, fmt.Errorf("load the hook on new cgroups: %w", err)
	}
	c := &Creations{loaded: loaded}
	m := loaded.Maps[cgroupsMapCreations]
	if c.ring, err = ring.NewReader(m.FD(), m.MaxEntries()); err != nil {
		loaded.Close()
		return nil, fmt.Errorf("read the hook on new cgroups: %w", err)
	}
	if c.hook, err = link.AttachTracing(link.TracingOptions{Program: loaded.Programs[cgroupsProgOnMkdir]}); err != nil {
		return nil, errors.Join(fmt.Errorf("attach the hook on new cgroups: %w", err), c.Close())
	}
	return c, nil
}

const idSize = 8

// Drain calls yield for each cgroup that was created since the last call, with its ID and its
// path below the root of the hierarchy.
func (c *Creations) Drain(yield func(id uint64, path string)) error {
	err := c.ring.Drain(func(record []byte) {
		if id, path, ok := parseCreation(record); ok {
			yield(id, path)
		}
	})
	if err != nil {
		return fmt.Errorf("read the new cgroups: %w", err)
	}
	return nil
}

// parseCreation parses a record of the hook: the ID of a cgroup, and its path in the rest of the
// record.
func parseCreation(b []byte) (id uint64, path string, ok bool) {
	if len(b) <= idSize {
		return 0, "", false
	}
	return binary.NativeEndian.Uint64(b), string(b[idSize:]), true
}

// Close detaches and unloads the hook.
func (c *Creations) Close() error {
	var errs []error
	if c.hook != nil {
		errs = append(errs, c.hook.Close())
	}
	errs = append(errs, c.ring.Close())
	c.loaded.Close()
	return errors.Join(errs...)
}
