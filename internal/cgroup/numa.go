// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"errors"
	"io/fs"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// numaStat is the memory of a cgroup by NUMA node.
var numaStat = counter{
	controller: controllerMemory,
	v1:         "memory.numa_stat",
	v2:         "memory.numa_stat",
	missing:    errors.New("no mounted hierarchy has a memory controller"),
}

var errNoNodes = errors.New("memory.numa_stat lacks the lines that are added up")

// NUMAStat calls yield with how much memory of a cgroup is on each NUMA node, in one or two parts a
// node. It reads memory.numa_stat of the cgroup, or of the nearest cgroup around it that has a
// memory controller. With version 2 (cgroup-v2.rst), it is the bytes that are anonymous or mapped
// from files, as the pages of processes are. With version 1 (cgroup-v1/memory.rst), it is the pages
// of all that is charged, with the cgroups inside. After an error, yield may have been called.
func (t *Tree) NUMAStat(n *Node, yield func(numaNode, amount uint64)) error {
	text, from, err := t.read(n, &n.numaFrom, &numaStat, anyVersion)
	for up := range around(n.path) {
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		outer := Node{path: up, dir: dirOf(up)}
		text, from, err = t.read(&outer, &outer.numaFrom, &numaStat, anyVersion)
		t.release(&outer.numaFrom)
	}
	if err != nil {
		return err
	}
	return parseNUMAStat(text, from.v2, yield)
}

func parseNUMAStat(text []byte, v2 bool, yield func(numaNode, amount uint64)) error {
	missing := 1
	if v2 {
		missing = 2
	}
	for line := range bytes.Lines(text) {
		counts := !v2 && bytes.HasPrefix(line, []byte("hierarchical_total=")) ||
			v2 && (bytes.HasPrefix(line, []byte("anon ")) || bytes.HasPrefix(line, []byte("file_mapped ")))
		if !counts {
			continue
		}
		if err := parseNUMALine(line, yield); err != nil {
			return err
		}
		missing--
	}
	if missing > 0 {
		return errNoNodes
	}
	return nil
}

// parseNUMALine calls yield with the numbers of a line like "anon N0=4096 N1=0".
func parseNUMALine(line []byte, yield func(numaNode, amount uint64)) error {
	line, whole := bytes.CutSuffix(line, []byte{'\n'})
	if !whole {
		return kernfs.ErrCut
	}
	_, rest, _ := bytes.Cut(line, []byte{' '})
	for field := range bytes.SplitSeq(rest, []byte{' '}) {
		name, value, ok := bytes.Cut(field, []byte{'='})
		digits, isNode := bytes.CutPrefix(name, []byte{'N'})
		if !ok || !isNode {
			continue
		}
		node, err := kernfs.ParseUint(digits)
		if err != nil {
			return err
		}
		amount, err := kernfs.ParseUint(value)
		if err != nil {
			return err
		}
		yield(node, amount)
	}
	return nil
}
