// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"math"
	"time"
)

// numbers follows the numbers that the kernel gives to tasks, to find new processes without listing
// all of them. The kernel gives them in a ring below pid_max (kernel/pid.c, alloc_pid),
// /proc/loadavg shows the last one, and /proc/stat shows how many tasks were created. Only a number
// that a privileged process chooses is not in this order (clone3(2), set_tid, and
// kernel.ns_last_pid). A fork that fails can also use a number, but the kernel does not count it as
// created.
type numbers struct {
	last, before int32  // the last number at the latest scan, and at the scan before it; 0 if not available
	created      uint64 // number of tasks created until the latest scan
	known        bool   // created is set
	most         int32  // kernel.pid_max, 0 if not available
	listed       time.Duration
}

const (
	// listAgain is the maximum time between two lists of all processes. The lists find processes
	// whose numbers were chosen.
	listAgain = time.Minute
	// maxProbes is the maximum number of tasks that are looked for by their numbers in one scan.
	// Listing all processes costs as much as about ten thousand probes.
	maxProbes = 8192
	// numbersSlack is the maximum difference between the count of created tasks and the last
	// number, which are not read at the same moment.
	numbersSlack = 1024
)

// given are the numbers that the kernel gave to tasks between two scans.
type given struct {
	after, last int32 // the numbers above after, up to last; they wrap around if last is lower
	most        int32 // the end of the ring
	all         bool  // the kernel may have given any number
}

// none reports whether the kernel assigned no number.
func (g given) none() bool { return !g.all && g.after == g.last }

// has reports whether the kernel may have given the number.
func (g given) has(pid int32) bool {
	switch {
	case g.all:
		return true
	case g.after <= g.last:
		return pid > g.after && pid <= g.last
	}
	return pid > g.after || pid <= g.last
}

// count returns how many numbers were given at most.
func (g given) count() int {
	switch {
	case g.all:
		return math.MaxInt
	case g.after <= g.last:
		return int(g.last - g.after)
	}
	return int(g.most) - int(g.after) + int(g.last)
}

// each calls yield for each number. Not all may be given.
func (g given) each(yield func(pid int32)) {
	for n, pid := g.count(), g.after; n > 0; n-- {
		if pid++; pid > g.most {
			pid = 1
		}
		yield(pid)
	}
}

// since returns the numbers given since the latest scan. last is the last number now, created is
// the number of tasks created since boot, if known is set, and tasks is the number of tasks that
// exist.
func (n *numbers) since(last int32, created uint64, known bool, tasks uint64) given {
	g := given{after: n.last, last: last, most: n.most}
	more := created - n.created
	switch {
	case !known || !n.known || n.last == 0 || last == 0 || n.most == 0 || created < n.created:
		g.all = true
	case last > n.most: // pid_max was raised
		g.all = true
	case more >= uint64(n.most)/2: // the ring may have come around
		g.all = true
	case more > uint64(g.count())+numbersSlack, uint64(g.count()) > more+tasks+numbersSlack: // numbers were chosen
		g.all = true
	}
	return g
}

// unseen returns the numbers of tasks that the latest scan may not have found: those given since
// then, and those given between that scan and the scan before it. A task has its number a moment
// before it can be found.
func (n *numbers) unseen(g given) given {
	if n.before == 0 {
		g.all = true
	}
	g.after = n.before
	return g
}

// advance notes a scan.
func (n *numbers) advance(last int32, created uint64, known bool) {
	n.before, n.last, n.created, n.known = n.last, last, created, known
}
