// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
)

// Past is the state of an earlier Reader of the same boot, from which a Reader resumes. It holds no
// pointers, so all of it can be stored.
type Past struct {
	// Exact reports whether an exact source found the processes. It reports no child times.
	Exact bool
	// Now is when the last scan began, since boot.
	Now time.Duration
	// Node is the last result of ReadNode. After Resume the node's CPU time continues from there.
	Node Node
	// Ticks are the columns of the node in /proc/stat at that time, in ticks: user, nice, system,
	// idle, iowait, irq, softirq and steal (proc_stat(5)).
	Ticks [8]uint64
	// Domains and CPUs are the same of each domain of the topology, and of each CPU, empty without
	// a topology.
	Domains []PastDomain
	CPUs    []PastCPU
	// Processes are those of the last successful scan.
	Processes []scan.PastProcess
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

// Past stores in p what another Reader needs to go on after the last ReadNode and ReadProcesses,
// both of which must have succeeded. It allocates nothing if p was used before with as many
// processes.
func (r *Reader) Past(p *Past) error {
	if r.runtime != nil { // which reads /proc/stat now and then only
		if _, err := r.source.ReadNode(); err != nil {
			return err
		}
	}
	p.Exact, p.Node = r.source.Exact(), r.node
	p.Domains = p.Domains[:0]
	for i := range r.domains {
		p.Domains = append(p.Domains, PastDomain{r.options.Topology.Domains()[i], r.domains[i].node})
	}
	if s, ok := r.source.(statReader); ok {
		s.past(p)
	}
	p.Now, p.Processes = r.table.Now, r.table.AppendPast(p.Processes[:0])
	return nil
}

// Resume continues from the state of an earlier Reader: the first ReadNode returns the CPU time of
// the past and what the node used since, and in the first scan processes of the past have used what
// they used since. It must precede the first ReadNode. The Reader keeps p until a scan has
// succeeded.
func (r *Reader) Resume(p *Past) {
	r.resuming, r.unread = p, true
	r.node, r.earlier = p.Node, p.Node
	for i := range r.domains {
		d := &r.domains[i]
		of := slices.IndexFunc(p.Domains, func(of PastDomain) bool { return of.Domain == r.options.Topology.Domains()[i] })
		if of >= 0 {
			d.node, d.earlier = p.Domains[of].Node, p.Domains[of].Node
		}
	}
	r.resumeSource()
}

// resumeSource makes the source and the table go on.
func (r *Reader) resumeSource() {
	if s, ok := r.source.(statReader); ok {
		s.resume(r.resuming)
	}
	r.table.Resume(r.resuming.Processes, r.resuming.Now, r.resuming.Exact, r.source.Exact())
}

// statReader is a Source that reads /proc/stat.
type statReader interface {
	past(*Past)
	resume(*Past)
}

func (n *nodeReader) past(p *Past) {
	p.Ticks, p.CPUs = n.last, p.CPUs[:0]
	for i := range n.cpus {
		if c := &n.cpus[i]; c.known {
			p.CPUs = append(p.CPUs, PastCPU{int32(i), c.ticks})
		}
	}
}

// resume makes what the past read the last that was read.
func (n *nodeReader) resume(p *Past) {
	n.last, n.begun = p.Ticks, true
	for _, c := range p.CPUs {
		if c.Number < 0 || c.Number >= maxCPUs {
			continue
		}
		for len(n.cpus) <= int(c.Number) {
			n.cpus = append(n.cpus, lastTicks{})
		}
		n.cpus[c.Number] = lastTicks{ticks: c.Ticks, known: true}
	}
}
