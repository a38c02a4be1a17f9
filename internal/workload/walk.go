// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// finders are the functions that look at each directory of a path, in order.
//
// To add a kind of workload, write a file with its function, add a line here, a field of cgroupLine
// and its merging in parseCgroup. Then add its entity, as the variable entities of package identity
// describes.
var finders = []finder{findUnit, findSlurmStep, findPod, findMachine, findContainer}

// finder looks at one directory of a path, and records the workload that the directory belongs to in
// the walk's line.
type finder func(w *walk, name string) verdict

// verdict is how a walk continues after a finder has looked at a directory.
type verdict int

const (
	passed  verdict = iota // with the next finder
	entered                // with the next directory; the finder has set walk.owner
	stopped                // not at all
)

// walk goes through a path from the root to the leaf. Its line has the innermost pod, container and
// virtual machine, and the outermost Slurm job and unit.
type walk struct {
	line    cgroupLine
	path    string
	parts   []string // the directories of the path
	unified bool     // the hierarchy is cgroup v2

	at    int          // index of the current directory
	end   int          // path[:end] is the path of the current directory
	above int          // parts[above:at] are the directories between the innermost container and the current one
	owner cgroupOwner  // that created the current directory
	pod   identity.Pod // the innermost pod above the current directory
	slurm slurmWalk

	behindSlices bool // a directory before was not a slice of systemd
}

// readCgroupPath returns the workload that the path of a cgroup shows.
func readCgroupPath(path string, unified bool) *cgroupLine {
	w := &walk{path: path, parts: strings.Split(path, "/"), unified: unified, end: -1}
	for i, name := range w.parts {
		w.at = i
		w.end += 1 + len(name)
		if name == "" {
			if w.above == i {
				w.above++
			}
			continue
		}
		if !w.look(name) {
			break
		}
	}
	if w.line.VM.ID == "" {
		w.line.owner = w.owner
	}
	return &w.line
}

// look calls the finders for a directory. It reports whether the walk continues.
func (w *walk) look(name string) bool {
	for _, find := range finders {
		switch find(w, name) {
		case entered:
			return true
		case stopped:
			return false
		}
	}
	w.owner = w.owner.below(name)
	return true
}

// dirs returns the directories between the innermost container and the current one.
func (w *walk) dirs() []string { return w.parts[w.above:w.at] }

// next returns the name of the next directory, empty at the end of the path.
func (w *walk) next() string {
	if w.at+1 < len(w.parts) {
		return w.parts[w.at+1]
	}
	return ""
}
