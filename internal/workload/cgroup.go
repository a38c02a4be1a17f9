// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// Placement is the workload of a process according to its cgroup file.
type Placement struct {
	identity.Workload // the ID of a VM is its scope's name
	// Cgroup is the path of the container's own cgroup, below the mount point of each hierarchy.
	// This cgroup has the container's CPU counter, and the process may be in a child of it. Outside
	// of a container, Cgroup is the path of the step of a Slurm job, or empty.
	Cgroup string
}

// ParseCgroup parses the content of /proc/<pid>/cgroup. Its format is described in cgroups(7): a
// line "hierarchy-id:controllers:/path" for each hierarchy of version 1, and "0::/path" for version
// 2. ParseCgroup never fails: it ignores malformed lines, and paths of an unsupported form have no
// workload.
//
// The innermost container and the innermost pod of a path are selected: a container of Docker in
// Docker or of a kind cluster, not the container that contains it. The pod is always the pod of the
// container. If hierarchies disagree, the path with the most levels of pods and containers is
// selected. Among equal paths, the order of preference is version 2, cpuacct, cpu, name=systemd and
// all others. For each other kind of workload, the paths with the most of its attributes are
// compared in the same way. The order of the lines has no effect.
//
// The ID of a workload below a cgroup owner, such as a user's own service manager or a container,
// starts with the owner's name and a slash.
//
// A path that starts with "/.." is relative to a cgroup namespace. Cgroup then starts with "/.." as
// well, and is relative to the reader's own cgroup.
//
// The result does not share memory with b.
func ParseCgroup(b []byte) Placement {
	p, _ := parseCgroup(b)
	return p
}

// parseCgroup returns the result of ParseCgroup, and the cgroup owner of the virtual machine, or of
// the process without a virtual machine.
func parseCgroup(b []byte) (p Placement, owner cgroupOwner) {
	lines := readCgroupLines(b)
	if len(lines) == 0 {
		return p, owner
	}
	slices.SortFunc(lines, func(a, b *cgroupLine) int {
		return cmp.Or(cmp.Compare(b.levels, a.levels), byHierarchy(a, b))
	})
	for _, l := range slices.Backward(lines) { // the best line is applied last
		if l.levels > 0 {
			p.Container, p.Pod, p.Cgroup = l.Container, l.Pod, l.Cgroup
		}
		if l.owner.name != "" {
			owner = l.owner
		}
	}
	var of [identity.NumEntities]*cgroupLine
	for entity := identity.VMEntity; entity < identity.NumEntities; entity++ {
		of[entity] = mostOf(entity, lines)
		entity.Describe(&p.Workload, &of[entity].Workload)
	}
	if p.VM.ID != "" {
		owner = of[identity.VMEntity].owner
	}
	if p.Container.ID == "" {
		p.Cgroup = of[identity.SlurmStepEntity].jobCgroup
	}
	boundWorkload(&p.Workload)
	return p, owner
}

// ProcessCgroup returns the path of the process's own cgroup from the content of
// /proc/<pid>/cgroup, in the most preferred hierarchy of ParseCgroup whose root does not contain
// the process. It returns "" without a path.
func ProcessCgroup(b []byte) (own string) {
	lines := readCgroupLines(b)
	slices.SortFunc(lines, byHierarchy)
	for _, l := range slices.Backward(lines) { // the best line is applied last
		if l.path != "/" || own == "" {
			own = l.path
		}
	}
	return own
}

// cgroupLine is the workload according to one line of a cgroup file.
type cgroupLine struct {
	Placement
	levels    int // number of nested pods and containers in the path
	hierarchy int // preference of the hierarchy, 0 for the first choice
	path      string
	owner     cgroupOwner // owner of the VM, otherwise of the process
	jobCgroup string      // path of the step's or the job's directory
}

// byHierarchy compares lines by the preference of their hierarchies. If the preference is equal, it
// compares the paths, so that the result does not depend on the order of the lines.
func byHierarchy(a, b *cgroupLine) int {
	return cmp.Or(cmp.Compare(a.hierarchy, b.hierarchy), cmp.Compare(a.path, b.path))
}

// mostOf returns the first line with the largest number of attributes of the entity.
func mostOf(entity identity.Entity, lines []*cgroupLine) *cgroupLine {
	most := lines[0]
	for _, l := range lines[1:] {
		if countKeys(entity, l) > countKeys(entity, most) {
			most = l
		}
	}
	return most
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

// readCgroupLines reads the lines with a path in a cgroup file.
func readCgroupLines(b []byte) []*cgroupLine {
	lines := make([]*cgroupLine, 0, bytes.Count(b, []byte("\n"))+1)
	for line := range bytes.Lines(b) {
		id, rest, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(":"))
		controllers, raw, _ := bytes.Cut(rest, []byte(":")) // further colons belong to the path
		if len(raw) == 0 || raw[0] != '/' {
			continue
		}
		// The kernel marks the removed cgroup of a dying process.
		path := strings.TrimSuffix(string(raw), " (deleted)")
		unified := string(id) == "0" && len(controllers) == 0
		l := readCgroupPath(path, unified)
		l.path = path
		l.hierarchy = hierarchyRank(controllers, unified)
		lines = append(lines, l)
	}
	return lines
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
