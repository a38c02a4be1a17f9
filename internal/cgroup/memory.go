// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// memory is what a cgroup is charged with, in bytes.
type memory struct {
	charged uint64 // with the cgroups inside
	own     uint64 // without those inside that are in use
	ok      bool
	inUse   bool // AddResident was called for it in the interval
	read    time.Time
	failed  error // why it is not ok
	tries   int   // since it was ok
	// resident is what processes of the cgroup itself have resident in the interval.
	resident uint64
}

// rereadMemory is how long a charge is good.
const rereadMemory = time.Second

// BeginMemory starts an interval in which memory is read: AddResident for all processes, then EndMemory, then Memory.
func (t *Tree) BeginMemory(now time.Time) {
	t.now = now
	for _, n := range t.nodes {
		n.memory.resident, n.memory.inUse = 0, false
	}
}

// AddResident takes note of what a process of the cgroup has resident, in bytes, and reads what the cgroup is charged with
// unless that was read less than a second ago.
func (t *Tree) AddResident(n *Node, resident uint64) {
	m := &n.memory
	m.resident += resident
	m.inUse = true
	if m.read.IsZero() || t.now.Sub(m.read) >= rereadMemory {
		m.read = t.now
		t.readMemory(n)
	}
}

// EndMemory finds what each cgroup is charged with beyond those inside.
func (t *Tree) EndMemory() {
	for _, n := range t.nodes {
		n.memory.own = n.memory.charged
	}
	for _, n := range t.nodes {
		if !n.memory.inUse || !n.memory.ok {
			continue
		}
		around := n.parent
		for around != nil && (!around.memory.inUse || !around.memory.ok) {
			around = around.parent
		}
		if around != nil {
			around.memory.own -= min(n.memory.charged, around.memory.own)
		}
	}
}

// Memory returns a process's part of what the cgroup is charged with, in bytes, by what the process has resident. It is
// not ok if no hierarchy tells the charge.
func (n *Node) Memory(resident uint64) (bytes uint64, ok bool) {
	m := &n.memory
	return units.MulDiv(m.own, resident, m.resident), m.ok
}

// MemoryErr returns why the memory of some cgroups in use is not known, nil if all is. It does not tell which they are, as
// cgroups come and go. A cgroup that is gone is no error unless its processes go on.
func (t *Tree) MemoryErr() error {
	var failed error
	for _, n := range t.nodes {
		m := &n.memory
		if m.inUse && m.tries > 1 && (failed == nil || m.failed.Error() < failed.Error()) {
			failed = m.failed
		}
	}
	if failed == nil {
		return nil
	}
	return fmt.Errorf("the memory of some containers is what is resident: that of their cgroups cannot be read: %w", failed)
}

// memoryCharge is memory.current of version 2 (cgroup-v2.rst) or memory.usage_in_bytes of version 1 (cgroup-v1/memory.rst).
var memoryCharge = counter{
	controller: controllerMemory,
	v1:         "memory.usage_in_bytes", parseV1: parseLine,
	v2: "memory.current", parseV2: parseLine,
	missing: errNoMemory,
}

func (t *Tree) readMemory(n *Node) {
	m := &n.memory
	charged, _, err := t.read(n, &n.memoryFrom, &memoryCharge)
	if m.ok = err == nil; err != nil {
		m.failed = err
		m.tries++
		return
	}
	m.charged, m.failed, m.tries = charged, nil, 0
}

var (
	errOutside  = errors.New("outside of the cgroup namespace")
	errNoMemory = errors.New("no mounted hierarchy has a memory controller")
)
