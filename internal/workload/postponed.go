// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"iter"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// postponed is the state of the names that are read after the first scan. Most processes of a node
// sleep, and a process needs a name only when it runs. Its workload is found in the first scan.
type postponed struct {
	first      bool          // this scan is the first one, in which all processes are new
	pathsAgree bool          // cgroup files and Wanted.CgroupPath show the same paths
	allowed    bool          // this scan may leave names to later scans
	atOnce     int           // namedAtOnce, or fewer in tests
	named      int           // number of processes that were new while allowed was set
	next       int           // slot from which IdentifyPostponed continues
	at         time.Duration // when IdentifyPostponed last named a process, or when the first scan began
}

const (
	// namedAtOnce is the number of processes that the first scan names.
	namedAtOnce = 500
	// namedWithin is the time in which later scans name the other processes. Until then, a process
	// that sleeps since the first scan, and wakes and exits between two scans, has its task's name.
	namedWithin = 15 * time.Minute
)

// First sets whether the scan is the first one, in which all processes are new. If mayPostpone is
// set, Identify leaves most names to later scans: the names of processes that run, and those that
// IdentifyPostponed reads.
func (id *Identifier) First(isFirst, mayPostpone bool) {
	id.postponed.first, id.postponed.allowed = isFirst, mayPostpone
}

// postpones reports whether a later scan reads the program of a new process. Hypervisors are
// identified at once, and processes with cut names, because a program with a long name also names
// its short-lived processes.
func (id *Identifier) postpones(p *proc.Process) bool {
	n := &id.postponed
	if !n.allowed || p.Is(proc.Kernel) || p.Comm[len(p.Comm)-2] != 0 || hypervisorOf(p.Comm.String()) != nil {
		return false
	}
	n.named++
	return n.named > n.atOnce
}

// comparePaths identifies one process, which compares its cgroup file with its path in the scan.
func (id *Identifier) comparePaths(processes iter.Seq[*proc.Process], now time.Duration) {
	for p := range processes {
		if p.Cgroup != 0 && !p.Is(proc.Kernel) {
			id.Identify(p, now)
			return
		}
	}
}

// IdentifyPostponed reads the names of some processes that the first scan left to later scans.
func (id *Identifier) IdentifyPostponed(t *proc.Table) {
	n := &id.postponed
	if n.first || t.Now < n.at {
		n.at = t.Now
	}
	most := min(namedAtOnce, int(float64(len(id.known))*float64(t.Now-n.at)/float64(namedWithin)))
	for ; most > 0 && n.next < len(id.known); n.next++ {
		if id.known[n.next].reads.unnamed {
			id.Name(&t.Rows[n.next], t.Now)
			n.at = t.Now
			most--
		}
	}
}

// Name reads the name of a process that the first scan left to later scans. It has no effect on
// other processes.
func (id *Identifier) Name(p *proc.Process, now time.Duration) {
	if id.known[p.Slot].reads.unnamed {
		id.Identify(p, now)
	}
}
