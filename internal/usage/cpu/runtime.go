// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Runtime gives the node's CPU time for windows that the ticks of /proc/stat cannot resolve: busy is what
// an exact source's passes found that ran, and total is the time that the online CPUs had, less the part that
// /proc/stat says was stolen in the second before. Unlike that of /proc/stat, this busy time has no
// interrupts that came while nobody ran.
type Runtime struct {
	online *kernfs.Dir
	buf    []byte
	cpus   uint64
	stat   nodeReader
	// stolen of had is the part of the CPUs' time that another machine had when it was last looked at.
	stolen, had units.CPUTime
	// counted is when the CPUs, and what was stolen of them, were counted.
	counted time.Time
	node    Node
	at      time.Time
	run     units.CPUTime
}

// recount is how often what seldom changes is looked at, however short the windows are.
const recount = time.Second

// NewRuntime returns the CPU time of the node below root. It touches nothing.
func NewRuntime(root string) *Runtime {
	return &Runtime{
		online: kernfs.New(filepath.Join(root, "sys/devices/system/cpu")),
		buf:    make([]byte, 4096),
		stat:   newNodeReader(root),
	}
}

// Close closes what it holds open.
func (r *Runtime) Close() error { return errors.Join(r.online.Close(), r.stat.proc.Close()) }

// Node returns the node's CPU time after a pass that began at now, which has a monotonic clock reading.
func (r *Runtime) Node(t *Table, now time.Time) (Node, error) {
	// The number of CPUs that was last known serves while it cannot be read: what the pass found that ran
	// must not be lost.
	if r.cpus == 0 || now.Sub(r.counted) >= recount {
		if err := r.countCPUs(); err != nil && r.cpus == 0 {
			return r.node, err
		}
		r.countStolen()
		r.counted = now
	}
	if !r.at.IsZero() {
		busy := units.Advance(r.run, t.Run)
		total := units.CPUTime(max(now.Sub(r.at), 0)) * units.CPUTime(r.cpus)
		total = max(busy, total-portion(total, r.stolen, r.had))
		// What is untraced is bounded by the whole lives of those that ended, most of which was billed before.
		busy += min(t.Untraced, total-busy)
		r.node.Process += busy
		r.node.Busy += busy
		r.node.Total += total
	}
	r.at, r.run = now, t.Run
	return r.node, nil
}

// countStolen finds which part of the CPUs' time was stolen since it was last called. Where that cannot be read
// the part stands that was last known.
func (r *Runtime) countStolen() {
	before, begun := r.stat.last, r.stat.begun
	if _, err := r.stat.ReadNode(); err != nil || !begun {
		return
	}
	r.stolen, r.had = 0, 0
	for column := range before {
		grown := min(ticks(units.Advance(before[column], r.stat.last[column])), maxColumn)
		r.had += grown
		if column == steal {
			r.stolen = grown
		}
	}
}

func (r *Runtime) countCPUs() error {
	list, err := r.online.Read("online", r.buf)
	if err != nil {
		return fmt.Errorf("read %s: %w", filepath.Join(r.online.Path(), "online"), err)
	}
	cpus, err := parseCPUList(list)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(r.online.Path(), "online"), err)
	}
	r.cpus = cpus
	return nil
}

// parseCPUList counts the CPUs of a list like "0-3,5" (Documentation/admin-guide/cputopology.rst).
func parseCPUList(b []byte) (uint64, error) {
	var n uint64
	for part := range bytes.SplitSeq(bytes.TrimSpace(b), []byte{','}) {
		first, last, isRange := bytes.Cut(part, []byte{'-'})
		from, err := parseUint(first)
		if err != nil {
			return 0, err
		}
		to := from
		if isRange {
			if to, err = parseUint(last); err != nil {
				return 0, err
			}
		}
		if to < from || to >= maxCPUs {
			return 0, errNumber
		}
		n += to - from + 1
	}
	return n, nil
}

// maxCPUs bounds the numbers of CPUs; Linux is built for 8,192 at most.
const maxCPUs = 1 << 16
