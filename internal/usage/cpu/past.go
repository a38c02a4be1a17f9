// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Past is the state of an earlier Reader of the same boot. A Reader can resume from it. It holds no
// pointers, so all of it can be stored.
type Past struct {
	// Exact reports whether an exact source found the processes. It reports no child times.
	Exact bool
	// Now is when the last scan began, since boot.
	Now time.Duration
	// Node is the CPU time of the node in the last window. After Resume the time continues from it.
	Node Node
	// Ticks are the columns of the node in /proc/stat at that time, in ticks: user, nice, system,
	// idle, iowait, irq, softirq and steal (proc_stat(5)).
	Ticks [8]uint64
	// Domains holds the CPU time of each domain of the topology. CPUs holds the columns of each CPU in
	// /proc/stat. Both are empty if the node is not divided by CPU.
	Domains []PastDomain
	CPUs    []PastCPU
	// Processes are the processes of the last successful scan.
	Processes []proc.Past
}

// PastDomain is the CPU time of a domain.
type PastDomain struct {
	Domain units.Domain
	Node   Node
}

// PastCPU is a CPU with its columns in /proc/stat.
type PastCPU struct {
	Number int32
	Ticks  [8]uint64
}

// Past stores in p the state after the last window, whose reads must have succeeded. It does not
// allocate if p was used before with as many processes.
func (r *Reader) Past(p *Past) error {
	if r.precise != nil { // it reads /proc/stat less often
		if err := r.stat.read(); err != nil {
			return err
		}
	}
	p.Exact, p.Node = r.traits.Exact, r.times.Node
	p.Domains = p.Domains[:0]
	for i, node := range r.times.Domains {
		p.Domains = append(p.Domains, PastDomain{r.options.Topology.Domains()[i], node})
	}
	r.stat.past(p)
	p.Now, p.Processes = r.table.Now, r.table.AppendPast(p.Processes[:0])
	return nil
}

// Resume continues from the state of an earlier Reader. The first window then covers the time since
// the past. The node's CPU time is the time of the past plus the growth since then. The usage of a
// process of the past is the growth of its CPU time since then. Resume must precede the first
// Begin. The Reader keeps p until a scan has succeeded.
func (r *Reader) Resume(p *Past) {
	r.stat.resume(p)
	r.times = r.stat.times()
	r.resuming = p
	r.resumeTable()
}

// resumeTable makes the processes of the past the rows of the previous scan.
func (r *Reader) resumeTable() {
	r.scanned = r.resuming.Node.Process
	r.table.Resume(r.resuming.Processes, r.resuming.Now, r.resuming.Exact)
}

func (c *StatClock) past(p *Past) {
	p.Ticks, p.CPUs = c.last, p.CPUs[:0]
	for i := range c.cpus {
		if of := &c.cpus[i]; of.known {
			p.CPUs = append(p.CPUs, PastCPU{int32(i), of.ticks})
		}
	}
}

// resume continues from the times and columns of the past.
func (c *StatClock) resume(p *Past) {
	c.node.Node, c.last, c.begun = p.Node, p.Ticks, true
	for i := range c.domains {
		is := func(of PastDomain) bool { return of.Domain == c.topology.Domains()[i] }
		if of := slices.IndexFunc(p.Domains, is); of >= 0 {
			c.domains[i].Node = p.Domains[of].Node
		}
	}
	for _, of := range p.CPUs {
		if of.Number < 0 || of.Number >= maxCPUs {
			continue
		}
		for len(c.cpus) <= int(of.Number) {
			c.cpus = append(c.cpus, lastTicks{})
		}
		c.cpus[of.Number] = lastTicks{ticks: of.Ticks, known: true}
	}
}
