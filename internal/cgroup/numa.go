// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"errors"
	"io/fs"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

var (
	errNoMemory = errors.New("no mounted hierarchy has a memory controller")
	errNoNodes  = errors.New("memory.numa_stat lacks required lines")
	errOutside  = errors.New("outside of the cgroup namespace")
)

// NUMAStat calls yield with the memory of a cgroup on each NUMA node, in one or two parts per node.
// It reads memory.numa_stat of the cgroup, or of its nearest ancestor that has a memory controller.
// With version 2 (cgroup-v2.rst), the amount is the bytes that are anonymous or mapped from files,
// as the pages of processes are. With version 1 (cgroup-v1/memory.rst), it is the number of all
// charged pages, including descendant cgroups. After an error, yield may have been called.
func (t *Tree) NUMAStat(path string, yield func(numaNode, amount uint64)) error {
	all, err := t.mounts.hierarchies()
	if err != nil {
		return err
	}
	if dirOf(path) == "" {
		return errOutside
	}
	text, v2, err := t.readNUMAStat(all, path)
	for up := range around(path) {
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		text, v2, err = t.readNUMAStat(all, up)
	}
	if err != nil {
		return err
	}
	return parseNUMAStat(text, v2, yield)
}

func (t *Tree) readNUMAStat(all []hierarchy, path string) (text []byte, v2 bool, err error) {
	err = errNoMemory
	for i := range all {
		if h := &all[i]; h.v2 || h.has(controllerMemory) {
			text, err = t.lookups.read(h, dirOf(path), "memory.numa_stat")
			if !errors.Is(err, fs.ErrNotExist) {
				return text, h.v2, err
			}
		}
	}
	return nil, false, err
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
		node, nodeErr := kernfs.ParseUint(digits)
		amount, err := kernfs.ParseUint(value)
		if err := errors.Join(nodeErr, err); err != nil {
			return err
		}
		yield(node, amount)
	}
	return nil
}
