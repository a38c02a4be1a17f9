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

// Runtime counts the node's CPU time in windows that the ticks of /proc/stat cannot resolve. Busy is what the scans of an
// exact source found that ran. Total is the time that the online CPUs had, less the part of it that /proc/stat counted as
// stolen in the second before. Unlike the busy time of /proc/stat, this one does not include interrupts on an idle CPU.
//
// A Runtime is not safe for concurrent use.
type Runtime struct {
	online onlineCPUs
	stat   nodeReader
	// stolen of had is the part of the CPUs' time that another machine had, in the second before the last count.
	stolen, had units.CPUTime
	// counted is when the CPUs and their stolen time were counted.
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
	return &Runtime{online: newOnlineCPUs(root), stat: newNodeReader(root)}
}

// Close closes the files.
func (r *Runtime) Close() error { return errors.Join(r.online.dir.Close(), r.stat.proc.Close()) }

// Node returns the node's CPU time after a scan that began at now, which must have a monotonic clock reading.
func (r *Runtime) Node(t *Table, now time.Time) (Node, error) {
	// While the number of CPUs cannot be read the last one stands: what the scan found that ran must not be lost.
	if r.online.cpus == 0 || now.Sub(r.counted) >= recheck {
		if err := r.online.count(); err != nil && r.online.cpus == 0 {
			return r.node, err
		}
		r.countStolen()
		r.counted = now
	}
	if !r.at.IsZero() {
		elapsed := units.CPUTime(max(now.Sub(r.at), 0))
		busy := units.Advance(r.run, t.Run)
		total := elapsed * units.CPUTime(r.online.cpus)
		total = max(busy, total-portion(total, r.stolen, r.had))
		// Untraced includes the whole lives of processes that ended, most of which was counted before.
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

// addDomains adds what ran in each domain to it. Untraced time is divided in proportion to the idle time of the domains.
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

// countStolen counts which part of the CPUs' time was stolen since the last call. If that cannot be read the last known
// part stands.
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

// onlineCPUs counts the CPUs that are online.
type onlineCPUs struct {
	dir  *kernfs.Dir
	buf  []byte
	cpus uint64 // 0 until they were counted
}

func newOnlineCPUs(root string) onlineCPUs {
	return onlineCPUs{dir: kernfs.New(filepath.Join(root, "sys/devices/system/cpu")), buf: make([]byte, 4096)}
}

// count counts the CPUs. After an error the number is what it was.
func (o *onlineCPUs) count() error {
	list, err := o.dir.Read("online", o.buf)
	if err != nil {
		return fmt.Errorf("read %s: %w", filepath.Join(o.dir.Path(), "online"), err)
	}
	cpus := uint64(0)
	if err := kernfs.ParseList(list, func(int) { cpus++ }); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(o.dir.Path(), "online"), err)
	}
	o.cpus = cpus
	return nil
}
