// SPDX-License-Identifier: Apache-2.0

package cpu

import (
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
	domains []domainRuntime // by the topology's order
}

// domainRuntime is what Runtime knows of a domain.
type domainRuntime struct {
	node        Node
	run         units.CPUTime
	stolen, had units.CPUTime // as of Runtime
	counted     domainTime    // the last time that /proc/stat was read
}

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
	if r.cpus == 0 || now.Sub(r.counted) >= recheck {
		if err := r.countCPUs(); err != nil && r.cpus == 0 {
			return r.node, err
		}
		r.countStolen()
		r.counted = now
	}
	if !r.at.IsZero() {
		elapsed := units.CPUTime(max(now.Sub(r.at), 0))
		busy := units.Advance(r.run, t.Run)
		total := elapsed * units.CPUTime(r.cpus)
		total = max(busy, total-portion(total, r.stolen, r.had))
		// What is untraced is bounded by the whole lives of those that ended, most of which was billed before.
		untraced := min(t.Untraced, total-busy)
		r.node.ran(busy+untraced, total)
		r.addDomains(t, elapsed, untraced)
	}
	r.at, r.run = now, t.Run
	for i := range r.domains {
		r.domains[i].run = t.RunIn(i)
	}
	return r.node, nil
}

// ran adds time in which processes ran, of a total.
func (n *Node) ran(busy, total units.CPUTime) {
	n.Process += busy
	n.Busy += busy
	n.Total += total
}

// addDomains adds to the domains what ran in each. What is untraced may have run wherever there is room.
func (r *Runtime) addDomains(t *Table, elapsed, untraced units.CPUTime) {
	var busy, total [MaxDomains]units.CPUTime
	var room units.CPUTime
	for i := range r.domains {
		d := &r.domains[i]
		busy[i] = units.Advance(d.run, t.RunIn(i))
		total[i] = elapsed * units.CPUTime(r.stat.topology.cpus[i])
		total[i] = max(busy[i], total[i]-portion(total[i], d.stolen, d.had))
		room += total[i] - busy[i]
	}
	for i := range r.domains {
		free := total[i] - busy[i]
		r.domains[i].node.ran(busy[i]+portion(free, untraced, max(room, untraced)), total[i])
	}
}

// divide makes the runtime count CPU time by domain, too.
func (r *Runtime) divide(t *Topology) {
	r.stat.divide(t)
	r.domains = make([]domainRuntime, len(t.Domains()))
}

// domain returns the CPU time of a domain since the first call of Node.
func (r *Runtime) domain(i int) Node { return r.domains[i].node }

// countStolen finds which part of the CPUs' time was stolen since it was last called. Where that cannot be read
// the part stands that was last known.
func (r *Runtime) countStolen() {
	before, begun := r.stat.last, r.stat.begun
	if _, err := r.stat.ReadNode(); err != nil || !begun {
		return
	}
	var node domainTime
	node.add(&before, &r.stat.last)
	r.stolen, r.had = node.stolen, node.had
	for i := range r.domains {
		d, now := &r.domains[i], r.stat.domains[i]
		d.stolen, d.had = now.stolen-d.counted.stolen, now.had-d.counted.had
		d.counted = now
	}
}

func (r *Runtime) countCPUs() error {
	list, err := r.online.Read("online", r.buf)
	if err != nil {
		return fmt.Errorf("read %s: %w", filepath.Join(r.online.Path(), "online"), err)
	}
	cpus := uint64(0)
	if err := kernfs.ParseList(list, func(int) { cpus++ }); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(r.online.Path(), "online"), err)
	}
	r.cpus = cpus
	return nil
}
