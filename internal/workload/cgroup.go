// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Placement is what a cgroup file alone tells of a process.
type Placement struct {
	Container units.Container // zero value: in none
	Pod       units.Pod       // zero value: in none
	VM        units.VM        // zero value: in none; ID is the machine scope's name
	Job       units.SlurmStep // zero value: in none
	Unit      units.SystemdUnit
	// Cgroup is the path of the container's own cgroup (not of a child that the process is in), below
	// each hierarchy's mount point: where the container's CPU counter is. Outside of a container it is that of the step
	// of a Slurm job, and empty outside of these.
	Cgroup string
}

// ParseCgroup parses the content of /proc/<pid>/cgroup. Its format is described in cgroups(7): a line
// "hierarchy-id:controllers:/path" for each hierarchy of version 1, and "0::/path" for version 2. ParseCgroup does not
// fail: it ignores lines of another form, and a path of no known form is in no workload.
//
// The innermost container and the innermost pod of a path count, so that a container of Docker in Docker, or of a cluster
// of kind, is found rather than the one around it. The pod is always the container's. If hierarchies disagree, the path
// with the most levels of pods and containers counts; among equals version 2, then cpuacct, cpu, name=systemd and the
// rest. The order of the lines makes no difference.
//
// The ID of whatever a delegate named, such as a user's own service manager or a container, starts with the delegate's
// name and a slash.
//
// A path that starts with "/.." is seen from a cgroup namespace. Cgroup then starts so too, and is relative to the
// reader's own cgroup.
//
// The result shares no memory with b.
func ParseCgroup(b []byte) Placement {
	p, _ := parseCgroup(b)
	return p
}

// parseCgroup returns what ParseCgroup does, and the delegate of the virtual machine if there is one, else of the process.
func parseCgroup(b []byte) (Placement, delegate) {
	var inside, guest, job, unit, below *cgroupLine // the best line for each part of the answer, or nil
	for line := range bytes.Lines(b) {
		l, ok := readCgroupLine(line)
		if !ok {
			continue
		}
		if l.levels > 0 {
			inside = best(inside, l)
		}
		if l.VM.ID != "" {
			guest = best(guest, l)
		}
		if l.Unit.Name != "" {
			unit = best(unit, l)
		}
		if l.delegate.name != "" {
			below = best(below, l)
		}
		switch {
		case l.Job.ID == "" || job != nil && job.Job.Step != "" && l.Job.Step == "":
		case job != nil && job.Job.Step == "" && l.Job.Step != "":
			job = l
		default:
			job = best(job, l)
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
	if guest != nil {
		p.VM, by = guest.VM, guest.delegate
	}
	if unit != nil {
		p.Unit = unit.Unit
	}
	if job != nil {
		if p.Job = job.Job; p.Container.ID == "" {
			p.Cgroup = job.jobCgroup
		}
	}
	p.bound()
	return p, by
}

// ProcessCgroup returns the path of the process's own cgroup from the content of /proc/<pid>/cgroup, in the hierarchy that
// ParseCgroup prefers among those where the path is not the root. It is empty if there is none.
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
