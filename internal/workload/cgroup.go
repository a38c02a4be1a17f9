// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// Placement is the placement of a process according to its cgroup file alone.
type Placement struct {
	identity.Workload // the ID of a VM is its scope's name
	// Cgroup is the path of the container's own cgroup (not of a child that the process is in),
	// below each hierarchy's mount point: where the container's CPU counter is. Outside of a
	// container it is that of the step of a Slurm job, and empty outside of these.
	Cgroup string
}

// ParseCgroup parses the content of /proc/<pid>/cgroup. Its format is described in cgroups(7): a
// line "hierarchy-id:controllers:/path" for each hierarchy of version 1, and "0::/path" for version
// 2. ParseCgroup does not fail: it ignores lines of another form, and a path of no known form is in
// no workload.
//
// The innermost container and the innermost pod of a path count, so that a container of Docker in
// Docker, or of a cluster of kind, is found rather than the one around it. The pod is always the
// container's. If hierarchies disagree, the path with the most levels of pods and containers
// counts; among equals version 2, then cpuacct, cpu, name=systemd and the rest. For each other kind
// of workload that holds for the paths that show the most of it, such as a job's step beside the
// job. The order of the lines makes no difference.
//
// The ID of whatever a delegate named, such as a user's own service manager or a container, starts
// with the delegate's name and a slash.
//
// A path that starts with "/.." is seen from a cgroup namespace. Cgroup then starts so too, and is
// relative to the reader's own cgroup.
//
// The result shares no memory with b.
func ParseCgroup(b []byte) Placement {
	p, _ := parseCgroup(b)
	return p
}

// parseCgroup returns what ParseCgroup does, and the delegate of the virtual machine if there is
// one, else of the process.
func parseCgroup(b []byte) (Placement, delegate) {
	var inside, below *cgroupLine            // the best line for the container and its pod, and for the delegate, or nil
	var of [identity.NumEntities]*cgroupLine // and for each other part of the workload
	for line := range bytes.Lines(b) {
		l, ok := readCgroupLine(line)
		if !ok {
			continue
		}
		if l.levels > 0 {
			inside = best(inside, l)
		}
		if l.delegate.name != "" {
			below = best(below, l)
		}
		for entity := identity.VMEntity; entity < identity.NumEntities; entity++ {
			of[entity] = bestOf(entity, of[entity], l)
		}
	}
	var p Placement
	var by delegate
	if below != nil {
		by = below.delegate
	}
	if inside != nil {
		p.Container, p.Pod, p.Cgroup = inside.Container, inside.Pod, inside.Cgroup
	}
	for entity, line := range of {
		if line != nil {
			identity.Entity(entity).Describe(&p.Workload, &line.Workload)
		}
	}
	if guest := of[identity.VMEntity]; guest != nil {
		by = guest.delegate
	}
	if job := of[identity.SlurmStepEntity]; job != nil && p.Container.ID == "" {
		p.Cgroup = job.jobCgroup
	}
	boundWorkload(&p.Workload)
	return p, by
}

// ProcessCgroup returns the path of the process's own cgroup from the content of
// /proc/<pid>/cgroup, in the hierarchy that ParseCgroup prefers among those where the path is not
// the root. It is empty if there is none.
func ProcessCgroup(b []byte) string {
	var own *cgroupLine
	for line := range bytes.Lines(b) {
		l, ok := readCgroupLine(line)
		if !ok {
			continue
		}
		l.levels = 0 // whatever it names
		if l.path != "/" {
			l.levels = 1
		}
		own = best(own, l)
	}
	if own == nil {
		return ""
	}
	return own.path
}

// cgroupLine is one hierarchy's answer.
type cgroupLine struct {
	Placement
	levels    int // pods and containers that the path names, one inside the other
	hierarchy int // how far the hierarchy is to be preferred, 0 the most
	path      string
	delegate  delegate // of the VM, else of the process
	jobCgroup string   // path of the step's or the job's directory
}

// best returns the better one of two lines, of which a may be nil.
func best(a, b *cgroupLine) *cgroupLine {
	if a == nil || b.betterThan(a) {
		return b
	}
	return a
}

// bestOf returns the line that shows the most of the entity, among equals the better one; a, and
// the result, may be nil.
func bestOf(entity identity.Entity, a, b *cgroupLine) *cgroupLine {
	named := countKeys(entity, b)
	switch {
	case named == 0:
		return a
	case a == nil:
		return b
	}
	switch before := countKeys(entity, a); {
	case named > before:
		return b
	case named < before:
		return a
	}
	return best(a, b)
}

// countKeys returns the number of attributes in a line that identify the entity.
func countKeys(entity identity.Entity, l *cgroupLine) (n int) {
	for _, text := range entity.Key(&l.Workload) {
		if text != "" {
			n++
		}
	}
	return n
}

func (l *cgroupLine) betterThan(o *cgroupLine) bool {
	if l.levels != o.levels {
		return l.levels > o.levels
	}
	if l.hierarchy != o.hierarchy {
		return l.hierarchy < o.hierarchy
	}
	return l.path < o.path // any rule will do that does not depend on the order of the lines
}

func readCgroupLine(line []byte) (*cgroupLine, bool) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	id, rest, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return nil, false
	}
	controllers, raw, ok := bytes.Cut(rest, []byte(":")) // whatever colons follow are the path's own
	if !ok || len(raw) == 0 || raw[0] != '/' {
		return nil, false
	}
	// The kernel marks a cgroup that was removed under its last, dying processes.
	path := strings.TrimSuffix(string(raw), " (deleted)")
	unified := string(id) == "0" && len(controllers) == 0
	l := readCgroupPath(path, unified)
	l.path = path
	l.hierarchy = hierarchyRank(controllers, unified)
	return l, true
}

func hierarchyRank(controllers []byte, unified bool) int {
	if unified {
		return 0
	}
	rank := 4
	for c := range bytes.SplitSeq(controllers, []byte(",")) {
		switch string(c) {
		case "cpuacct":
			rank = min(rank, 1)
		case "cpu":
			rank = min(rank, 2)
		case "name=systemd":
			rank = min(rank, 3)
		}
	}
	return rank
}
