// SPDX-License-Identifier: Apache-2.0

// Package numa reports the memory of cgroups by CPU package on machines with several NUMA nodes.
package numa

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Places reports the memory of cgroups in each part of a machine, such as a CPU package. It reads
// memory.numa_stat of a cgroup on request, and again after one to ten seconds: memory seldom moves,
// and the kernel adds up its counters of all CPUs for each read.
//
// A Places is not safe for concurrent use.
type Places struct {
	tree   *cgroup.Tree
	parts  int
	of     func(cpu int32) int
	now    time.Time
	nodes  []int // the part of each NUMA node, by number, or elsewhere
	found  time.Time
	failed error // the error of the last attempt to find nodes
	byPath map[string]*place
	read   []uint64 // scratch: the last reading
	add    func(numaNode, amount uint64)
}

// place holds the latest memory of one cgroup.
type place struct {
	bytes  []uint64 // by part, and at the end elsewhere; empty if it was not read
	at     time.Time
	again  time.Duration // after at
	used   time.Time
	tries  int // since it was read
	failed error
}

const (
	rereadPlace   = time.Second
	rereadPlaces  = 10 * time.Second
	refindNodes   = time.Minute
	forgetPlaces  = time.Minute
	elsewhere     = -1
	maxNode       = 1 << 10 // MAX_NUMNODES
	numaStatRoom  = 4096
	nodeDirectory = "sys/devices/system/node"
)

// New returns the places of the memory of a tree's cgroups, in a number of parts. of returns the
// part that a CPU is in, and the memory of a NUMA node is in the part of the node's CPUs. New reads
// no file.
func New(tree *cgroup.Tree, parts int, of func(cpu int32) int) *Places {
	p := &Places{tree: tree, parts: parts, of: of, byPath: map[string]*place{}, read: make([]uint64, parts+1)}
	p.add = func(numaNode, amount uint64) {
		part := parts
		if numaNode < uint64(len(p.nodes)) && p.nodes[numaNode] != elsewhere {
			part = p.nodes[numaNode]
		}
		p.read[part] = units.AddSaturating(p.read[part], amount)
	}
	return p
}

// Begin starts an interval.
func (p *Places) Begin(now time.Time) {
	p.now = now
	if p.found.IsZero() || now.Sub(p.found) >= refindNodes {
		p.found = now
		if err := p.findNodes(); p.failed == nil || err == nil {
			p.failed = err
		}
	}
	for name, pl := range p.byPath {
		if now.Sub(pl.used) >= forgetPlaces {
			delete(p.byPath, name)
		}
	}
}

// Of returns how many bytes of memory of the cgroup at a path are in each part, followed by those
// elsewhere. The result is empty if it cannot be read. The slice is valid until the next Begin.
func (p *Places) Of(path string) []uint64 {
	if p.nodes == nil || len(path) < 2 { // the root has no such file
		return nil
	}
	pl := p.byPath[path]
	if pl == nil {
		pl = &place{}
		p.byPath[path] = pl
	}
	pl.used = p.now
	if pl.at.IsZero() || p.now.Sub(pl.at) >= pl.again {
		pl.at, pl.again = p.now, min(max(2*pl.again, rereadPlace), rereadPlaces)
		p.readPlace(path, pl)
	}
	return pl.bytes
}

// readPlace reads the memory of a cgroup.
func (p *Places) readPlace(path string, pl *place) {
	pl.bytes = pl.bytes[:0]
	clear(p.read)
	if pl.failed = p.tree.NUMAStat(path, p.add); pl.failed != nil {
		pl.tries++
		return
	}
	pl.tries = 0
	if sum(p.read) > 0 {
		pl.bytes = append(pl.bytes, p.read...)
	}
}

func sum(numbers []uint64) (all uint64) {
	for _, n := range numbers {
		all = units.AddSaturating(all, n)
	}
	return all
}

// Err returns an error if the memory of some cgroups or the NUMA nodes cannot be read. A cgroup
// that was removed is no error.
func (p *Places) Err() error {
	if p.failed != nil {
		return fmt.Errorf("memory counts for the package where its process ran: %w", p.failed)
	}
	var failed error
	for _, pl := range p.byPath {
		if pl.tries > 1 && pl.used.Equal(p.now) && (failed == nil || pl.failed.Error() < failed.Error()) {
			failed = pl.failed
		}
	}
	if failed == nil {
		return nil
	}
	return fmt.Errorf("some memory counts for the package where its process ran: memory.numa_stat cannot be read: %w", failed)
}

var errSpans = errors.New("a NUMA node has CPUs of several packages")

// findNodes finds the part of each NUMA node. A node without CPUs has no part: no package's zone
// counts the memory of a device (CXL) or persistent memory.
func (p *Places) findNodes() error {
	dir := kernfs.New(filepath.Join(p.tree.Root(), nodeDirectory))
	defer func() { _ = dir.Close() }() // it was only read from
	buf := make([]byte, numaStatRoom)
	list, err := dir.Read("online", buf)
	if err != nil {
		return fmt.Errorf("NUMA nodes: %w", err)
	}
	var nodes []int
	var failed error
	if err := kernfs.ParseList(bytes.Clone(list), func(node int) {
		for len(nodes) <= node && node < maxNode {
			nodes = append(nodes, elsewhere)
		}
		if node < maxNode {
			part, err := p.partOf(dir, node, buf)
			nodes[node], failed = part, cmp.Or(failed, err)
		}
	}); err != nil || failed != nil {
		return fmt.Errorf("NUMA nodes: %w", cmp.Or(err, failed))
	}
	p.nodes = nodes
	return nil
}

func (p *Places) partOf(dir *kernfs.Dir, node int, buf []byte) (part int, err error) {
	cpus, err := dir.Read(fmt.Sprintf("node%d/cpulist", node), buf)
	if err != nil {
		return elsewhere, err
	}
	if part = elsewhere; len(bytes.TrimSpace(cpus)) == 0 {
		return part, nil
	}
	err = kernfs.ParseList(cpus, func(cpu int) {
		of := p.of(int32(cpu))
		if part != elsewhere && part != of {
			part = len(p.read)
		}
		part = max(part, of)
	})
	if part >= p.parts {
		return elsewhere, cmp.Or(err, errSpans)
	}
	return part, err
}
