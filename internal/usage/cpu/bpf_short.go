// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// shortLived adds up the CPU time of the short-lived processes since the previous scan.
type shortLived struct {
	names     bool               // processes are distinguished by name
	sums      []sum              // of each origin, in the order of their first exits
	index     map[origin]int     // index in sums
	elsewhere sum                // of origins beyond maxOrigins
	named     int                // number of origins with a name
	namesOf   map[nameHolder]int // number of origins with a name, by cgroup and user
}

// origin groups short-lived processes whose CPU time belongs to the same workload and program.
type origin struct {
	cgroup uint64
	parent int32 // 0 unless the cgroup is the root
	by     exitName
}

// exitName is the name and the user of an exited process. The zero exitName is used for processes
// without a recorded name.
type exitName struct {
	comm  proc.Comm
	uid   uint32
	known bool
}

// nameHolder is a user in a cgroup.
type nameHolder struct {
	cgroup uint64
	uid    uint32
}

// sum is the CPU time of processes. Its parts, nil if the node is not divided, add up to run.
type sum struct {
	from   origin
	run    units.CPUTime
	events proc.Events
	parts  *[divide.MaxDomains]uint64
}

// maxOrigins is the maximum number of origins between two scans. maxNamed is the maximum number of
// origins with a name, and maxNamesOf is the maximum for one user in one cgroup: a user can choose
// any number of names. maxNamesInRoot replaces maxNamesOf in the root cgroup, which holds all
// processes of a v1 host and has origins for each parent.
const (
	maxOrigins     = 1 << 16
	maxNamed       = 1 << 13
	maxNamesOf     = 1 << 8
	maxNamesInRoot = maxNamed / 4
)

func newShortLived(names bool) shortLived {
	return shortLived{names: names, index: map[origin]int{}, namesOf: map[nameHolder]int{}}
}

func originOf(t *tasks.Ended) origin {
	from := origin{cgroup: t.Cgroup, by: exitName{comm: t.Comm, uid: t.UID, known: true}}
	if t.Cgroup == rootCgroup { // with cgroup v1, all processes are there
		from.parent = int32(t.Parent)
	}
	return from
}

// add adds the CPU time of a process, which ran in the domains in proportion to weights. It counts
// without its name if there are too many names already.
func (s *shortLived) add(from origin, run units.CPUTime, events proc.Events, weights []uint64) {
	i, ok := s.index[from]
	if !ok && !s.mayName(from) {
		from.by = exitName{}
		i, ok = s.index[from]
	}
	if !ok {
		if len(s.sums) >= maxOrigins {
			s.elsewhere.add(run, events, weights)
			return
		}
		if from.by.known {
			s.named++
			s.namesOf[nameHolder{from.cgroup, from.by.uid}]++
		}
		i = len(s.sums)
		s.index[from] = i
		s.sums = append(s.sums, sum{from: from})
	}
	s.sums[i].add(run, events, weights)
}

// mayName reports whether another name of a user in a cgroup is allowed.
func (s *shortLived) mayName(from origin) bool {
	most := maxNamesOf
	if from.cgroup == rootCgroup {
		most = maxNamesInRoot
	}
	return s.names && s.named < maxNamed && s.namesOf[nameHolder{from.cgroup, from.by.uid}] < most
}

func (s *sum) add(run units.CPUTime, events proc.Events, weights []uint64) {
	s.run += run
	s.events.Add(events)
	if weights == nil {
		return
	}
	if s.parts == nil {
		s.parts = new([divide.MaxDomains]uint64)
	}
	var parts [divide.MaxDomains]units.CPUTime
	units.Divide(parts[:len(weights)], run, weights)
	for i, part := range parts {
		s.parts[i] += uint64(part)
	}
}

// reset removes all processes.
func (s *shortLived) reset() {
	clear(s.sums)
	if s.sums = s.sums[:0]; cap(s.sums) > burst {
		s.sums = nil
	}
	s.index, s.elsewhere = emptied(s.index), sum{}
	s.named, s.namesOf = 0, emptied(s.namesOf)
}
